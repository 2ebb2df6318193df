"""What a person takes back is known to the conversation: the model hears it, `show`, `export` and `-c` show it."""

import os
import re
from typing import Any

import pytest
from scripted import call, tools
from travel.conftest import Desk, shell, write

from interlock.engine import resume_sync
from interlock.engine.client import Client
from interlock.engine.client.record import read_conversation_events
from interlock.engine.store.workspaces import list_undo_notes
from interlock.services.files.ignore import find_generated_paths
from interlock.state.events import Undone

BUILD = (
    "mkdir -p pkg/__pycache__ build; echo 1 > pkg/__pycache__/m.pyc; echo 2 > build/out; echo 3 > notes; "
    "chmod 555 build"
)
REPLIES: list[dict[str, Any]] = [write("m.py", "x = 1\n"), shell(BUILD), {"text": "done"}]
TOLD = r"(?s)took back changes.*The user undid run_shell_command mkdir.*D notes \(D: removed\)"


@pytest.fixture
def worked(desk: Desk) -> str:
    return desk.run(REPLIES).run


def test_the_model_hears_once_of_what_was_undone_and_everything_shows_it(desk: Desk, worked: str) -> None:
    assert desk("undo", worked, "--call", "2").out == "D notes\n"
    assert not (desk.work / "build").exists()
    assert desk("show", worked).out.count("The user undid run_shell_command mkdir") == 1
    replies = [*REPLIES, {"expect": TOLD, "text": "I see."}, {"text": "Again."}]
    for prompt, times in (("go on", 1), ("and on", 1)):
        outcome = resume_sync(worked, prompt=prompt, options=desk.options(replies, approval_mode=None))
        assert outcome.status == "done", outcome.error
        told = [event for event in read_conversation_events(desk.home, worked) if isinstance(event, Undone)]
        assert [event.content.count("The user undid") for event in told] == [times]
    assert "The user undid run_shell_command mkdir" in desk("export", worked, "--format", "md").out
    assert "No difference" in desk("replay", worked).out


def test_an_editors_state_comes_after_it(desk: Desk, worked: str) -> None:
    (file := desk.folder / "ide.json").write_text('{"openFiles": [{"path": "/w/a.py", "timestamp": 1}]}')
    desk("undo", worked)
    options = desk.options([*REPLIES, {"text": "ok"}], ide_context=file, approval_mode=None)
    resume_sync(worked, prompt="go on", options=options)
    nodes = [step.node for step in Client.for_this_user().steps(worked) if step.workflow == "turn"]
    place = nodes.index("ide_context")
    assert nodes[place - 1 : place + 2] == ["mask_tool_outputs", "ide_context", "check_context"]


def test_a_batch_that_waited_meanwhile_hears_of_it_too(desk: Desk) -> None:
    replies = [
        write("m.py", "x = 1\n"),
        shell("/bin/date"),
        {"expect": "The user undid the changes of this run: D m.py", "text": "ok"},
    ]
    first = desk.run(replies, approval_mode="auto_edit")
    assert first.status == "waiting"
    assert desk("undo", first.run).out == "D m.py\n"
    assert desk("resume", first.run).code == 75
    assert desk("resume", first.run, "--approve", "all").code == 0


def test_both_runs_know_of_a_rewind(desk: Desk, worked: str) -> None:
    desk("rewind", worked, "--at", "1", "--yes")
    (fork,) = [row.run for row in Client.for_this_user().runs() if row.parent == worked]
    (here,), (there,) = list_undo_notes(desk.home, fork), list_undo_notes(desk.home, worked)
    assert here.text.startswith(f"The user went back from a later step of run {worked} to step 1: D m.py")
    assert there.text.startswith(f"The user went back to step 1, in run {fork}: D m.py")


def test_the_last_change_isnt_one_of_generated_files_which_no_list_names(desk: Desk) -> None:
    run = desk.run(
        [write("m.py", "x = 1\n"), shell("mkdir __pycache__; echo > __pycache__/m.pyc"), {"text": "."}]
    ).run
    assert Client.for_this_user().find_last_undoable_call_with_number(run)[1].tool == "write_file"
    shown = desk("diff", run, "--files").out
    assert "m.pyc b/" not in shown and "1 generated file not shown: __pycache__/m.pyc" in shown
    (desk.work / "__pycache__/m.pyc").write_text("changed since")
    assert desk("undo", run).out == "D m.py\n"


@pytest.mark.parametrize(
    ("path", "beside", "before", "written", "made"),
    [
        ("a/__pycache__/m.pyc", (), (), (), True),
        ("m.o", (), (), (), True),
        ("x.egg-info/PKG-INFO", (), (), (), True),
        ("dist/x.whl", (), (), (), True),
        ("dist/x.js", (), ("dist/y.js",), (), False),
        ("dist/x.js", (), (), ("dist/x.js",), False),
        ("target/x", ("Cargo.toml",), ("target/y",), (), True),
        (".cache/x", (".cache/CACHEDIR.TAG",), (), (), True),
        ("src/m.py", (), (), (), False),
    ],
)
def test_generated_is_what_caches_and_builds_made(
    path: str, beside: tuple[str, ...], before: tuple[str, ...], written: tuple[str, ...], made: bool
) -> None:
    assert (path in find_generated_paths([path, *beside, *before], before, written)) is made


def test_a_file_whose_name_is_not_utf8_is_edited_deleted_and_brought_back(desk: Desk) -> None:
    odd = desk.work / os.fsdecode(b"d\xe9/caf\xe9.txt")
    odd.parent.mkdir()
    odd.write_text("precious\n")
    name = r"d\xe9/caf\xe9.txt"
    edit = call("replace", file_path=name, old_string="precious", new_string="new")
    replies = [tools(edit), shell(r"rm $'d\xe9/caf\xe9.txt'"), {"text": "done"}]
    worked = desk.run(replies).run
    assert not odd.exists()
    for shown in (desk("diff", worked, "--files").out, desk("show", worked, "--calls").out):
        assert name in shown
    assert desk("undo", worked, "--call", "2").out == f"A {name}\n"
    assert odd.read_text() == "new\n"
    assert desk("undo", worked, "--call", "1", "--json").json["changed"] == [{"path": name, "change": "M"}]
    assert odd.read_text() == "precious\n"
    heard = [*replies, {"expect": rf"(?s)A {re.escape(name)}.*M {re.escape(name)}", "text": "I see."}]
    outcome = resume_sync(worked, prompt="go on", options=desk.options(heard, approval_mode=None))
    assert outcome.status == "done", outcome.error
    assert "No difference" in desk("replay", worked).out
    assert desk("audit", "verify").code == 0
