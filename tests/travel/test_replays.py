"""A replay follows the run, state by state, offline; changes since are reported with their step."""

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from databases import changed, rows_of
from patience import sweep_part
from scripted import call, tools
from travel.conftest import REPLIES, Desk, shell
from travel.trees import tree_of

from interlock import prompts
from interlock.engine import Decision, resume_sync, run_sync
from interlock.engine.read import list_runs
from interlock.engine.store.checkpoints import list_root_checkpoints
from interlock.engine.store.saver import Serde
from interlock.engine.travel import replay
from interlock.engine.travel.replay import ReplayPoint, find_divergence, load_recorded_run
from interlock.graphs.graph import Graph
from interlock.graphs.hook_nodes import cached_session_graph

Replies = list[dict[str, Any]]


def some_replies(seed: int) -> Replies:
    """A varied run: reads, edits, commands, mistakes, questions, denied and unknown tools, in parallel."""
    rng = random.Random(seed)
    kinds = [
        ("read_file", {"file_path": "a.txt"}),
        ("read_file", {"file_path": "missing"}),
        ("list_directory", {"dir_path": "."}),
        ("grep_search", {"pattern": "one"}),
        ("write_file", {"file_path": f"new{seed}.txt", "content": "one\ntwo\n"}),
        ("replace", {"file_path": "a.txt", "old_string": "one", "new_string": "uno"}),
        ("replace", {"file_path": "a.txt", "old_string": "nowhere", "new_string": "x"}),
        ("run_shell_command", {"command": "date +%N; echo $RANDOM >> log"}),
        ("run_shell_command", {"command": "exit 3"}),
        ("ask_user", {"questions": [{"question": "Which?"}]}),
        ("write_todos", {"todos": [{"description": "first", "status": "pending"}]}),
        ("write_file", {"file_path": "../outside", "content": "x"}),
        ("no_such_tool", {}),
    ]
    turns = [
        {
            "text": f"turn {n}",
            "tool_calls": [{"name": k, "args": a} for k, a in rng.choices(kinds, k=rng.randint(1, 4))],
        }
        for n in range(rng.randint(1, 5))
    ]
    return [*turns, {"text": "done"}]


def recorded(desk: Desk, seed: int) -> str:
    """A run to its end, with some requests refused and sometimes another prompt after it."""
    rng = random.Random(seed)
    (desk.work / "a.txt").write_text("one\ntwo\n")
    replies = some_replies(seed)
    more = [tools(call("read_file", file_path="a.txt"), text="again"), {"text": "end"}]
    mode = rng.choice(["default", "auto_edit", "yolo"])
    outcome = desk.run([*replies, *more], approval_mode=mode)
    options = desk.options([*replies, *more], workspace=None, approval_mode=None)
    while outcome.status == "waiting":
        decisions = [
            Decision(request["id"], "proceed_once", text="this")
            if request["kind"] == "question" or rng.random() < 0.7
            else Decision(request["id"], "reject", feedback="no")
            for request in outcome.pending
        ]
        outcome = resume_sync(outcome.run, decisions=decisions, options=options)
    if rng.random() < 0.5:
        resume_sync(outcome.run, prompt="and more", options=options)
    return outcome.run


def test_modes_that_came_with_a_later_prompt_are_replayed_with_it(desk: Desk) -> None:
    """Of approval and of work: what nobody was asked about then, nobody is asked about again."""
    one, two = shell("echo one > one"), shell("echo two > two")
    replies = [one, {"text": "done"}, two, {"text": "done"}, {"text": "no"}]
    outcome = desk.run(replies, approval_mode="default")
    options = desk.options(replies, workspace=None, approval_mode=None)
    outcome = resume_sync(
        outcome.run, decisions=[Decision(outcome.pending[0]["id"], "proceed_once")], options=options
    )
    more = replace(options, approval_mode="yolo")
    assert resume_sync(outcome.run, prompt="more", options=more).status == "done"
    assert resume_sync(outcome.run, prompt="look", options=replace(options, mode="ask")).status == "done"
    told = desk("replay", outcome.run, "--json").json
    assert told["divergence"] is None, told["divergence"]


def check(desk: Desk, seed: int) -> None:
    run = recorded(desk, seed)
    desk.clear()  # the files' current content doesn't matter
    told = desk("replay", run, "--json").json
    assert told["divergence"] is None, (seed, told["divergence"])
    assert len(told["steps"]) > 3


@pytest.mark.parametrize("seed", range(2))
def test_a_recorded_run_replays_with_the_same_states(desk: Desk, seed: int) -> None:
    check(desk, seed)


