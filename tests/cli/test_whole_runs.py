"""Complete runs from the command line: parked, decided elsewhere, resumed, inspected, deleted."""

import json
import os
import shutil
from pathlib import Path

import pytest
from commands import Run
from databases import changed, rows_of
from folders import put, tree
from scripted import tools

from interlock.cli.session.input_line import InputHistory, Pastes
from interlock.engine.store import select_rows
from interlock.services.files.blobs import inflate_if_deflated
from interlock.web.drive_process import _LiveEventsWriter, live_events_path

SCRIPT = """
- text: I'll write it.
  tool_calls:
    - {name: write_file, args: {file_path: a.txt, content: "one\\n"}}
    - {name: write_file, args: {file_path: b.txt, content: "two\\n"}}
- text: Both are done.
- text: And more.
"""


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    return run


def _model(tmp_path: Path) -> tuple[str, str]:
    return ("-m", f"script:{tmp_path / 'script.yaml'}")


def test_a_run_parks_is_decided_one_by_one_and_goes_on(run: Run, tmp_path: Path) -> None:
    parked = run(*_model(tmp_path), "-p", "write both")
    assert (parked.code, parked.out) == (75, "")
    assert not Path("a.txt").exists()
    (approve,) = [
        line.partition("interlock ")[2].split() for line in parked.err.splitlines() if "--approve all" in line
    ]
    name = approve[1]
    assert f"interlock resume {name} --approve 1\n" in parked.err
    assert "has made no calls yet. To see what waits: interlock approvals" in run("show", name, "--calls").out
    covers = "`write_file` on a.txt"
    assert f"  With --always: yes, and don't ask again in this run for {covers}\n" in parked.err
    later = f"yes, and don't ask again in this or later runs for {covers}, in this folder"
    assert f"  With --always-save: {later}\n" in parked.err
    assert [r["id"] for r in json.loads(run("approvals", "--json").out)] == [f"{name}-1.1", f"{name}-1.2"]
    assert json.loads(run("runs", "--json").out)[0]["status"] == "waiting"

    half = run("resume", name, "--approve", "1")
    assert half.code == 75
    assert f"{name}-1.2" in half.err
    assert "Your decision is kept." in half.err
    assert f"interlock resume {name} --approve 2\n" in half.err, "what is decided keeps its number"
    done = run("resume", "latest", "--reject", "2", "--reason", "not b")
    assert (done.code, done.out) == (0, "Both are done.\n")
    assert "refused 'write_file'" in done.err
    assert "✓ Write a.txt · +1" in done.err
    assert Path("a.txt").read_text() == "one\n"
    assert not Path("b.txt").exists()
    assert run("approvals").err == "No open requests in any run.\n"

    shown = run("show", "latest").out
    assert "✓ write_file a.txt" in shown
    assert "not b" in shown
    assert "unchanged" in run("show", "latest", "--verify").out
    assert run("show", "latest", "--verify", "--json").json["problems"] == []
    assert "open_prompt" in run("history", "latest").out
    assert all(len(line) <= 120 for line in run("history", "latest", "--all").out.splitlines())
    past = run("history", "latest", "--json").json
    numbered = [row["step"] for row in past["steps"] if row["saved"]]
    assert numbered == [point["step"] for point in past["checkpoints"] if point["step"] > 0]
    assert len(past["steps"]) > len(numbered), "nodes on the way to a checkpoint are shown, too"
    assert "+ assistant: I'll write it. [calls write_file, write_file]" in run("diff", "latest", "1", "2").out
    assert "has no step 99" in run("show", "latest", "--at", "99").err
    state = json.loads(run("show", "latest", "--at", "2", "--json").out)
    assert [m["role"] for m in state["messages"]] == ["system", "user", "user", "assistant"]
    assert "open_prompt" in run("diagram", "--run", "latest").out

    more = run("-c", "-p", "go on")
    assert (more.code, more.out) == (0, "And more.\n"), more.err


