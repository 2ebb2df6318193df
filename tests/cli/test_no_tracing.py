"""Nothing of a run is sent to LangSmith, whatever the environment says: its own setting turns it off."""

import select
import socket
from pathlib import Path

from commands import python
from fake_gemini.fake import FakeGemini
from scripted import call

_RUN = """
import sys
from interlock.cli import main
main._is_traced = lambda: True  # come back here
sys.argv = ["interlock", "-p", "go", "-m", "gemini-2.5-pro", "-y"]
assert main.main() == 0
from langsmith.utils import tracing_is_enabled
assert not tracing_is_enabled()
"""


def test_a_run_with_a_call_is_not_traced_though_the_environment_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("42")
    replies = [{"calls": [call("read_file", file_path="a.txt")]}, {"text": "It is 42."}]
    with (
        FakeGemini([*replies, {"text": '{"reasoning": "done", "next_speaker": "user"}'}]) as fake,
        socket.create_server(("127.0.0.1", 0)) as collector,
    ):
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
        asked = {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "x", "LANGSMITH_ENDPOINT": endpoint}
        python(_RUN, tmp_path, env={**fake.env, **asked})
        assert not select.select([collector], [], [], 0)[0], "LangSmith was called"
