"""Until the first request, a run reads nothing of prices, signatures, telemetry, stats, retention or fuzzy search.

Nor what its packages take from others for what a run doesn't do, and few of the classes that Gemini's client has.

With a server that speaks OpenAI's protocol nothing of its client that a chat doesn't need, until the end.
"""

from pathlib import Path
from typing import Any

from commands import python
from local_server import Local

_RUN = """
import sys
from interlock.cli import main

ASKED, READ = int(sys.argv[1]), []

def seen(event, arguments):
    if event == "socket.connect" and not READ and arguments[1][1] == ASKED:
        READ.extend(sys.modules)

sys.addaudithook(seen)
main._is_watched = lambda: True  # come back here
sys.argv = ["interlock", "-p", "go", "-m", "gemini-2.5-pro"]
assert main.main() == 0
found = [name for name in READ if name.startswith((
    "genai_prices", "cryptography", "opentelemetry.sdk", "opentelemetry.exporter", "interlock.engine.telemetry",
    "interlock.engine.store.audited", "interlock.engine.store.traces",
    "interlock.engine.store.keeping", "interlock.cli.commands.store", "interlock.cli.commands.audit",
    "packaging.requirements", "rapidfuzz", "xml.etree", "interlock.services.mcp.servers",
    "requests", "urllib3", "filetype", "jsonpatch", "yaml", "re2", "langchain_core.output_parsers",
))]
made = len(vars(sys.modules["google.genai.types"])) < 600
print(len(READ) > 100, made or sys.version_info >= (3, 14), found)
"""
_OPENAI = """
import sys
from interlock.cli import main
main._is_watched = lambda: True  # come back here
sys.argv = ["interlock", "-p", "go", "-m", "openai:any"]
assert main.main() == 0
print([name for name in sys.modules if name.startswith((
    "openai.resources.beta", "openai.types.responses.response", "openai.types.beta",
    "websockets", "click", "pygments", "rich",
))])
import openai.types
assert all(getattr(openai.types, name) for name in openai.types.__all__)
print(openai.types.Completion)
"""


def test_the_first_request_waits_for_nothing_that_comes_later(fake_gemini: Any, tmp_path: Path) -> None:
    fake_gemini.play([{"text": "done"}])
    told = python(_RUN, tmp_path, str(fake_gemini.port), env=fake_gemini.env)
    assert told == "done\nTrue True []\n"


def test_a_run_with_openais_client_reads_what_a_chat_needs_and_the_rest_can_be_read(
    local: Local, tmp_path: Path
) -> None:
    local.turns.append("done")
    told = python(_OPENAI, tmp_path, env=local.env)
    assert told == "done\n[]\n<class 'openai.types.completion.Completion'>\n"