def test_a_batch_answers_every_line_in_order_and_a_bad_one_makes_42(run: Run, tmp_path: Path) -> None:
    good = json.dumps({"calls": [{"name": "list_directory", "args": {"dir_path": "."}}]})
    parks = json.dumps({"calls": [{"name": "write_file", "args": {"file_path": "a", "content": "b"}}]})
    Path("in.jsonl").write_text(f'{good}\n{parks}\n{{"calls": []}}\nnot json\n{good}\n')
    done = run("run", "tools", "--batch", "in.jsonl", *_model(tmp_path))
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 42, done.err
    assert [next(iter(line)) for line in lines] == ["responses", "session_id", "error", "error", "responses"]
    assert lines[1]["status"] == "waiting"
    assert "give either calls or text" in lines[2]["error"]["message"]
    assert "line 1, column 1" in lines[3]["error"]["message"]
    assert lines[0]["responses"][0]["status"] == "success"


@pytest.mark.sqlite
def test_a_run_is_deleted_with_all_that_it_recorded(run: Run, tmp_path: Path, home: Path) -> None:
    run(*_model(tmp_path), "-y", "-p", "write both")
    run(*_model(tmp_path), "-y", "-p", "write both")
    first, second = (r["run"] for r in json.loads(run("runs", "--json").out))
    assert run("runs", "rm", second).code == 0
    assert [r["run"] for r in json.loads(run("runs", "--json").out)] == [first]
    assert "unchanged" in run("show", first, "--verify").out
    assert rows_of(home / "interlock", second) == []
    assert select_rows(home / "interlock", "select 1 from lease where run = $1", second) == []
    assert list((home / "interlock" / "outputs").iterdir()), "the first run's long records are still there"
    assert Path("a.txt").exists()
    run("runs", "rm", "latest")
    assert not list((home / "interlock" / "outputs").glob("*.json"))


def test_damage_is_found_and_a_whole_store_is_not_taken_for_damaged(
    run: Run, tmp_path: Path, home: Path
) -> None:
    run(*_model(tmp_path), "-y", "-p", "write both")
    for extra in ((), ("--store",)):
        told = run("doctor", *extra).out
        assert "ok      store" in told
        assert "damaged" not in told and "problem" not in told
    ((record, body),) = select_rows(
        home / "interlock", "select id, body from chain where file is null limit 1"
    )
    changed(
        home / "interlock",
        "update chain set body = $1 where id = $2",
        inflate_if_deflated(body).replace(b'"', b"'", 1),
        record,
    )
    for command in (("show", "latest", "--verify"), ("doctor", "--store")):
        found = run(*command)
        assert (found.code, "was changed" in found.out) == (1, True), command


def test_diagrams_are_written_and_checked(run: Run) -> None:
    assert run("diagrams", "--check", "drawn").code == 1
    assert "drawn/main.mmd" in run("diagrams", "--write", "drawn").out
    assert run("diagrams", "--check", "drawn").code == 0
    shutil.copy("drawn/main.mmd", "drawn/orphan.mmd")
    assert "orphan" in run("diagrams", "--check", "drawn").err


def test_commands_that_explain(run: Run) -> None:
    assert '"prompt"' in run("schema", "main", "--input").out
    assert "parameters" in run("tools", "--json").json[0]
    assert run("diagram", "main", "--format", "dot").out.startswith("digraph")


@pytest.mark.parametrize("nth", ["1", "2"])
def test_a_cancelled_call_cancels_its_batch_at_once(run: Run, tmp_path: Path, nth: str) -> None:
    assert run(*_model(tmp_path), "-p", "write both").code == 75
    cancelled = run("resume", "latest", "--cancel", nth)
    assert (cancelled.code, cancelled.out) == (130, "")
    assert "No open requests" in run("approvals").err
    calls = run("show", "latest", "--calls", "--json").json["calls"]
    assert [call["status"] for call in calls] == ["cancelled", "cancelled"]
    assert [*Path().iterdir()] == []


