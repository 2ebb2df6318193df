"""Real clients drive `interlock acp`: acpx from npm, and the protocol's linter acplint."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import ENTRY
from folders import put
from mcp_servers.npm import programs
from patience import HANG_S, until
from scripted import PNG, call, tools

from interlock.engine.client import Client
from interlock.state.messages import DataPart

EDIT = tools(call("write_file", file_path="a.txt", content="one\n"), text="I write it.")
DONE = {"text": "Done."}


def agent(folder: Path, *replies: dict[str, Any]) -> list[str]:
    put(folder / "script.json", replies)
    return [*ENTRY, "acp", "-m", f"script:{folder / 'script.json'}"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def given(command: Sequence[str]) -> list[str]:
    return [str(programs() / "acpx"), "--approve-all", "--agent", shlex.join(command)]


def acpx(work: Path, command: Sequence[str], *arguments: str) -> str:
    done = subprocess.run(
        [*given(command), *arguments], cwd=work, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.sweep
def test_acpx_edits_plans_attaches_switches_the_mode_cancels_and_goes_on_after_a_kill(
    work: Path, tmp_path: Path
) -> None:
    todos = call("write_todos", todos=[{"description": "one", "status": "pending"}])
    late = {"text": "Late.", "delay_s": 600}
    command = agent(tmp_path, EDIT, DONE, tools(todos), {"text": "Still here."}, late)
    session = acpx(work, command, "sessions", "new").split()[-1]
    assert "[done] end_turn" in acpx(work, command, "write it")
    assert (work / "a.txt").read_text() == "one\n"
    acpx(work, command, "set-mode", "plan")
    owner = json.loads(acpx(work, command, "--format", "json", "status"))["pid"]
    for child in Path(f"/proc/{owner}/task/{owner}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)  # the agent
    picture = {"type": "image", "mimeType": "image/png", "data": PNG}
    put(tmp_path / "prompt.json", [{"type": "text", "text": "and now?"}, picture])
    shown = acpx(work, command, "--format", "json", "prompt", "--file", str(tmp_path / "prompt.json"))
    assert '"session/resume"' in shown and '"sessionUpdate":"plan"' in shown and "Still here." in shown
    assert pictures() == ["image/png"]
    waiting = subprocess.Popen([*given(command), "wait"], cwd=work, stdout=subprocess.PIPE, text=True)
    until(lambda: Client.for_this_user().runs()[0].status == "running", "the turn")
    until(
        lambda: (
            "cancelled" in acpx(work, command, "--format", "json", "cancel").replace('cancelled":false', "")
        )
    )
    ended = waiting.communicate(timeout=HANG_S)[0]
    assert "[done] cancelled" in ended, ended
    assert session in acpx(work, command, "sessions", "list")
    acpx(work, command, "sessions", "close")


def pictures() -> list[str]:
    """Kinds of the pictures that the only run's model has seen."""
    client = Client.for_this_user()
    (row,) = client.runs()
    parts = [
        part
        for message in client.read_messages(row.run, client.masked_state(row.run))
        for part in message.content
    ]
    return [part.mime_type for part in parts if isinstance(part, DataPart)]


WRONG = {
    "initialize_v1": "wants the version as a text; the protocol has a number",
    "protocol_version_returned": "the same",
    "schema_initialize": "the same",
    "new_session": "wants a `label` of an option; the protocol has a `name`",
    "schema_session_new": "the same",
    "agent_message_chunk_received": "sends a prompt as `content`, and knows updates as `agentMessageChunk`; the"
    " protocol has `prompt` and `agent_message_chunk`",
    "prompt_stop_reason": "the same",
}
"""Checks of acplint 0.1.0 that contradict the protocol's published schema, by which every other test checks frames."""
CATEGORIES = (
    *("initialization", "authentication", "session_lifecycle", "session_modes", "config_options"),
    *("cancel", "streaming", "stress", "schema_validation"),
)
"""Those that don't wait for updates under the names that only acplint knows."""


@pytest.mark.sweep
def test_acplint_finds_nothing_but_what_contradicts_the_protocol(work: Path, tmp_path: Path) -> None:
    linter = Path(sys.executable).with_name("acplint")
    if not linter.exists():
        pytest.skip("acplint isn't installed")
    arguments = [word for word in agent(tmp_path, DONE) if word not in ENTRY]
    interlock = Path(sys.executable).with_name("interlock")  # it splits what it starts at blanks
    where = ["--agent", str(interlock), "--agent-args", " ".join(arguments), "--cwd", str(work)]
    report = tmp_path / "report.json"
    how = ["--output", "json", "--output-file", str(report), "--categories", *CATEGORIES]
    subprocess.run([str(linter), *where, *how], capture_output=True, timeout=HANG_S, check=False)
    results = json.loads(report.read_text())["results"]
    assert len(results) > 35, results
    assert {one["name"] for one in results if one["status"] != "PASS"} == {*WRONG}, results
