"""Real clients drive `interlock acp`: acpx from npm, and the protocol's Python library."""

import asyncio
import json
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import acp
import pytest
from commands import ENTRY
from mcp_servers.npm import programs
from patience import HANG_S

EDIT = {
    "text": "I write it.",
    "tool_calls": [{"name": "write_file", "args": {"file_path": "a.txt", "content": "one\n"}}],
}
DONE = {"text": "Done."}


def agent(folder: Path, *replies: dict[str, Any]) -> list[str]:
    (folder / "script.json").write_text(json.dumps(replies))
    return [*ENTRY, "acp", "-m", f"script:{folder / 'script.json'}"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def acpx(work: Path, command: Sequence[str], *arguments: str) -> str:
    given = [str(programs() / "acpx"), "--approve-all", "--agent", shlex.join(command), *arguments]
    done = subprocess.run(given, cwd=work, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_acpx_prompts_edits_and_goes_on_in_another_process(work: Path, tmp_path: Path) -> None:
    command = agent(tmp_path, EDIT, DONE, {"text": "Still here."})
    session = acpx(work, command, "sessions", "new").split()[-1]
    assert "[done] end_turn" in acpx(work, command, "write it")
    assert (work / "a.txt").read_text() == "one\n"
    acpx(work, command, "set-mode", "plan")
    assert "Still here." in acpx(work, command, "and now?")
    assert session in acpx(work, command, "sessions", "list")
    acpx(work, command, "sessions", "close")


class Person(acp.Client):
    """Allows everything, and keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
        chosen = next(option for option in options if option.kind == "allow_once")
        selected = acp.schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return acp.schema.RequestPermissionResponse(outcome=selected)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.shown.append(update)


def test_the_protocols_library_prompts_and_edits(work: Path, tmp_path: Path) -> None:
    async def driven(person: Person) -> str:
        name, *arguments = agent(tmp_path, EDIT, DONE)
        async with acp.spawn_agent_process(person, name, *arguments, cwd=work) as (connection, _):
            await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
            session = await connection.new_session(cwd=str(work), mcp_servers=[])
            given = [acp.text_block("write it")]
            return str((await connection.prompt(session_id=session.session_id, prompt=given)).stop_reason)

    person = Person()
    assert asyncio.run(driven(person)) == "end_turn"
    assert (work / "a.txt").read_text() == "one\n"
    kinds = [update.session_update for update in person.shown]
    assert {"tool_call", "tool_call_update", "agent_message_chunk", "usage_update"} <= {*kinds}
