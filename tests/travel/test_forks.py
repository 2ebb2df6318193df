"""A fork shares the past and has its files; rewind works in place; undo reverts a run's own changes."""

import json
from pathlib import Path

import pytest
from databases import rows_of
from folders import put
from scripted import call, says, tools
from travel.conftest import REPLIES, Desk, shell, write
from travel.trees import tree_of

from interlock.engine import resume_sync, run_sync
from interlock.engine.client import Client


def test_a_fork_has_the_files_of_then_and_goes_on_from_there(desk: Desk) -> None:
    (desk.work / "own").write_text("mine\n")
    run = desk.run().run
    put(desk.folder / "full" / "x", "")
    assert "isn't empty" in desk("fork", run, "--at", "1", "--workspace", str(desk.folder / "full")).err
    before, parent = tree_of(desk.work), rows_of(desk.home, run)
    fork = desk("fork", run, "--at", "3", "--json").json
    folder = Path(fork["workspace"])
    assert folder.parent == desk.folder
    then = tree_of(folder)
    assert set(then) == {"a.txt", "own", "d", "d/b", "d/l"}
    assert then["d/b"] == (0o100600, b"2\n")
    outcome = resume_sync(fork["run"], options=desk.options(REPLIES, workspace=None))
    assert (outcome.status, outcome.output["response"]) == ("done", "done")
    assert tree_of(folder) == before
    assert (tree_of(desk.work), rows_of(desk.home, run)) == (before, parent)
    assert desk("show", fork["run"], "--verify").code == 0
    assert desk("doctor", "--store").code == 0
    path = [s["node"] for s in desk("history", fork["run"], "--json").json["steps"] if s["depth"] == 0]
    assert path == [s["node"] for s in desk("history", run, "--json").json["steps"] if s["depth"] == 0]


def test_a_fork_of_a_waiting_run_waits_for_the_same_and_each_is_decided_by_itself(desk: Desk) -> None:
    replies = [write("a", "x"), {"text": "ok"}]
    run = desk.run(replies, approval_mode="default").run
    step = desk("history", run, "--json").json["checkpoints"][-1]["step"]
    fork = desk("fork", run, "--at", str(step), "--json").json
    waiting = {a["run"]: a["id"] for a in desk("approvals", "--json").json}
    assert waiting.keys() == {run, fork["run"]}
    assert desk("resume", fork["run"], "--approve", "all").out == "ok\n"
    assert (Path(fork["workspace"]) / "a").read_text() == "x"
    assert not (desk.work / "a").exists()
    assert [a["run"] for a in desk("approvals", "--json").json] == [run]


def test_rewind_shows_what_changes_and_asks_where_nobody_can_be_asked(desk: Desk) -> None:
    (desk.work / "own").write_text("mine\n")
    run = desk.run().run
    tree = tree_of(desk.work)
    nowhere = desk("rewind", run, "--at", "99")
    assert nowhere.err.startswith("interlock: Run") and "has no step 99: it has -1 to" in nowhere.err
    refused = desk("rewind", run, "--at", "3")
    assert refused.code == 2 and "--yes" in refused.err
    assert {"D c", "A a.txt", "A d/b", "M own"} <= set(refused.err.splitlines())
    assert tree_of(desk.work) == tree
    rewound = desk("rewind", run, "--at", "3", "--yes", "--json").json
    assert Path(rewound["workspace"]) == desk.work
    assert (desk.work / "own").read_text() == "mine\n"
    assert set(tree_of(desk.work)) == {"a.txt", "own", "d", "d/b", "d/l"}
    again = desk("rewind", rewound["run"], "--at", "2", "--yes", "--json").json
    assert set(tree_of(desk.work)) == {"own"}, "a fork's inherited past has its files, too"
    assert desk("rewind", again["run"], "--at", "2", "--yes").code == 0


def test_rewind_overwrites_nothing_that_no_snapshot_has(desk: Desk) -> None:
    run = desk.run().run
    (desk.work / ".gitignore").write_text("a.txt\n")
    (desk.work / ".git").mkdir()
    (desk.work / "a.txt").write_text("mine, and ignored")
    refused = desk("rewind", run, "--at", "3", "--yes")
    assert refused.code == 2 and "'a.txt'" in refused.err
    assert (desk.work / "a.txt").read_text() == "mine, and ignored"


def test_undo_takes_back_all_that_a_run_did_and_nothing_else(desk: Desk) -> None:
    (desk.work / "own").write_text("mine\n")
    before = tree_of(desk.work)
    run = desk.run().run
    made = (desk.work / "c").read_text()
    (desk.work / "later").write_text("by a person")
    (desk.work / "c").write_text("changed by a person")
    changed = tree_of(desk.work)
    refused = desk("undo", run)
    assert refused.code == 2 and "'c'" in refused.err and tree_of(desk.work) == changed
    (desk.work / "c").write_text(made)
    done = desk("undo", run)
    assert done.code == 0, done.err
    assert tree_of(desk.work) == {**before, "later": changed["later"]}
    assert "Nothing to undo" in desk("undo", run).err


def test_a_fork_here_and_now_leaves_the_files_alone(desk: Desk) -> None:
    (desk.work / "own").write_text("mine\n")
    run = desk.run([write("a", "x"), write("own", "theirs\n"), {"text": "ok"}]).run
    desk("undo", run, "--call", "1")
    (desk.work / "own").write_text("by hand\n")
    before = tree_of(desk.work)
    Client.for_this_user().fork_run(run, in_place=True)
    assert tree_of(desk.work) == before


