"""Subtasks: linked runs on a stack, which park and resume like any other; the parent gets their results."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Replies, Stage, approve, call
from scripted import tools

from interlock.cli.main import main as cli
from interlock.engine import Outcome, fork_sync, resume_sync
from interlock.engine.driver.delegation import derive_run_id
from interlock.engine.read import list_runs, list_waiting_requests
from interlock.engine.store.retention import remove_run_and_report_refused_paths
from interlock.services.files.blobs import inflate_if_deflated
from interlock.state.errors import UserError

_FIRST, _SECOND = "task:0.0", "task:0.0/task:0.0"


def says(agent: str, name: str, **args: Any) -> dict[str, Any]:
    return tools(call(name, **args), agent=agent)


def done(agent: str, result: str, **more: Any) -> dict[str, Any]:
    return {**says(agent, "attempt_completion", result=result), **more}


THREE: Replies = [
    says("", "new_task", mode="code", message="level two"),
    done("", "one done", expect="two done"),
    says(_FIRST, "new_task", mode="debug", message="level three"),
    says(_FIRST, "execute_command", command="/bin/echo two"),
    done(_FIRST, "two done", expect="."),
    says(_SECOND, "write_to_file", path="deep.txt", content="deep\n"),
    done(_SECOND, "three done"),
]


def started(folder: Path, replies: Replies = THREE, **options: Any) -> tuple[Stage, Outcome]:
    stage = Stage(folder, replies)
    return stage, stage.run("task", {"prompt": "do it", "mode": "orchestrator"}, **options)


def asked(outcome: Outcome) -> list[tuple[str, str]]:
    return [(p["id"].partition("-")[0], p["tool_name"]) for p in outcome.pending]


def test_three_levels_park_one_after_the_other_and_each_hands_its_result_up(tmp_path: Path) -> None:
    stage, outcome = started(tmp_path)
    root, seen = outcome.run, list[tuple[str, str]]()
    while outcome.status == "waiting":
        assert (outcome.run, outcome.exit_code, outcome.resume_command) == (
            root,
            75,
            f"interlock resume {root}",
        )
        seen += asked(outcome)
        outcome = stage.resume(outcome, *approve(outcome))
    assert (outcome.run, outcome.status, outcome.output["result"]) == (root, "done", "one done")
    assert outcome.output["mode"] == "orchestrator"
    (child,) = outcome.output["children"]
    rows = {r.run: r for r in list_runs(stage.folder / "home")}
    (deepest,) = (r.run for r in rows.values() if r.parent == child)
    assert [run for run, _ in seen] == [root, child, deepest, child]
    assert [name for _, name in seen] == ["new_task", "new_task", "write_to_file", "execute_command"]
    assert [rows[r].parent for r in (root, child, deepest)] == [None, root, child]
    assert {r.status for r in rows.values()} == {"done"}
    assert (stage.work / "deep.txt").read_text() == "deep\n"
    told = [m["content"] for m in outcome.output["history"] if m.get("origin") == "agent"]
    assert told == [
        "The task that you gave to mode 'code' is done. Its result:\n<subtask_result>\ntwo done\n</subtask_result>"
    ]


@pytest.mark.parametrize("granted", [True, False], ids=["all edits were allowed", "the mode was chosen"])
def test_a_child_inherits_all_edits_without_redirections_and_a_chosen_mode_with_them(
    granted: bool, tmp_path: Path
) -> None:
    second = "task:1.0"
    replies: Replies = [
        says("", "write_to_file", path="a.txt", content="a\n"),
        says("", "new_task", mode="code", message="level two"),
        says(second, "write_to_file", path="b.txt", content="b\n"),
        says(second, "execute_command", command="echo hi > c.txt"),
        done(second, "two done"),
        done("", "one done"),
    ]
    stage = Stage(tmp_path, replies)
    mode = {} if granted else {"approval_mode": "auto_edit"}
    allowed = ("execute_command(echo)", "new_task")
    outcome = stage.run("task", {"prompt": "do it", "mode": "code"}, allowed_tools=allowed, **mode)
    if granted:
        outcome = stage.resume(outcome, *approve(outcome, "proceed_always_edits"))
    seen = list[str]()
    while outcome.status == "waiting":
        seen += [name for _, name in asked(outcome)]
        outcome = stage.resume(outcome, *approve(outcome))
    assert outcome.status == "done" and (stage.work / "b.txt").exists()
    assert [name for name in seen if name != "new_task"] == (["execute_command"] if granted else [])


def test_a_parked_child_is_decided_the_next_day_by_its_own_name(tmp_path: Path) -> None:
    stage, outcome = started(tmp_path)
    outcome = stage.resume(outcome, *approve(outcome))
    outcome = stage.resume(outcome, *approve(outcome))
    ((deepest, name),) = asked(outcome)
    assert name == "write_to_file"
    stage.age(86_400)
    after = resume_sync(deepest, decisions=approve(outcome), options=stage.options)
    assert asked(after)[0][1] == "execute_command", after
    final = stage.resume(after, *approve(after))
    assert (final.status, final.output["result"]) == ("done", "one done")


def test_while_a_child_waits_its_parents_do_and_people_see_the_stack_and_decide_by_the_tasks_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage, outcome = started(tmp_path)
    outcome = stage.resume(outcome, *approve(outcome))
    ((child, _),) = asked(outcome)
    assert [r.status for r in list_runs(stage.folder / "home")] == ["waiting", "waiting"]
    again = stage.resume(outcome)
    assert (again.status, asked(again)) == ("waiting", asked(outcome))
    monkeypatch.setenv("INTERLOCK_HOME", str(stage.folder / "home"))
    assert cli(["approvals", outcome.run]) == 0
    assert f"resume {outcome.run} --approve 2" in capsys.readouterr().out
    assert cli(["show", outcome.run]) == 0
    assert f"requested {child} · waiting · level two" in capsys.readouterr().out
    assert cli(["show", child]) == 0
    assert f"requested by run {outcome.run}" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["cancelled", "removed"])
def test_a_child_that_a_person_cancels_or_removes_leaves_its_parent_going_on(
    how: str, tmp_path: Path
) -> None:
    replies = [THREE[0], done("", "without it", expect=f"was {how} by the user"), *THREE[2:]]
    stage, outcome = started(tmp_path, replies)
    outcome = stage.resume(outcome, *approve(outcome))
    if how == "removed":
        remove_run_and_report_refused_paths(stage.folder / "home", asked(outcome)[0][0])
    outcome = stage.resume(outcome, *(approve(outcome, "cancel") if how == "cancelled" else ()))
    assert (outcome.status, outcome.output["result"]) == ("done", "without it"), outcome


def test_a_child_that_fails_is_tried_again_before_its_parent_goes_on(tmp_path: Path) -> None:
    replies = [
        says("", "new_task", mode="code", message="x"),
        done("", "one done", expect="two done"),
        {"agent": _FIRST, "text": "", "finish_reason": None},
        done(_FIRST, "two done"),
    ]
    stage, outcome = started(tmp_path, [*replies[:2], *[replies[2]] * 4, replies[3]], approval_mode="yolo")
    assert (outcome.status, outcome.exit_code) == ("invalid_stream", 1)
    outcome = stage.resume(outcome)
    assert (outcome.status, outcome.output["result"]) == ("done", "one done"), outcome


@pytest.mark.parametrize("made_up_for", [False, True])
def test_a_subtasks_result_enters_its_parent_with_what_was_refused(tmp_path: Path, made_up_for: bool) -> None:
    """It is open there: the parent fails unless it makes up for it. The child's model isn't asked again."""
    again = {**says("", "execute_command", command="/bin/echo instead"), "expect": "Refused in it"}
    replies = [
        THREE[0],
        *([again] if made_up_for else []),
        done("", "one done"),
        says(_FIRST, "execute_command", command="x"),
        done(_FIRST, "not done"),
    ]
    stage = Stage(tmp_path, replies)
    outcome = stage.run("task", {"prompt": "do it", "mode": "code"})
    outcome = stage.resume(outcome, *approve(outcome))
    outcome = stage.resume(outcome, *approve(outcome, "reject"))
    if made_up_for:
        outcome = stage.resume(outcome, *approve(outcome))
    told = [m["content"] for m in outcome.output["history"] if m.get("origin") == "agent"]
    assert "not done" in told[0] and "Refused in it, so not done: A person (" in told[0]
    ended = ("done", 0, "one done") if made_up_for else ("failed", 56, "one done")
    assert (outcome.status, outcome.exit_code, outcome.output["result"]) == ended, outcome
    assert [r.status for r in list_runs(stage.folder / "home")].count("failed") == (not made_up_for)


def test_a_child_has_a_mode_steps_and_a_conversation_of_its_own(tmp_path: Path) -> None:
    replies = [
        says("", "new_task", mode="ask", message="look", todos="[ ] look"),
        done("", "end"),
        says(_FIRST, "write_to_file", path="no.txt", content="x"),
        done(_FIRST, "seen"),
    ]
    stage = Stage(tmp_path, replies)
    outcome = stage.run("task", {"prompt": "secret of the root", "mode": "code"}, approval_mode="yolo")
    assert (outcome.status, outcome.output["mode"]) == ("done", "code")
    assert not (stage.work / "no.txt").exists()
    bodies = stage.rows("select body from chain where run = $1", outcome.output["children"][0])
    assert not any(b"secret of the root" in inflate_if_deflated(row["body"]) for row in bodies)


def test_tasks_nest_only_so_deep(tmp_path: Path) -> None:
    agents = ["/".join(["task:0.0"] * n) for n in range(11)]
    replies = [says(agent, "new_task", mode="code", message="deeper") for agent in agents]
    replies += [done(agent, f"level {n}") for n, agent in enumerate(agents)]
    _, outcome = started(tmp_path, replies, approval_mode="yolo")
    assert outcome.status == "done", outcome
    assert outcome.output["result"] == "level 0"


def test_a_call_begins_one_run_however_often_it_is_tried() -> None:
    assert (
        derive_run_id("task 0.0 after x of y") == derive_run_id("task 0.0 after x of y") != derive_run_id("a")
    )


def test_a_limit_holds_for_a_task_with_all_of_its_subtasks_and_its_stats_count_them(tmp_path: Path) -> None:
    replies = [{**reply, "usage": {"input": 6_000, "output": 500}} for reply in THREE]
    stage = Stage(tmp_path, replies, limits={"max_tokens": 15_000})
    outcome = stage.run("task", {"prompt": "do it", "mode": "orchestrator"}, approval_mode="yolo")
    assert (outcome.exit_code, outcome.error and outcome.error["type"]) == (57, "budget"), outcome.error
    assert outcome.error and "13000 were used" in outcome.error["message"]  # the third would pass it
    assert [
        len(stage.rows("select 1 from model_calls where agent = $1", a)) for a in ("", _FIRST, _SECOND)
    ] == [1, 1, 0]
    outcome = stage.resume(outcome, limits={"max_tokens": 500_000})
    while outcome.status == "waiting":
        outcome = stage.resume(outcome, *approve(outcome), limits={"max_tokens": 500_000})
    assert (outcome.status, outcome.output["result"]) == ("done", "one done")
    assert outcome.output["stats"]["total_tokens"] == 6_500 * len(THREE)


def test_a_fork_of_a_task_is_no_subtask_of_it_and_waits_for_none_of_its_subtasks(tmp_path: Path) -> None:
    stage, outcome = started(tmp_path)
    home = stage.folder / "home"
    step = stage.rows("select step from runs where run = $1", outcome.run)[0]["step"]
    early = fork_sync(outcome.run, step, home=home).run
    assert asked(stage.resume(outcome)) == [(outcome.run, "new_task")]
    assert list_waiting_requests(home, early)[0].run == early
    outcome = stage.resume(outcome, *approve(outcome))
    (child,) = {request["id"].partition("-")[0] for request in outcome.pending}
    step = stage.rows("select step from runs where run = $1", outcome.run)[0]["step"]
    with pytest.raises(UserError, match=f"waits for its subtask {child!r}.*Fork at step {step - 1}"):
        fork_sync(outcome.run, step, home=home)
    fork = fork_sync(outcome.run, step - 1, home=home).run
    forked = resume_sync(fork, options=replace(stage.options, workspace=None))
    (other,) = {request["id"].partition("-")[0] for request in forked.pending}
    assert (forked.run, other == child) == (fork, False)
    shown = {row.run: row.subtask for row in list_runs(home)}
    assert shown == {outcome.run: False, early: False, child: True, fork: False, other: True}
