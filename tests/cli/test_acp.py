"""`interlock acp`: an editor's sessions over real pipes, each frame checked by the protocol's schema."""

import json
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from acp_editor import ALLOWS, REJECTS, Editor, RefusalError

Open = Callable[..., Editor]


@pytest.fixture
def editor(tmp_path: Path) -> Generator[Open]:
    """Start an editor on `tmp_path/work` with scripted replies."""
    work, opened = tmp_path / "work", list[Editor]()
    work.mkdir()

    def start(*replies: dict[str, Any], **given: Any) -> Editor:
        script, offers = tmp_path / "script.json", given.pop("offers", {})
        if replies:
            script.write_text(json.dumps(replies))
        opened.append(Editor(work, "-m", f"script:{script}", *given.pop("arguments", ()), **given))
        opened[-1].initialize(**offers)
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


def offers_files(here: Editor, buffers: dict[str, str], folder: Path) -> None:
    """Let an editor keep files open; it saves what the agent writes."""

    def read(params: Any) -> Any:
        name = str(Path(params["path"]).relative_to(folder))
        if name not in buffers:
            raise RefusalError(-32002, "Resource not found")
        return {"content": buffers[name]}

    def write(params: Any) -> Any:
        path = Path(params["path"])
        buffers[str(path.relative_to(folder))] = params["content"]
        path.write_text(params["content"])
        return {}

    here.others |= {"fs/read_text_file": read, "fs/write_text_file": write}


FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}


def test_unsaved_text_is_read_edited_and_brought_back_by_undo(editor: Open, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "a.txt").write_text("saved\n")
    edit = says(
        "replace", file_path="a.txt", old_string="unsaved", new_string="edited", instruction="change it"
    )
    new = says("write_file", file_path="b/new.txt", content="new\n")
    here = editor(says("read_file", file_path="a.txt"), edit, new, DONE, offers=FILES)
    buffers = {"a.txt": "unsaved\n"}
    offers_files(here, buffers, work)
    session = here.new()
    assert here.prompt(session, "edit it") == "end_turn"
    assert [call["status"] for call in here.calls().values()] == ["completed"] * 3, here.calls()
    diff = next(c for c in here.calls().values() if c["kind"] == "edit")["content"][0]
    assert (diff["oldText"], diff["newText"]) == ("unsaved\n", "edited\n")
    assert buffers == {"a.txt": "edited\n", "b/new.txt": "new\n"} and (work / "b/new.txt").exists()
    written = [f["params"] for m, f in here.asked if m == "fs/write_text_file"]
    assert [w["content"] for w in written] == ["unsaved\n", "edited\n", "new\n"], "saved first, for undo"
    assert here.prompt(session, "/undo all") == "end_turn"
    assert (work / "a.txt").read_text() == "unsaved\n" and not (work / "b/new.txt").exists()


def test_what_is_typed_after_the_question_is_asked_about(editor: Open, tmp_path: Path) -> None:
    work, buffers = tmp_path / "work", {"a.txt": "one\n"}
    (work / "a.txt").write_text("one\n")

    def types_then_allows(params: Any) -> Any:
        buffers["a.txt"] = "typed\n"
        return ALLOWS(params)

    here = editor(says("write_file", file_path="a.txt", content="two\n"), DONE, offers=FILES)
    offers_files(here, buffers, work)
    here.person = types_then_allows
    assert here.prompt(here.new(), "write") == "end_turn"
    diffs = [f["params"]["toolCall"]["content"][-1] for m, f in here.asked if "permission" in m]
    assert [(d["oldText"], d["newText"]) for d in diffs] == [("one\n", "two\n"), ("typed\n", "two\n")]


def test_commands_undo_rewind_and_fork(editor: Open, tmp_path: Path) -> None:
    here = editor(WRITE, DONE, {"text": "Second."})
    session, file = here.new(), tmp_path / "work" / "a.txt"
    here.until(lambda: "available_commands_update" in here.kinds())
    (offered,) = (u["availableCommands"] for u in here.updates if "availableCommands" in u)
    assert {"undo", "rewind", "fork", "compress", "plan"} <= {command["name"] for command in offered}
    assert here.prompt(session, "/undo") == "end_turn" and "Nothing has run yet" in here.text()
    here.prompt(session, "write a file")
    assert file.exists()
    here.prompt(session, "/undo")
    assert not file.exists() and "`a.txt`" in here.text()
    assert here.prompt(session, "/fork") == "end_turn" and "forked from" in here.text()
    assert here.prompt(session, "again") == "end_turn" and here.text().endswith("Second.")
    runs = here.call("session/list", {})["sessions"]
    assert len(runs) == 2 and session in {row["sessionId"] for row in runs}
    assert here.prompt(session, "/rewind") == "end_turn"
    title = [f["params"]["toolCall"]["title"] for _, f in here.asked][-2:]
    assert title == ["Go back to before which prompt?", "Change the files, and go back?"]
    assert here.prompt(session, "and now?") == "end_turn" and here.text().count("Second.") == 2
    assert here.text("user_message") == "", "nothing is shown twice"


@pytest.mark.parametrize(("person", "read"), [(ALLOWS, True), (REJECTS, False)])
def test_a_link_beyond_the_workspace_is_asked_about(
    editor: Open, tmp_path: Path, person: Any, read: bool
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the word is plum\n")
    here = editor({"expect": "plum" if read else "^(?![^$]*plum)", "text": "Seen."}, person=person)
    link = {"type": "resource_link", "name": "secret.txt", "uri": secret.as_uri()}
    assert here.prompt(here.new(), "look", link) == "end_turn"
    assert here.text().endswith("Seen.") and "outside the workspace" in str(here.asked)