def test_one_call_is_shown_and_taken_back_by_its_number_or_id(desk: Desk) -> None:
    replies = [
        {"tool_calls": [call("write_file", file_path=n, content=n) for n in ("a", "b")]},
        {"text": "done"},
    ]
    run = desk.run(replies).run
    shown = desk("diff", run, "--files", "--call", "2").out
    assert "+b" in shown and "a/a" not in shown
    assert desk("undo", run, "--call", "0.0").code == 0
    assert set(tree_of(desk.work)) == {"b"}
    assert "no call '9'" in desk("undo", run, "--call", "9").err


def test_diff_files_shows_what_a_run_did_without_what_others_did(desk: Desk) -> None:
    replies = [
        shell("echo new > a"),
        says("ask_user", questions=[{"question": "Go on?"}]),
        shell("echo more >> a"),
        {"text": "done"},
    ]
    run = desk.run(replies)
    assert run.status == "waiting"
    (desk.work / "theirs").write_text("x")
    assert desk("resume", run.run, "--answer", f"{run.pending[0]['id']}=yes").out == "done\n"
    shown = desk("diff", run.run, "--files").out
    assert "+new\n+more" in shown and "theirs" not in shown
    assert json.loads(desk("diff", run.run, "--files", "--json").out)["diff"] == shown


def test_a_turn_that_only_reads_makes_no_snapshot_and_starts_no_git(desk: Desk) -> None:
    (desk.work / "a").write_text("x")
    calls = [call("read_file", file_path="a")]
    for line in ("cat a", "ls -l 2>/dev/null | head -3", "grep x a && wc -l < a"):
        calls.append(call("run_shell_command", command=line))
    desk.run([tools(*calls), {"text": "done"}])
    assert not (desk.home / "snapshots").exists()


def test_what_a_person_was_asked_about_counts_as_a_change(desk: Desk, tmp_path: Path) -> None:
    (desk.work / "a").write_text("x")
    (tmp_path / "ask.toml").write_text(
        '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "cat"\ndecision = "ask"\npriority = 500\n'
    )
    rules = {"approval_mode": "default", "policy_files": (tmp_path / "ask.toml",)}
    run = desk.run([shell("cat a"), {"text": "done"}], **rules)
    assert run.status == "waiting"
    assert desk("resume", run.run, "--approve", "all").out == "done\n"
    assert (desk.home / "snapshots").exists()


@pytest.mark.parametrize(
    "line",
    [
        "cat a > b",
        "ls $(touch b)",
        "find a -fprint b",
        *(
            pytest.param(line, marks=pytest.mark.sweep)
            for line in ("ls; touch b", "cat a | tee b", "sh -c 'ls > b'", "ls & echo x >> b")
        ),
    ],
)
def test_a_line_that_may_write_has_its_snapshot(desk: Desk, line: str) -> None:
    (desk.work / "a").write_text("x")
    before = tree_of(desk.work)
    run = desk.run([shell(line), {"text": "done"}])
    assert (desk.work / "b").exists()
    assert desk("undo", run.run).code == 0
    assert tree_of(desk.work) == before


def test_a_run_goes_on_without_git_and_says_so_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    for name in ("sh", "bash"):
        put(desk.folder / "bin" / name).unlink()
        (desk.folder / "bin" / name).symlink_to(f"/bin/{name}")
    with monkeypatch.context() as without:
        without.setenv("PATH", str(desk.folder / "bin"))
        outcome = run_sync(
            "main", {"prompt": "Do it."}, options=desk.options(REPLIES), renderers=[told.append]
        )
    assert outcome.status == "done"
    assert len([event for event in told if "git isn't installed" in getattr(event, "message", "")]) == 1
    assert "No snapshots were taken around" in desk("undo", outcome.run).err


def test_the_last_run_of_a_folder_takes_its_snapshots_along(desk: Desk) -> None:
    run, other = desk.run().run, desk.run([{"text": "hello"}]).run
    fork = desk("fork", run, "--at", "3", "--json").json["run"]
    for name, left in ((run, 1), (other, 1), (fork, 0)):
        assert desk("runs", "rm", name).code == 0
        assert len(list((desk.home / "snapshots").iterdir())) == left


def test_files_of_included_directories_are_named_as_not_kept(desk: Desk) -> None:
    other = desk.folder / "other"
    other.mkdir()
    calls = [call("write_file", file_path=str(f), content="x") for f in ("a", other / "b")]
    replies = [tools(*calls), {"text": "done"}]
    run = desk.run(replies, include_directories=(other,)).run
    assert (other / "b").exists()
    refused = desk("undo", run)
    assert refused.code == 2 and f"'{other}/b' lies in an included directory" in refused.err
    assert (desk.work / "a").exists(), "all of it or nothing"
    done = desk("undo", run, "--call", "1")
    assert (done.code, (desk.work / "a").exists()) == (0, False), done.err
    assert f"they are left as they are: '{other}'" in done.err
    assert "left as they are" in desk("diff", run, "--files").err
    assert "left as they are" in desk("fork", run, "--at", "2").err
    assert (other / "b").read_text() == "x"