@pytest.mark.parametrize(("name", "move"), [("run", "park"), ("tool-call", "ask"), ("approval-mode", "read")])
def test_statecharts_are_drawn_too(run: Run, name: str, move: str) -> None:
    assert f'|"{move}"|' in run("diagram", name).out
    assert "no graphs inside it" in run("diagram", name, "--depth", "2").err


def test_a_resumed_run_names_what_runs_though_an_earlier_process_told_it(run: Run, tmp_path: Path) -> None:
    """`echo one` was allowed, so nobody was asked about it; its output comes in another process."""
    commands = ("echo one", "touch x")
    calls = [{"name": "run_shell_command", "args": {"command": c}} for c in commands]
    put(tmp_path / "script.yaml", [tools(*calls), {"text": "Done."}])
    allowed = ("--allowed-tools", "run_shell_command(echo)")
    assert run(*_model(tmp_path), *allowed, "-p", "go").code == 75
    resumed = run("resume", "latest", "--approve", "all")
    assert resumed.code == 0
    for command in commands:
        assert f"✓ {command}" in resumed.err


def test_bytes_of_a_prompt_that_are_not_utf_8_are_replaced(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "script.yaml", [{"text": "Done.", "expect": r"caf\\xe9 au lait"}])
    done = run(*_model(tmp_path), "-p", os.fsdecode(b"caf\xe9 au lait"))
    assert (done.code, done.out) == (0, "Done.\n")


def test_what_is_named_in_bytes_that_are_not_utf_8_is_not_there(run: Run, tmp_path: Path) -> None:
    named = os.fsdecode(b"caf\xe9")
    (tmp_path / named).mkdir()
    run(*_model(tmp_path), "-p", "x")
    for command in (("show", named), ("resume", named), ("-r", named, "-p", "x"), ("runs", "rm", named)):
        assert "No run" in run(*command).err, command
    refused = run(*_model(tmp_path), "-C", str(tmp_path / named), "-p", "x")
    assert (refused.code, "its path isn't UTF-8" in refused.err) == (2, True), refused
    run("memory", "add", named)
    assert "- caf\\xe9" in Path("GEMINI.md").read_text()


@pytest.mark.sqlite
def test_what_is_kept_is_its_owners_alone_from_the_first_moment(run: Run, tmp_path: Path, home: Path) -> None:
    state = home / "interlock"

    def others_may() -> list[Path]:
        return [p for p in (state, *state.rglob("*")) if p.lstat().st_mode & 0o077]

    script = tmp_path / "script.json"
    write = {"name": "write_file", "args": {"file_path": "plan.md", "content": "# Plan"}}
    put(script, [tools(write), {"text": "Done."}])
    before = os.umask(0)
    try:
        InputHistory(state, tmp_path, Pastes(), str).store_string("what a session is told first")
        assert others_may() == []
        for mode in ("auto_edit", "plan"):
            assert run("-m", f"script:{script}", "--approval-mode", mode, "-p", "go").code == 0
        run("run", "search", "three")
        run("fork", "latest", "--at", "1")
        _LiveEventsWriter(live_events_path(state, "r"))._file.close()
    finally:
        os.umask(before)
    made = {path.name for path in state.iterdir()}
    kept = {"interlock.db", "audit", "input", "outputs", "snapshots", "index", "plans", "live"}
    assert made == kept and others_may() == []
    for path in (state, *state.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055)
    assert "others could read interlock.db" in run("doctor").out and others_may() == []
    (state / "theirs").mkdir(0o755)
    state.chmod(0o755)
    assert f"Close it with: chmod 700 {state}" in run("doctor").out, (
        "what may be no folder of ours is left alone"
    )


@pytest.mark.parametrize("decision", [("--approve", "all"), ("--reject", "1"), ()])
def test_a_batch_with_a_call_without_arguments_is_decided_and_goes_on(
    run: Run, tmp_path: Path, decision: tuple[str, ...]
) -> None:
    write = {"name": "write_file", "args": {"file_path": "a.txt", "content": "one\n"}}
    calls = [{"name": "list_directory"}, {"name": "list_directory", "args": {}}, write]
    put(tmp_path / "script.json", [tools(*calls), {"text": "Done."}])
    assert run("-m", f"script:{tmp_path / 'script.json'}", "-p", "look and write").code == 75
    codes = {("--approve", "all"): 0, ("--reject", "1"): 56, (): 75}
    done = run("resume", "latest", *decision)
    assert (done.code, "bug" in done.err) == (codes[decision], False), done.err


