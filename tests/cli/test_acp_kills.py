"""A SIGKILL at any frame of an editor's session: after load, everything is as in the undisturbed one."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from acp_editor import ALLOWS, Editor, FailedError, Frame, prompted
from patience import sweep_part
from scripted import says

TODOS = [{"description": "one", "status": "completed"}, {"description": "two", "status": "in_progress"}]
PROMPT = "read, plan and write"


READS = [
    {"thought": f"Thought {n}.", "text": f"Part {n}."} | says("read_file", file_path=f"notes{n}.txt")
    for n in range(7)
]
REPLIES: Sequence[dict[str, Any]] = (
    *READS,
    {"text": "A plan."} | says("write_todos", todos=TODOS),
    {"text": "First."} | says("write_file", file_path="a.txt", content="one\n"),
    {"text": "Second."} | says("write_file", file_path="b.txt", content="two\n"),
)


class KilledError(Exception):
    """The agent is gone."""


class Killer(Editor):
    """Kills the agent when a frame comes, before it is answered."""

    kill_at = 0

    def _take(self, frame: Frame) -> None:
        if self.frames == self.kill_at:
            self.process.kill()
            raise KilledError
        super()._take(frame)


def allows_the_first(params: Any) -> Any:
    return None if "b.txt" in str(params["toolCall"]["locations"]) else ALLOWS(params)


def started(work: Path) -> Killer:
    return Killer(work, "-m", f"script:{work.parent / 'script.json'}", person=allows_the_first)


def begun(work: Path) -> Killer:
    here = started(work)
    here.initialize()
    return here


def is_open(here: Editor) -> bool:
    return any("b.txt" in str(frame["params"]["toolCall"]["locations"]) for _, frame in here.asked)


def to_the_question(here: Killer, session: str) -> None:
    """Load a session and go on until the last request is open."""
    here.load(session)
    try:
        again = "/continue" if here.text("user_message") else PROMPT
        number = here.begin("session/prompt", prompted(session, again))
        here.until(lambda: is_open(here) or number in here._answers)  # pyright: ignore[reportPrivateUsage]
        if not is_open(here):
            here.answer(number)
    except FailedError as error:
        assert "A request is open" in str(error)
    here.until(lambda: is_open(here))


def conversation(updates: Sequence[Frame]) -> Iterator[tuple[str, str]]:
    """What is said, thought, called and planned, in its order; chunks that follow each other are one."""
    said = [u for u in updates if u["sessionUpdate"] not in ("tool_call_update", "available_commands_update")]
    for kind, chunks in groupby(said, lambda update: update["sessionUpdate"]):
        if kind.endswith("_chunk"):
            yield kind, "".join(chunk["content"]["text"] for chunk in chunks)
        else:
            yield from ((kind, str(chunk.get("title") or chunk.get("entries"))) for chunk in chunks)


def stands(work: Path, session: str) -> dict[str, Any]:
    """What an editor finds that loads the session now."""
    here = begun(work)
    here.load(session)
    here.until(lambda: is_open(here))
    question = here.asked[-1][1]["params"]["toolCall"]
    found = {
        "said": [*conversation(here.updates)],
        "calls": [
            (call["title"], call["status"], str(call.get("content")).replace(str(work), "."))
            for call in here.calls().values()
        ],
        "files": {file.name: file.read_text() for file in sorted(work.iterdir()) if file.is_file()},
        "question": (question["title"], str(question["content"]).replace(str(work), ".")),
    }
    here.kill()
    return found


def played(work: Path, kill_at: int = 0) -> tuple[dict[str, Any], int]:
    """What stands in the end, and how many frames it took."""
    work.mkdir(parents=True)
    (work.parent / "script.json").write_text(json.dumps(REPLIES))
    for number in range(len(READS)):
        (work / f"notes{number}.txt").write_text("notes\n")
    session, here = "", started(work)
    here.kill_at = kill_at
    try:
        here.initialize()
        session = here.new()
        here.begin("session/prompt", prompted(session, PROMPT))
        here.until(lambda: is_open(here))
        here.kill()
    except KilledError:
        there = begun(work)
        session = session or there.new()
        to_the_question(there, session)
        there.kill()
    return stands(work, session), here.frames


def differing(folder: Path, wanted: Sequence[int] = ()) -> list[str]:
    """Kills at the frames that are wanted, else at every one."""
    part, of = sweep_part()
    expected, frames = played(folder / "whole" / "work")
    assert frames >= 60 and "b.txt" in expected["question"][0] and "a.txt" in expected["files"]
    found = {at: played(folder / str(at) / "work", at)[0] for at in wanted or range(1 + part, frames + 1, of)}
    return [f"frame {at}: {one}, expected {expected}" for at, one in found.items() if one != expected]


@pytest.mark.sweep
def test_a_kill_at_a_frame_loses_nothing(tmp_path: Path) -> None:
    assert differing(tmp_path, (3, 30, 54, 60)) == []


@pytest.mark.sweep(divides=True)
def test_a_kill_at_every_frame_loses_nothing(tmp_path: Path) -> None:
    assert differing(tmp_path) == []