@pytest.mark.sweep(divides=True)
@pytest.mark.parametrize("first", range(2, 32, 10))
def test_thirty_more_recorded_runs_replay_with_the_same_states(desk: Desk, first: int) -> None:
    part, of = sweep_part()
    for seed in range(first + part, first + 10, of):
        check(desk, seed)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_replay_goes_no_further_than_asked_and_one_that_is_stopped_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    run = desk.run().run
    last = load_recorded_run(desk.home, run)[2][-1].step
    reached, old = list[int](), replay._ReplayEnd._stop_at_last_step  # pyright: ignore[reportPrivateUsage]

    def at(end: replay._ReplayEnd, step: int) -> None:  # pyright: ignore[reportPrivateUsage]
        reached.append(step)
        if is_stopped and step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        old(end, step)

    monkeypatch.setattr(replay._ReplayEnd, "_stop_at_last_step", at)  # pyright: ignore[reportPrivateUsage]
    told = desk("replay", run, *([] if is_stopped else ["--until", "3"]))
    assert 3 <= max(reached) < last
    if is_stopped:
        assert (told.code, told.out) == (130, "")
        assert f"stopped at step {max(reached)} of {last}, without a difference until then" in told.err
    else:
        assert (told.code, told.out.count("\n"), max(reached)) == (0, 6, 3)


def test_a_run_replays_where_neither_its_folder_nor_its_models_script_is(desk: Desk) -> None:
    subprocess.run(("git", "init", "-q", str(desk.work)), check=True)
    run = desk.run().run
    for gone in (desk.work, desk.folder / "script.json"):
        gone.rename(desk.folder / f"{gone.name}-elsewhere")
    assert desk("replay", run, "--json").json["divergence"] is None


def test_a_fork_replays_like_any_run_also_when_what_it_came_from_is_gone(desk: Desk) -> None:
    run = desk.run().run
    assert desk("fork", run, "--at", "2", "--in-place").code == 0
    fork = list_runs(desk.home)[0].run
    replayed = desk("replay", fork, "--json")
    assert (replayed.code, replayed.json["divergence"]) == (0, None), "it stopped where it was forked"
    assert desk("resume", fork).code == 0
    assert desk("replay", fork, "--json").json["divergence"] is None
    assert desk("runs", "rm", run).code == 0
    assert desk("replay", fork, "--json").json["divergence"] is None


def test_a_run_that_carries_out_a_plan_goes_on_and_replays_without_the_plans_run(desk: Desk) -> None:
    """Its replies are numbered on from the plan's."""
    plan = call("write_file", file_path="plan.md", content="- [ ] write a.txt\n")
    hand_in = call("exit_plan_mode", plan_filename="plan.md")
    replies = [tools(plan), tools(hand_in), *REPLIES]
    options = desk.options(replies, approval_mode=None)
    reviewed = run_sync("plan", {"prompt": "Do it."}, options=options)
    yes, there = [Decision("all", "proceed_once")], replace(options, workspace=None)
    main = resume_sync(reviewed.run, decisions=yes, options=there, follow=False).output["main_run"]
    assert desk("runs", "rm", reviewed.run).code == 0
    done = desk("resume", main, "-y")
    assert done.out == "done\n", done
    replayed = desk("replay", main, "--json")
    assert (replayed.code, replayed.json["divergence"]) == (0, None)


def test_a_path_that_ends_before_the_other_parts_there() -> None:
    one, two = (ReplayPoint(step, (f"n{step}",), "hash", {}) for step in (1, 2))
    more = {"step": 2, "recorded": ("n2",), "replayed": (), "keys": []}
    assert find_divergence([one, two], [one]) == more
    assert find_divergence([one], [one, two]) == {**more, "recorded": (), "replayed": ("n2",)}
    differs = two._replace(state="another", values={"head": "x"})
    assert find_divergence([one, two], [one, differs]) == {**more, "replayed": ("n2",), "keys": ["head"]}


def test_a_label_that_earlier_versions_did_not_write_is_no_difference_where_it_leads_is() -> None:
    one = ReplayPoint(1, ("n1",), "hash", {"head": "x"})
    labelled = one._replace(state="another", values={"head": "x", "label": "answered"})
    assert find_divergence([one], [labelled]) is None
    led = labelled._replace(nodes=("n1", "n3"))
    assert find_divergence([one], [led]) == {
        "step": 1,
        "recorded": ("n1",),
        "replayed": ("n1", "n3"),
        "keys": [],
    }


_OTHERS: dict[str, Callable[[Any], Any]] = {
    "last_prompt_tokens": lambda was: was + 1,
    "session_turns": float,
    "next_speaker_check": int,
    "reply": lambda was: was[:-1] + ("1" if was[-1] == "0" else "0"),
    "unavailable": lambda was: {**was, "pro": None},
}
"""Key of the state → a value that is nearly the same."""