def test_a_line_of_a_batch_with_a_bad_workspace_or_model_is_an_error_of_its_own(
    run: Run, tmp_path: Path
) -> None:
    tree(tmp_path, {"broken/.gemini/settings.json": "{", "script.json": [{"text": "Fine."}]})
    own = [
        {"workspace": str(tmp_path / "nowhere")},
        {"workspace": str(tmp_path / "script.json")},
        {"workspace": str(tmp_path / "broken")},
        {"workspace": "a\0b"},
        {"workspace": "a" * 5000},
        {"workspace": "~nobody-here/x"},
        {"model": "nosuch"},
        {"model": f"script:{tmp_path / 'none.json'}"},
        {"model": "gemini-2.5-pro"},  # no key
        {"limits": {"max_budget_usd": 1}},  # no price
        {},
    ]
    Path("in.jsonl").write_text("".join(json.dumps({"prompt": "go", **line}) + "\n" for line in own))
    done = run("run", "main", "--batch", "in.jsonl", "-m", f"script:{tmp_path / 'script.json'}")
    lines = [json.loads(line) for line in done.out.splitlines()]
    kinds = ["usage", "usage", "Fine.", *["usage"] * 5, "credentials", "input", "Fine."]
    assert (done.code, len(lines)) == (42, len(own)), done.err
    assert [line.get("response") or line["error"]["type"] for line in lines] == kinds


@pytest.mark.parametrize("shape", ["json", "stream-json"])
def test_a_run_that_is_stopped_says_so_to_programs(run: Run, tmp_path: Path, shape: str) -> None:
    put(tmp_path / "script.json", [{"text": "Late.", "delay_s": 60}])
    model = ("-m", f"script:{tmp_path / 'script.json'}")
    done = run("-p", "go", *model, "--timeout", "250ms", "-o", shape)
    result = done.events[-1] if shape == "stream-json" else json.loads(done.out)
    error = result["error"]
    assert (done.code, error["type"], error["code"]) == (124, "timeout", 124)
    assert "Go on with: interlock resume " in error["message"]


def test_latest_is_the_newest_run_of_this_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = json.loads(run(*_model(tmp_path), "-p", "write both", "-o", "json").out)["session_id"]
    other = tmp_path / "other"
    other.mkdir()
    second = json.loads(run(*_model(tmp_path), "-C", str(other), "-p", "there", "-o", "json").out)[
        "session_id"
    ]
    assert first in run("show", "latest").out
    assert second in run("resume", "latest", "-C", str(other)).err
    assert first in run("-c", "--yolo").err
    assert not (other / "a.txt").exists()
    third = tmp_path / "third"
    third.mkdir()
    monkeypatch.chdir(third)
    for command in (("-c",), ("-r", "latest"), ("resume", "latest"), ("runs", "rm", "latest")):
        refused = run(*command)
        assert (refused.code, f"No run in {str(third)!r}" in refused.err) == (2, True), command


