"""`interlock acp`: an editor's sessions over real pipes, each frame checked by the protocol's schema."""

import json
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from acp_editor import ALLOWS, REJECTS, Editor

Open = Callable[..., Editor]


@pytest.fixture
def editor(tmp_path: Path) -> Generator[Open]:
    """Start an editor on `tmp_path/work` with scripted replies."""
    work, opened = tmp_path / "work", list[Editor]()
    work.mkdir()

    def start(*replies: dict[str, Any], **given: Any) -> Editor:
        script = tmp_path / "script.json"
        if replies:
            script.write_text(json.dumps(replies))
        opened.append(Editor(work, "-m", f"script:{script}", *given.pop("arguments", ()), **given))
        opened[-1].initialize(**given.pop("offers", {}))
        return opened[-1]

    yield start
    for one in opened:
        with suppress(OSError):
            one.kill()


def says(name: str, **args: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "args": args}]}


WRITE = says("write_file", file_path="a.txt", content="one\n")
DONE = {"text": "Done."}


@pytest.mark.parametrize(
    ("person", "status", "written"), [(ALLOWS, "completed", True), (REJECTS, "failed", False)]
)
def test_an_edit_is_announced_asked_about_and_ended(
    editor: Open, tmp_path: Path, person: Any, status: str, written: bool
) -> None:
    here = editor({"text": "I write it."} | WRITE, DONE, person=person)
    session = here.new()
    assert here.prompt(session, "write a file") == "end_turn"
    assert here.text() == "I write it.Done." and not here.text("user_message")
    ((name, call),) = here.calls().items()
    ((_, question),) = here.asked
    asked = question["params"]["toolCall"]
    assert asked["toolCallId"] == name and call["status"] == status and call["kind"] == "edit"
    path = str(tmp_path / "work" / "a.txt")
    assert call["locations"][0]["path"] == path
    diff = {"type": "diff", "path": path, "oldText": None, "newText": "one\n"}
    assert diff in asked["content"]
    kinds = ["allow_once", *["allow_always"] * 3, "reject_once"]
    assert [o["kind"] for o in question["params"]["options"]] == kinds
    names = [option["name"] for option in question["params"]["options"]]
    assert names[1] == "yes, and all edits of this session"
    assert all("a.txt" in name for name in names[2:4]), "what always covers"
    assert (tmp_path / "work" / "a.txt").exists() == written
    assert here.leave() == 0


def open_question(params: Any) -> None:
    """Leaves a permission open."""


def test_a_cancel_withdraws_the_question_and_a_late_yes_writes_nothing(editor: Open, tmp_path: Path) -> None:
    here = editor(WRITE, {"text": "Gone on."}, person=open_question)
    session = here.new()
    turn = here.begin("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "write"}]})
    here.until(lambda: bool(here.asked))
    number = here.asked[0][1]["id"]
    here.send("session/cancel", {"sessionId": session})
    assert here.answer(turn, "session/prompt") == {"stopReason": "cancelled"}
    assert here.withdrawn == [number]
    (call,) = here.calls().values()
    assert call["status"] == "failed"
    here.reply(number, result={"outcome": {"outcome": "selected", "optionId": "proceed_once"}})
    assert here.prompt(session, "what else?") == "end_turn"
    assert here.text() == "Gone on." and not (tmp_path / "work" / "a.txt").exists()


def test_a_killed_session_is_loaded_with_its_question(editor: Open, tmp_path: Path) -> None:
    here = editor(
        {"thought": "Hm.", "text": "I write it."} | WRITE, DONE, {"text": "Again."}, person=open_question
    )
    session = here.new()
    here.begin("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "write a file"}]})
    here.until(lambda: bool(here.asked))
    calls = here.calls()
    here.kill()
    there = editor()
    there.load(session)
    assert not there.asked, "the conversation is shown before the answer, and the question comes after it"
    assert there.text("user_message") == "write a file" and there.text() == "I write it."
    assert there.text("agent_thought") == "Hm."
    assert there.calls().keys() == calls.keys()
    there.until(lambda: there.text().endswith("Done."))
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"
    assert there.prompt(session, "and now?") == "end_turn" and there.text().endswith("Again.")
    (listed,) = there.call("session/list", {"cwd": str(tmp_path / "work")})["sessions"]
    assert (listed["sessionId"], listed["title"]) == (session, "write a file")