@pytest.mark.parametrize("key", _OTHERS)
def test_one_value_that_differs_in_a_late_step_is_found(desk: Desk, key: str) -> None:
    run = desk.run().run
    late = load_recorded_run(desk.home, run)[2][-3].step
    (saved,) = [one for one in list_root_checkpoints(desk.home, run) if one.step == late]
    checkpoint = Serde().loads_typed((saved.kind, saved.saved))
    checkpoint["channel_values"][key] = _OTHERS[key](checkpoint["channel_values"][key])
    kind, body = Serde().dumps_typed(checkpoint)
    changed(
        desk.home,
        "update checkpoints set type = $1, checkpoint = $2 where checkpoint_id = $3",
        kind,
        body,
        saved.id,
    )
    replayed = desk("replay", run, "--json")
    found = replayed.json["divergence"]
    assert (replayed.code, found["step"], found["keys"]) == (1, late, [key])


def test_a_replay_changes_no_file_and_no_row(desk: Desk) -> None:
    run = desk.run().run
    before = tree_of(desk.work), sorted(p.name for p in desk.home.rglob("*"))
    rows = rows_of(desk.home)
    assert desk("replay", run).code == 0
    assert (tree_of(desk.work), sorted(p.name for p in desk.home.rglob("*"))) == before
    assert rows_of(desk.home) == rows


def test_a_changed_prompt_is_named_with_its_step(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    run = desk.run().run
    (desk.folder / "system.md").write_text("Another prompt.")
    monkeypatch.setenv("GEMINI_SYSTEM_MD", str(desk.folder / "system.md"))
    replayed = desk("replay", run, "--json")
    assert replayed.code == 1
    found = replayed.json["divergence"]
    assert (found["step"], found["recorded"]) == (1, ["open_prompt", "context"])
    assert "head" in found["keys"]
    assert found["requests"] == ["request 0 of the run, role main"]
    assert "Step 1 differs" in desk("replay", run).out
    assert desk("replay", run, "--until", "0").code == 0


def test_a_changed_context_template_is_named_with_its_step(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = desk.run().run
    (desk.work / "another").write_text("the directory that is told is another one, too")
    assert desk("replay", run).code == 0, "what is told of the folder is what was told then"
    load = prompts.load_prompt

    def with_today(name: str) -> prompts.Prompt:
        prompt = load(name)
        other = prompt.user.replace("Date: ", "Today: ") if name == "context/environment" else prompt.user
        return replace(prompt, user=other)

    monkeypatch.setattr(prompts, "load_prompt", with_today)
    found = desk("replay", run, "--json").json["divergence"]
    assert (found["step"], found["recorded"], found["keys"]) == (1, ["open_prompt", "context"], ["head"])


def test_a_changed_edge_is_named_with_its_step(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    run = desk.run().run
    steps = desk("history", run, "--json").json["steps"]
    expected = next(s["step"] for s in steps if s["node"] == "next-speaker")
    route = Graph.route

    def with_other_ways(graph: Graph, source: str, router: Any, targets: Any) -> None:
        swapped = (
            {"no calls": "finish", "answered": "next-speaker"}
            if (graph.name, source) == ("main", "turn")
            else {}
        )
        route(graph, source, router, {**targets, **swapped})

    monkeypatch.setattr(Graph, "route", with_other_ways)
    cached_session_graph.cache_clear()
    try:
        found = desk("replay", run, "--json").json["divergence"]
    finally:
        cached_session_graph.cache_clear()
    assert found["step"] == expected - 1, "the state before it names the node that is due"
    assert found["keys"] == ["branch:to:finish", "branch:to:next-speaker"]


def test_record_responses_of_a_run_is_a_script_that_replays_it(desk: Desk, tmp_path: Path) -> None:
    script = tmp_path / "recorded.yaml"
    first = desk.run(REPLIES, record_to=script)
    desk.clear()
    again = desk.run(REPLIES, model="pro", fake=script)
    assert again.output["response"] == first.output["response"]
    path = [[s["node"] for s in desk("history", r, "--json").json["steps"]] for r in (first.run, again.run)]
    assert path[0] == path[1]
    assert json.loads(json.dumps(again.output["history"][-1])) == first.output["history"][-1]


def test_a_rule_that_was_saved_for_good_is_not_saved_again_by_a_replay(desk: Desk) -> None:
    replies = [shell("touch a") for _ in "ab"] + [{"text": "done"}]
    run = desk.run(replies, approval_mode="default")
    assert desk("resume", run.run, "--approve", "all", "--always-save").out == "done\n"
    (rules,) = Path.home().rglob("*.toml")
    rules.unlink()
    found = desk("replay", run.run, "--json").json["divergence"]
    assert found is None, found
    assert not list(Path.home().rglob("*.toml"))