def test_a_command_that_fails_is_marked_and_one_that_a_person_changed_is_named(
    run: Run, tmp_path: Path
) -> None:
    """In live output, in `show`, and for programs."""
    calls = [{"name": "run_shell_command", "args": {"command": c}} for c in ("touch x", "touch y")]
    put(tmp_path / "script.yaml", [tools(*calls), {"text": "Done."}])
    assert run(*_model(tmp_path), "-p", "go").code == 75
    done = run(
        "resume", "latest", "--edit", '1={"command": "echo no; false"}', "--edit", '2={"command": "kill $$"}'
    )
    assert "● echo no; false\n  │ no\n" in done.err
    assert "✗ echo no; false · exit 1" in done.err
    assert "✗ kill $$ · SIGTERM" in done.err
    assert "touch" not in done.err
    shown = run("show", "latest").out
    assert "✗ run_shell_command echo no; false · exit 1" in shown
    assert "✗ run_shell_command kill $$ · SIGTERM" in shown
    assert "run_shell_command · failed · exit 1" in run("show", "latest", "--calls").out
    assert [call["failed"] for call in run("show", "latest", "--json").json["calls"]] == [True, True]
    whole = run("show", "latest", "--call", "1").out
    assert "run_shell_command · failed · exit 1" in whole
    assert "\nOutput:\nno\n" in whole
    assert "SIGTERM" not in whole
    assert run("show", "latest", "--call", "1", "--json").json["result"]["status"] == "success"
    assert "has no call '7'" in run("show", "latest", "--call", "7").err
    put(tmp_path / "script.yaml", [tools(*calls[:1]), {"text": "Done."}])
    assert run(*_model(tmp_path), "-p", "go").code == 75
    told = run("resume", "latest", "--edit", '1={"command": "exit 3"}', "-o", "stream-json").events
    (started,) = [line for line in told if line["type"] == "tool_start"]
    (ended,) = [line for line in told if line["type"] == "tool_result"]
    assert started["parameters"] == {"command": "exit 3"}
    assert (ended["status"], ended["summary"], ended["exit"]) == ("success", "exit 3", "exit 3")


def test_debug_shows_where_a_bug_inside_a_run_came_from(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError("somewhere deep")

    monkeypatch.setattr("interlock.services.models.chat.ChatModels.context_window", broken)
    plain, told = (run(*_model(tmp_path), *flags, "-p", "go") for flags in ((), ("-d",)))
    assert (plain.code, told.code) == (1, 1)
    assert "ZeroDivisionError: somewhere deep" in plain.err
    assert ("Traceback" in plain.err, "Traceback" in told.err, "in broken" in told.err) == (False, True, True)


def test_the_log_of_a_run_that_failed_ends_with_the_reason(run: Run) -> None:
    put(Path("s.json"), [{"error": {"status": 400}}])
    failed = run("-p", "go", "-m", "script:s.json")
    told = run("logs", "latest")
    assert (told.code, told.out) == (failed.code, "> go\n") and failed.code
    reason = run("runs", "--json").json[0]["error"]["message"]
    assert told.err.endswith(f" is failed: {reason}\n")


def test_continue_means_the_conversation_and_not_a_search_made_since(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "talk.json", [{"text": "One."}, {"text": "Two."}, {"text": "Three."}])
    model = ("-m", f"script:{tmp_path / 'talk.json'}")
    assert run("-p", "hello", *model).out == "One.\n"
    assert run("run", "search", "anything").code == 0
    assert run("-c", "-p", "go on", *model).out == "Two.\n"
    edit = {"file_path": "new.txt", "old_string": "", "new_string": "x"}
    assert run("run", "edit", "--input", json.dumps(edit)).code == 75
    assert run("-c").code == 75  # without a prompt, what waits counts, too
    assert run("-c", "-p", "go on", *model).out == "Three.\n"


@pytest.mark.parametrize("anew", [False, True])
def test_a_start_in_a_deleted_folder_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    gone, model = tmp_path / "gone", _model(tmp_path)
    put(tmp_path / "script.yaml", [{"text": "Done."}])
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone))
    gone.rmdir()
    if anew:
        gone.mkdir()
    hint = f"was deleted and made anew. Enter it again: cd {gone}" if anew else "was deleted. Enter one that"
    try:
        assert run(*model, "-C", str(tmp_path / "work"), "-p", "x").code == 0
        for command in (
            (*model, "-p", "x"),
            ("doctor",),
            ("show", "latest"),
            (*model, "-C", "..", "-p", "x"),
        ):
            done = run(*command)
            assert (done.code, hint in done.err) == (2, True), (command, done)
    finally:
        monkeypatch.chdir(tmp_path)
