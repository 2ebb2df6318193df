"""Toad drives `interlock acp` in tmux, as a person does."""

import base64
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ENTRY
from patience import until
from scripted import PNG, says
from tmuxes import Tmux
from toads import toad

from interlock.engine.client import Client, Options
from interlock.state.messages import DataPart

pytestmark = pytest.mark.sweep
TODOS = [{"description": "read the notes", "status": "in_progress"}]


REPLIES = [
    {"text": "I write it."} | says("write_file", file_path="a.txt", content="one\n"),
    {"text": "Written."},
    {"text": "I plan."} | says("write_todos", todos=TODOS),
    {"text": "Seen."},
    {"text": "Too late.", "delay_s": 600},
]


def tell(tmux: Tmux, prompt: str) -> None:
    """Send a prompt; Toad refuses it for as long as the agent isn't ready."""

    def sent() -> bool:
        tmux.presses("Enter")
        time.sleep(1)
        return f"▊ ❯ {prompt}" not in tmux.text

    tmux.types(prompt)
    tmux.waits_for(prompt)
    if "@" in prompt:  # a slow Toad still shows its list of files, and Enter would take one
        tmux.presses("Escape")
        time.sleep(1)
    until(sent, "a sent prompt")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    (tmp_path / "work").mkdir()
    made = Tmux(tmp_path / "work")
    yield made
    made.closes()


def test_toad_edits_plans_attaches_switches_cancels_and_loads(tmux: Tmux, tmp_path: Path) -> None:
    work, script, program = tmux.folder, tmp_path / "script.json", str(toad())
    script.write_text(json.dumps(REPLIES))
    (work / "dot.png").write_bytes(base64.b64decode(PNG))
    agent = shlex.join([*ENTRY, "acp", "-m", f"script:{script}"])
    tmux.opens(program, "acp", agent, str(work), columns=130, rows=42)
    tmux.waits_for(" default")
    tell(tmux, "write it")
    tmux.waits_for("Yes, and don")
    assert not (work / "a.txt").exists()
    tmux.presses("a")
    tmux.waits_for("Written.")
    assert (work / "a.txt").read_text() == "one\n"
    tmux.presses("C-o")
    tmux.waits_for("a plan that you approve")
    tmux.presses("Down", "Enter")
    until(lambda: " plan" in tmux.text.splitlines()[-3], "the mode")
    tell(tmux, "look at @dot.png ")
    tmux.waits_for("Seen.")
    assert "read the notes" in tmux.text, "the plan"
    tell(tmux, "wait")
    tmux.waits_for("❯ wait")
    tmux.presses("Escape")
    tmux.waits_for("again to cancel")
    tmux.presses("Escape")
    tmux.waits_for("Turn cancelled")
    client = Client(Options(home=tmux.home / ".local" / "state" / "interlock"))
    (row,) = client.runs()
    parts = [
        part
        for message in client.read_messages(row.run, client.masked_state(row.run))
        for part in message.content
    ]
    assert [part.mime_type for part in parts if isinstance(part, DataPart)] == ["image/png"]

    tmux.closes(kill=True)
    tmux.opens(program, str(work), columns=130, rows=42)
    tmux.waits_for("Resume")
    tmux.presses("C-r")
    until(lambda: "just now" in tmux.text or " ago" in tmux.text, "its list of sessions")
    tmux.presses("Enter")
    time.sleep(1)  # nothing shows that the button can be pressed now
    tmux.presses("Tab", "Enter")
    for shown in ("write it", "Written.", "read the notes", "Seen."):
        tmux.waits_for(shown)
    until(lambda: " plan" in tmux.text.splitlines()[-3], "the mode again")
