"""`interlock acp`: an editor's sessions over real pipes, each frame checked by the protocol's schema."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from acp_editor import (
    ALLOWS,
    DONE,
    REJECTS,
    WRITE,
    Editor,
    FailedError,
    RefusalError,
    open_question,
    says,
)
from patience import HANG_S
from scripted import PNG
from warm import Warm

from interlock.cli.session.external_programs import texts_before_and_after_diff
from interlock.engine.client import Client
from interlock.state.messages import DataPart
from interlock.tools.text_diff import unified_diff

Open = Callable[..., Editor]
Asking = Callable[..., tuple[Editor, str, int]]


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
    kinds = ["allow_once", *["allow_always"] * 2, "reject_once"]
    assert [o["kind"] for o in question["params"]["options"]] == kinds
    names = [option["name"] for option in question["params"]["options"]]
    assert names[:2] == ["Yes", "Yes to all edits in this session"]
    assert names[2].endswith("`write_file` on a.txt, in this folder") and names[3] == "No"
    assert (tmp_path / "work" / "a.txt").exists() == written
    assert here.leave() == 0


def test_a_diff_that_is_cut_says_so_in_the_editor_and_in_the_difftool(editor: Open) -> None:
    args = {"file_path": "a.txt", "content": "one line of many\n" * 20_000}
    here = editor({"tool_calls": [{"name": "write_file", "args": args}]}, DONE, person=REJECTS)
    here.prompt(here.new(), "write a file")
    ((_, question),) = here.asked
    assert question["params"]["toolCall"]["title"].endswith("a.txt (+20000)")
    *_, diff, rest = question["params"]["toolCall"]["content"]
    shown = diff["newText"].count("\n")
    left = f"… {20_000 - shown} more lines of this diff aren't shown (+{20_000 - shown} −0).\n"
    assert rest["content"]["text"] == left and shown < 20_000
    assert here.leave() == 0
    before, after = texts_before_and_after_diff(unified_diff("a.txt", None, args["content"].encode()), "")
    assert before == left and after == diff["newText"] + left


def test_a_cancel_withdraws_the_question_and_a_late_yes_writes_nothing(
    asking: Asking, tmp_path: Path
) -> None:
    here, session, turn = asking(WRITE, {"text": "Gone on."})
    number = here.asked[0][1]["id"]
    here.send("session/cancel", {"sessionId": session})
    assert here.answer(turn, "session/prompt") == {"stopReason": "cancelled"}
    assert here.withdrawn == [number]
    (call,) = here.calls().values()
    assert call["status"] == "failed"
    here.reply(number, result={"outcome": {"outcome": "selected", "optionId": "proceed_once"}})
    assert here.prompt(session, "what else?") == "end_turn"
    assert here.text() == "Gone on." and not (tmp_path / "work" / "a.txt").exists()


def test_a_closed_session_ends_its_prompt_and_keeps_its_question(asking: Asking) -> None:
    here, session, turn = asking(WRITE, DONE)
    assert here.call("session/close", {"sessionId": session}) == {}
    assert here.answer(turn) == {"stopReason": "cancelled"} and here.withdrawn == [here.asked[0][1]["id"]]
    here.person = ALLOWS
    here.updates.clear()
    here.load(session)
    here.until(lambda: here.text() == "Done.")


def test_a_session_that_works_in_a_worktree_is_found_by_the_folder_of_the_editor(
    editor: Open, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    identity = ("-c", "user.name=a", "-c", "user.email=b")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", "-C", str(work), *identity, *words], check=True)
    here = editor(WRITE, DONE, person=ALLOWS)
    session = here.new()
    here.prompt(session, "/worktree one")
    assert "worktree-one" in here.text()
    here.prompt(session, "write a file")
    place = tmp_path / "work.worktrees/one"
    assert (place / "a.txt").exists() and not (work / "a.txt").exists()
    (call,) = here.calls().values()
    assert call["locations"][0]["path"] == str(place / "a.txt")
    here.call("session/close", {"sessionId": session})
    here.load(session)
    assert here.leave() == 0


def test_a_session_goes_on_on_another_machine(asking: Asking, tmp_path: Path, home: Path) -> None:
    here, session, _ = asking({"thought": "Hm.", "text": "I write it."} | WRITE, DONE)
    calls = here.calls()
    here.kill()
    (home / "interlock").rename(tmp_path / "state")
    work = (tmp_path / "work").rename(tmp_path / "elsewhere")
    there = Editor(work, "-m", f"script:{tmp_path / 'script.json'}", INTERLOCK_HOME=str(tmp_path / "state"))
    there.initialize()
    there.load(session)
    assert not there.asked, "the conversation is shown before the answer, and the question comes after it"
    assert there.text("user_message") == "write" and there.text() == "I write it."
    assert there.text("agent_thought") == "Hm." and there.calls().keys() == calls.keys()
    there.until(lambda: there.text().endswith("Done."))
    assert (work / "a.txt").read_text() == "one\n"
    (listed,) = there.call("session/list", {"cwd": str(work)})["sessions"]
    assert (listed["sessionId"], listed["title"]) == (session, "write")
    there.kill()


def test_a_session_is_resumed_without_its_conversation_and_forked_into_a_folder(
    editor: Open, tmp_path: Path
) -> None:
    here = editor(WRITE, DONE, {"text": "Gone on."})
    session, other = here.new(), tmp_path / "other"
    assert here.prompt(session, "write") == "end_turn"
    here.updates.clear()
    assert here.load(session, "session/resume")["modes"]["currentModeId"] == "default"
    assert {*here.kinds()} <= {"available_commands_update"}
    other.mkdir()
    forked = here.call("session/fork", {"sessionId": session, "cwd": str(other), "mcpServers": []})
    assert (other / "a.txt").read_text() == "one\n"
    assert here.prompt(forked["sessionId"], "go on") == "end_turn" and here.text() == "Gone on."
    (row,) = here.call("session/list", {"cwd": str(other)})["sessions"]
    assert row["sessionId"] == forked["sessionId"] != session
    here.call("session/close", {"sessionId": session})
    with pytest.raises(FailedError, match="No session"):
        here.prompt(session, "go on")


def test_what_was_chosen_for_the_next_prompt_outlives_the_editor(editor: Open) -> None:
    here = editor(DONE, {"expect": "Plan Mode", "text": "Planned."})
    session = here.new()
    option = {"sessionId": session, "configId": "mode", "value": "architect"}
    for prompt in ("", "plan it"):
        here.call("session/set_config_option", option)
        here.call("session/set_mode", {"sessionId": session, "modeId": "plan"})
        here.kill()
        here = editor()
        state = here.load(session)
        assert state["modes"]["currentModeId"] == "plan"
        assert next(o for o in state["configOptions"] if o["id"] == "mode")["currentValue"] == "architect"
        if prompt:
            assert here.prompt(session, prompt) == "end_turn"
    assert Client.for_this_user().list_sessions()[session].chosen == {}, "the run keeps it now"


def test_what_another_editor_leaves_midway_is_told(editor: Open, asking: Asking) -> None:
    here, session, turn = asking(WRITE, {"text": "Late.", "delay_s": 600})
    there = editor(person=ALLOWS)
    there.load(session)
    there.until(lambda: "completed" in [call["status"] for call in there.calls().values()])
    here.until(lambda: "drives this run" in here.text("agent_thought"))
    assert here.withdrawn == [here.asked[0][1]["id"]]
    there.kill()
    assert here.answer(turn)["stopReason"] == "end_turn"
    assert "stopped midway. /continue goes on" in here.text("agent_thought")


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


def test_what_is_typed_after_the_question_stays_and_the_model_hears_of_it(
    editor: Open, tmp_path: Path
) -> None:
    work, buffers = tmp_path / "work", {"a.txt": "one\n"}
    (work / "a.txt").write_text("one\n")

    def types_then_allows(params: Any) -> Any:
        buffers["a.txt"] = "typed\n"
        return ALLOWS(params)

    told = {"expect": r"(?s)changed since you last saw it, so nothing was written.*\+typed", **DONE}
    write = says("write_file", file_path="a.txt", content="two\n")
    here = editor(says("read_file", file_path="a.txt"), write, told, offers=FILES)
    offers_files(here, buffers, work)
    here.person = types_then_allows
    assert here.prompt(here.new(), "write") == "end_turn"
    diffs = [f["params"]["toolCall"]["content"][-1] for m, f in here.asked if "permission" in m]
    assert [(d["oldText"], d["newText"]) for d in diffs] == [("one\n", "two\n")]
    assert buffers["a.txt"] == "typed\n"


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
    (row,) = here.call("session/list", {})["sessions"]
    assert row["sessionId"] == session, "which shows the fork now"
    assert here.prompt(session, "/rewind") == "end_turn"
    title = [f["params"]["toolCall"]["title"] for _, f in here.asked][-2:]
    assert title == ["Go back to before which prompt?", "Change the files, and go back?"]
    assert here.prompt(session, "and now?") == "end_turn" and here.text().count("Second.") == 2
    assert here.text("user_message") == "", "nothing is shown twice"


def test_a_prompt_in_place_of_an_open_question_ends_its_call(
    editor: Open, asking: Asking, tmp_path: Path
) -> None:
    here, session, _ = asking(WRITE, {"text": "Gone on."})
    here.kill()
    there = editor(person=open_question)
    there.load(session)
    there.until(lambda: bool(there.asked))
    assert there.prompt(session, "something else") == "end_turn" and there.text() == "Gone on."
    (call,) = there.calls().values()
    assert call["status"] == "failed" and there.withdrawn == [there.asked[0][1]["id"]]
    assert not (tmp_path / "work" / "a.txt").exists()


def in_a_terminal(work: Path, run: str) -> None:
    assert Warm(["resume", run, "--approve", "all"], cwd=work, env={**os.environ}).wait(HANG_S) == 0


def on_the_page(work: Path, run: str) -> None:
    server = Warm(["serve", "--port", "0"], cwd=work, env={**os.environ}, stdout=subprocess.PIPE)
    assert server.stdout
    with server.stdout as said:
        address, _, token = said.readline().split()[-1].partition("/#token=")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=headers, timeout=HANG_S) as page:
        (request,) = page.get("/api/requests", params={"run": run}).json()
        decisions = [{"id": request["id"], "choice": "proceed_once"}]
        answer = page.post(f"/api/runs/{run}/decide", json={"decisions": decisions})
    server.kill()
    server.wait(HANG_S)
    assert answer.json() == {"decided": 1}


@pytest.mark.parametrize("decides", [in_a_terminal, on_the_page])
def test_a_decision_made_elsewhere_closes_the_question(
    asking: Asking, tmp_path: Path, decides: Callable[[Path, str], None]
) -> None:
    here, session, turn = asking(WRITE, DONE)
    decides(here.folder, session)
    assert here.answer(turn)["stopReason"] == "end_turn"
    assert here.withdrawn == [here.asked[0][1]["id"]] and here.text() == "Done."
    (call,) = here.calls().values()
    assert call["status"] == "completed" and (tmp_path / "work" / "a.txt").exists()


def test_todos_are_a_plan_and_options_are_told(editor: Open) -> None:
    todos = [{"description": "one", "status": "completed"}, {"description": "two", "status": "in_progress"}]
    here = editor(says("write_todos", todos=todos), DONE)
    made = here.call("session/new", {"cwd": str(here.folder), "mcpServers": []})
    session = made["sessionId"]
    assert made["modes"]["currentModeId"] == "default"
    assert {option["id"] for option in made["configOptions"]} >= {"model", "approval_mode", "mode"}
    here.call("session/set_mode", {"sessionId": session, "modeId": "plan"})
    assert here.updates[-2:][0]["currentModeId"] == "plan"
    with pytest.raises(FailedError, match="No approval mode 'fast'"):
        here.call("session/set_mode", {"sessionId": session, "modeId": "fast"})
    option = {"sessionId": session, "configId": "approval_mode", "value": "default"}
    now = here.call("session/set_config_option", option)["configOptions"]
    assert next(o for o in now if o["id"] == "approval_mode")["currentValue"] == "default"
    assert here.prompt(session, "plan it") == "end_turn"
    (plan,) = (u["entries"] for u in here.updates if u["sessionUpdate"] == "plan")
    assert [(e["content"], e["status"]) for e in plan] == [("one", "completed"), ("two", "in_progress")]
    assert "usage_update" in here.kinds()


def test_the_thought_level_is_an_option_where_the_model_has_one(editor: Open) -> None:
    there = editor(arguments=("-m", "flash"), GEMINI_API_KEY="no-key")

    def level(options: Any) -> Any:
        return next((o["currentValue"] for o in options if o.get("category") == "thought_level"), None)

    made = there.call("session/new", {"cwd": str(there.folder), "mcpServers": []})
    assert level(made["configOptions"]) == "auto"
    option = {"sessionId": made["sessionId"], "configId": "thinking", "value": "low"}
    assert level(there.call("session/set_config_option", option)["configOptions"]) == "low"
    with pytest.raises(FailedError, match="No thought level 'most'"):
        there.call("session/set_config_option", {**option, "value": "most"})
    here = editor(DONE)
    made = here.call("session/new", {"cwd": str(here.folder), "mcpServers": []})
    assert level(made["configOptions"]) is None
    with pytest.raises(FailedError, match="has no thought level"):
        here.call("session/set_config_option", {**option, "sessionId": made["sessionId"]})


def test_a_commands_output_is_a_terminal_where_the_client_draws_one(editor: Open) -> None:
    here = editor(
        says("run_shell_command", command="echo one; echo two; exit 3"),
        DONE,
        offers={"_meta": {"terminal_output": True}},
    )
    session = here.new()

    def terminal(meta: str) -> list[Any]:
        return [u["_meta"][meta] for u in here.updates if meta in u.get("_meta", {})]

    for show in (lambda: here.prompt(session, "run it"), lambda: here.load(session)):
        here.updates.clear()
        show()
        ((name, call),) = here.calls().items()
        assert call["content"] == [{"type": "terminal", "terminalId": name}] and call["status"] == "failed"
        assert [info["terminal_id"] for info in terminal("terminal_info")] == [name]
        assert "one\r\ntwo" in "".join(piece["data"] for piece in terminal("terminal_output"))
        assert terminal("terminal_exit") == [{"terminal_id": name, "exit_code": 3, "signal": None}]


def test_a_client_that_opens_terminals_is_offered_the_set_up_in_one(tmp_path: Path) -> None:
    here = Editor(tmp_path)
    for offers in ({"auth": {"terminal": True}}, {"_meta": {"terminal-auth": True}}):
        methods = here.initialize(**offers)["authMethods"]
        assert [(m["id"], m.get("args")) for m in methods] == [("terminal", ["--setup"]), ("setup", None)]
        assert methods[0]["_meta"]["terminal-auth"]["args"] == ["acp", "--setup"]
    assert [m["id"] for m in here.initialize()["authMethods"]] == ["setup"]
    with pytest.raises(FailedError, match="GEMINI_API_KEY") as raised:
        here.call("authenticate", {"methodId": "terminal"})
    assert raised.value.code == -32000
    here.kill()
    alone = Warm(["acp", "--setup"], cwd=tmp_path, env={**os.environ})
    assert alone.wait(HANG_S) == 2, "it asks only in a terminal"


def test_pictures_and_resources_reach_the_model(editor: Open, tmp_path: Path) -> None:
    (tmp_path / "work" / "linked.txt").write_text("and fig\n")
    here = editor({"expect": "(?s)and fig.*the word is plum|the word is plum.*and fig", "text": "Seen."})
    image = {"type": "image", "mimeType": "image/png", "data": PNG}
    note = {"type": "resource", "resource": {"uri": "file:///buffer.txt", "text": "the word is plum"}}
    blob = {"type": "resource", "resource": {"uri": "file:///x.png", "blob": PNG, "mimeType": "image/png"}}
    link = {"type": "resource_link", "name": "linked.txt", "uri": (here.folder / "linked.txt").as_uri()}
    session = here.new()
    assert here.prompt(session, "look", image, note, blob, link) == "end_turn" and here.text() == "Seen."
    client = Client.for_this_user()
    parts = [
        p for message in client.read_messages(session, client.masked_state(session)) for p in message.content
    ]
    assert [p.mime_type for p in parts if isinstance(p, DataPart)] == ["image/png"] * 2


def test_the_editors_mcp_server_is_used_under_the_rules(editor: Open, tmp_path: Path) -> None:
    odd = Path(__file__).parent.parent / "mcp_servers" / "odd.py"
    env = [{"name": "ODD_LOG", "value": str(tmp_path / "odd.log")}]
    server = {"name": "odd", "command": sys.executable, "args": ["-P", str(odd)], "env": env}
    here = editor(says("mcp_odd_note", text="hello"), DONE)
    assert here.prompt(here.new(mcpServers=[server]), "note it") == "end_turn"
    ((_, question),) = here.asked
    assert "odd" in question["params"]["toolCall"]["title"]
    assert "hello" in (tmp_path / "odd.log").read_text()


PORT = {"question": "Which port?", "type": "choice", "options": [{"label": "80"}, {"label": "81"}]}
NAME, TWO = [{"question": "Which name?"}], [{"question": "Which name?"}, PORT]


@pytest.mark.parametrize(
    ("questions", "filled", "heard"),
    [
        (NAME, {"answer": "plum"}, "plum"),
        (TWO, {"answer1": "plum", "answer2": "81"}, r"Which name\?\s+plum\s+Which port\?\s+81"),
    ],
)
def test_a_question_is_a_form_where_the_client_shows_forms(
    editor: Open, questions: Any, filled: Any, heard: str
) -> None:
    here = editor(
        says("ask_user", questions=questions),
        {"expect": heard, "text": "Thanks."},
        offers={"elicitation": {"form": {}}},
    )
    here.others["elicitation/create"] = lambda _: {"action": "accept", "content": filled}
    assert here.prompt(here.new(), "ask me") == "end_turn" and here.text() == "Thanks."
    ((_, asked),) = here.asked
    schema = asked["params"]["requestedSchema"]
    assert schema["required"] == [*filled]
    assert [field.get("description") for field in schema["properties"].values()][1:] == ["- 80\n- 81"] * (
        len(filled) - 1
    )


def test_a_question_is_answered_by_the_next_prompt_where_it_shows_none(editor: Open) -> None:
    replies = says("ask_user", questions=TWO), {"expect": "plum", "text": "Thanks."}
    here = editor(*replies, offers={"elicitation": {"url": {}}})
    session = here.new()
    assert here.prompt(session, "ask me") == "end_turn"
    assert here.text() == "Which name?\nWhich port?\n- 80\n- 81"
    assert here.prompt(session, "plum") == "end_turn" and here.text().endswith("Thanks.")
