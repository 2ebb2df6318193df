"""Until the first request, a run reads nothing of prices, signatures, telemetry, stats, retention or fuzzy search."""

from pathlib import Path
from typing import Any

from commands import python

_RUN = """
import sys
from interlock.cli import main

ASKED, READ = int(sys.argv[1]), []

def seen(event, arguments):
    if event == "socket.connect" and not READ and arguments[1][1] == ASKED:
        READ.extend(sys.modules)

sys.addaudithook(seen)
main._is_traced = lambda: True  # come back here
sys.argv = ["interlock", "-p", "go", "-m", "gemini-2.5-pro"]
assert main.main() == 0
found = [name for name in READ if name.startswith((
    "genai_prices", "cryptography", "opentelemetry.exporter", "interlock.telemetry",
    "interlock.engine.store.integrity", "interlock.engine.audit",
    "interlock.engine.store.retention", "interlock.cli.commands.store", "interlock.cli.commands.audit",
    "packaging.requirements", "rapidfuzz", "xml.etree", "interlock.services.mcp.servers",
))]
print(len(READ) > 100, found)
"""


def test_the_first_request_waits_for_nothing_that_comes_later(fake_gemini: Any, tmp_path: Path) -> None:
    fake_gemini.play([{"text": "done"}])
    told = python(_RUN, tmp_path, str(fake_gemini.port), env=fake_gemini.env)
    assert told == "done\nTrue []\n"
