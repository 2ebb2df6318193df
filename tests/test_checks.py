"""Checks in `main` and `task`: every edge of theirs, what the model is told, and what a replay knows."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from agent_runs.stage import Move, Replies, Stage, approve, cancel, of_checks, refuse, send_back
from folders import put, tree
from scripted import call, tools

from interlock.engine import Outcome, fork_sync, resume_sync
from interlock.engine.diagrams import declared_edges
from interlock.engine.store.journal import SqlJournal
from interlock.engine.store.runs import find_ignored_tests_in_options, read_run_options
from interlock.engine.travel.replay import replay_run
from interlock.state.events import AgentBlocked

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask", "model_has_seen_all_files")
CHECK = "sh tests/run.sh"
FILES = {"a.py": "bad\n", "tests/run.sh": "grep -q good a.py || { echo it is bad; exit 1; }\n"}


def writes(path: str, content: str) -> dict[str, Any]:
    """In `main`; for `task` the names are changed."""
    return tools(call("write_file", file_path=path, content=content))


EASY = writes("tests/run.sh", "true\n")
REPAIR = writes("a.py", "good\n")
DONE = {"text": "Done."}


class Scene(NamedTuple):
    replies: Replies
    moves: Sequence[Move]
    status: str
    given: Mapping[str, Any] = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})
    files: Mapping[str, str] = FILES


HEARD = {"Notification": [{"hooks": [{"type": "command", "command": "cat >> ../heard"}]}]}
DOCTEST = {"a.py": '"""\n>>> 1 + 1\n3\n"""\n'}
SCENES = {
    "sent on, then repaired": Scene([DONE, {"expect": "it is bad", **REPAIR}, DONE], [], "done"),
    "tests may change": Scene([EASY, DONE], [], "done", {"check_tests": "may-change"}),
    "also by a setting": Scene([EASY, DONE], [], "done", settings={"check": {"tests": "may-change"}}),
    "no shell": Scene([DONE], [], "failed", {"env": {"PATH": "/nowhere"}}),
    "changed and repaired": Scene([EASY, REPAIR, DONE], [], "done"),
    "accepted": Scene([EASY, DONE], [approve], "done"),
    "sent back, heard of, stopped": Scene(
        [EASY, DONE, {"expect": "not this way", **DONE}],
        [send_back("not this way"), cancel],
        "cancelled",
        settings={"hooks": HEARD},
    ),
    "sent back without a reason": Scene(
        [
            EASY,
            DONE,
            {
                "expect": "no reason was given",
                **tools(*writes("tests/run.sh", FILES["tests/run.sh"])["tool_calls"], *REPAIR["tool_calls"]),
            },
            DONE,
        ],
        [refuse],
        "done",
    ),
    "no snapshots": Scene([EASY, DONE], [approve], "done", settings={"snapshots": {"maxFiles": 0}}),
    "tests beside the code": Scene(
        [writes("a.py", '"""\n>>> 1 + 1\n2\n"""\n'), DONE],
        [approve],
        "done",
        {"check": "python3 -m doctest a.py"},
        files=DOCTEST,
    ),
}


def of_task(replies: Replies) -> Replies:
    """The same replies for the task loop: one call a message, and a result at the end."""
    made: Replies = []
    for reply in replies:
        rest = {k: v for k, v in reply.items() if k not in ("tool_calls", "text")}
        for number, one in enumerate(reply.get("tool_calls") or [call("attempt_completion", result="Done.")]):
            args = one["args"]
            if one["name"] == "write_file":
                one = call("write_to_file", path=args["file_path"], content=args["content"])
            made.append({**(rest if not number else {}), **tools(one)})
    return made


def play(workflow: str, scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    stage = Stage(
        folder, of_task(scene.replies) if workflow == "task" else scene.replies, settings={**scene.settings}
    )
    tree(stage.work, scene.files)
    given = {"check": CHECK, "approval_mode": "yolo", **scene.given}
    if workflow == "task":
        given["mode"] = "code"
    outcome = stage.run(workflow, {"prompt": "make it good"}, **given)
    for move in scene.moves:
        assert outcome.status == "waiting", outcome.error
        again = {"env": given["env"]} if "env" in given else {}
        outcome = stage.resume(outcome, *move(outcome), **again)
    assert outcome.status == scene.status, (outcome.error, outcome.pending)
    return stage, outcome


@pytest.mark.parametrize("workflow", ["main", "task"])
def test_scenes_take_every_edge_of_checks(workflow: str, tmp_path: Path) -> None:
    runs = [play(workflow, scene, tmp_path / name.replace(" ", "_")) for name, scene in SCENES.items()]
    taken = {edge for stage, outcome in runs for edge in stage.edges(outcome)}
    mine = {e for e in declared_edges(workflow) if e[0] == workflow and of_checks(e)}
    assert mine - taken == set()
    for stage, _ in runs:
        assert not [*(stage.folder / "home" / "views").glob("*")]
        assert (stage.work / "a.py").exists()


def test_the_model_is_told_the_rule_once_and_at_its_first_change_of_a_test(tmp_path: Path) -> None:
    once = r"(?s)\A(?!.*run.sh is a test.*run.sh is a test)(?!.*is done when.*is done when)"
    changed = writes("tests/run.sh", "echo 1\n")
    told = [{"expect": f"done when `{CHECK}` succeeds", **EASY}, {"expect": "run.sh is a test", **changed}]
    play("main", Scene([*told, {"expect": once, **REPAIR}, {"expect": once, **DONE}], [], "done"), tmp_path)
    play("main", Scene([*told, REPAIR, DONE], [], "done", files=SECRET), tmp_path / "ignored")
    silent = {"expect": r"(?s)\A(?!.*is done when)(?!.*is a test)"}
    may = [{**silent, **EASY}, {**silent, **REPAIR}, {**silent, **DONE}]
    play("main", Scene(may, [], "done", {"check_tests": "may-change"}), tmp_path / "may")
    new = [writes("tests/new.sh", "true\n"), {"expect": r"(?s)\A(?!.*is a test)", **REPAIR}, DONE]
    play("main", Scene(new, [], "done"), tmp_path / "new")


def test_a_run_whose_tests_are_as_they_were_runs_its_check_once(tmp_path: Path) -> None:
    scene = Scene([REPAIR, DONE], [], "done", {"check": f"echo >> ../count; {CHECK}"})
    stage, _ = play("main", scene, tmp_path)
    assert (stage.folder / "count").read_text() == "\n"
    assert not (stage.folder / "home" / "views").exists()


def test_what_was_accepted_isnt_asked_again_but_another_change_is(tmp_path: Path) -> None:
    stage, outcome = play("main", SCENES["accepted"], tmp_path)
    stage.write([*SCENES["accepted"].replies, DONE, writes("tests/run.sh", "echo; true\n"), DONE])
    outcome = further(stage, outcome, "and now?")
    assert outcome.status == "done", outcome
    outcome = further(stage, outcome, "and another?")
    assert [p["tool_name"] for p in outcome.pending] == ["changed_tests"]


def further(stage: Stage, outcome: Outcome, prompt: str) -> Outcome:
    return resume_sync(outcome.run, prompt=prompt, options=stage.options)


def test_an_accepted_change_that_was_changed_meanwhile_is_asked_again(tmp_path: Path) -> None:
    stage, outcome = play("main", Scene([EASY, DONE], [], "waiting"), tmp_path)
    decisions = approve(outcome)
    put(stage.work / "tests" / "run.sh", "echo other\n")
    outcome = stage.resume(outcome, *decisions)
    assert [p["id"].endswith("t12") for p in outcome.pending] == [True], outcome.pending
    assert "+echo other" in outcome.pending[0]["preview"]


SECRET: Mapping[str, str] = {**FILES, ".git/x": "", ".gitignore": "tests\n"}
"""As `FILES`; git ignores the tests."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("files", [FILES, SECRET], ids=["tracked", "ignored"])
def test_a_fork_in_another_folder_compares_with_what_its_parent_began_with(
    files: Mapping[str, str], tmp_path: Path
) -> None:
    stage, outcome = play("main", Scene([EASY, DONE], [], "waiting", files=files), tmp_path)
    step = max(row["root_step"] for row in stage.rows("select root_step from snapshots"))
    stage.write([writes("b.py", "1\n"), *([EASY] if files == SECRET else []), DONE])
    fork = fork_sync(outcome.run, step + 1, home=stage.folder / "home")
    stage.work = Path(fork.workspace)
    again = resume_sync(fork.run, options=stage.options)
    (pending,) = again.pending
    assert "only with changed tests; with tests/run.sh as before" in pending["reason"]


def test_what_a_subtask_changed_in_an_ignored_test_is_asked(tmp_path: Path) -> None:
    child = "task:0.0"
    easy = call("write_to_file", path="tests/run.sh", content="true\n")
    stage = Stage(
        tmp_path,
        [
            tools(call("new_task", mode="code", message="make it good")),
            tools(call("attempt_completion", result="Done.")),
            {"agent": child, **tools(easy)},
            {"agent": child, **tools(call("attempt_completion", result="Done."))},
        ],
    )
    tree(stage.work, SECRET)
    given = {"check": CHECK, "approval_mode": "yolo", "check_tests": "as-before"}
    outcome = stage.run("task", {"prompt": "x", "mode": "orchestrator"}, **given)
    assert [p["tool_name"] for p in outcome.pending] == ["changed_tests"], outcome


def test_of_more_ignored_tests_than_are_kept_a_change_is_known_and_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {**SECRET, **{f"tests/{n}.txt": f"{n}" for n in range(9)}}
    monkeypatch.setattr("interlock.services.checks.ignored_tests._MOST_KEPT", 3)
    play("main", Scene([REPAIR, DONE], [], "done", files=many), tmp_path / "same")
    also = tools(*(call("write_file", file_path=f"tests/{n}.txt", content="x") for n in range(9)))
    _, outcome = play("main", Scene([also, REPAIR, DONE], [], "waiting", files=many), tmp_path / "some")
    (pending,) = outcome.pending
    left = r"couldn't be compared, so they were left as they are now: (tests/\d.txt, ){2}tests/\d.txt and \d more\."
    assert re.search(left, pending["reason"]), pending["reason"]
    monkeypatch.setattr("interlock.services.checks.ignored_tests._MOST_NOTED", 8)
    _, outcome = play("main", Scene([REPAIR, DONE], [], "waiting", files=many), tmp_path / "all")
    assert "There are more than 8 tests that no snapshot holds" in outcome.pending[0]["reason"]


def test_a_run_that_began_without_a_check_doesnt_know_what_was_ignored(tmp_path: Path) -> None:
    stage, outcome = play("main", Scene([EASY, DONE], [], "done", {"check": ""}, files=SECRET), tmp_path)
    stage.write([EASY, DONE, writes("b.py", "1\n"), DONE])
    again = resume_sync(
        outcome.run, prompt="and now?", options=replace(stage.options, check=CHECK, approval_mode="yolo")
    )
    assert "none were kept when the run began" in again.pending[0]["reason"]


def test_a_check_that_names_other_tests_than_the_one_before_asks(tmp_path: Path) -> None:
    stage, outcome = play(
        "main", Scene([writes("b.py", "1\n"), DONE], [], "done", {"check": "true"}), tmp_path
    )
    stage.write([writes("b.py", "1\n"), DONE, writes("b.py", "2\n"), DONE])
    options = replace(stage.options, check="true && node --test own", approval_mode="yolo")
    put(stage.work / "own", "")
    again = resume_sync(outcome.run, prompt="and now?", options=options)
    assert "'own' wasn't among the tests" in again.pending[0]["reason"]


def test_what_was_built_among_the_tests_is_left_out_for_the_build(tmp_path: Path) -> None:
    make = "run: tests/run\n\tsh tests/run\ntests/run: tests/run.sh\n\tcp $< $@\n"
    files = {**FILES, "Makefile": make, ".git/x": "", ".gitignore": "tests/run\n", "tests/run": "\x7fELF"}
    build = call("run_shell_command", command="touch tests/run.sh && make tests/run")
    given = {"check": "make run"}
    easy = tools(*EASY["tool_calls"], build)
    _, outcome = play("main", Scene([easy, DONE], [], "waiting", given, files=files), tmp_path)
    assert "these were left out: tests/run." in outcome.pending[0]["reason"]
    repair = tools(*REPAIR["tool_calls"], build)
    play("main", Scene([repair, DONE], [], "done", given, files=files), tmp_path / "repaired")


class Cut(Exception):  # noqa: N818 - no error of ours: the process ends here
    """Simulates a kill: nothing after it in the process is done."""


def test_a_kill_between_what_is_kept_and_the_first_change_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: Any) -> None:
        raise Cut

    stage = Stage(tmp_path, [EASY, DONE])
    tree(stage.work, SECRET)
    with monkeypatch.context() as patch:
        patch.setattr(SqlJournal, "record_intent", cut)
        outcome = stage.run("main", {"prompt": "x"}, check=CHECK, approval_mode="yolo")
    assert (stage.work / "tests" / "run.sh").read_text() == FILES["tests/run.sh"]
    assert find_ignored_tests_in_options(read_run_options(stage.folder / "home", outcome.run)) is not None
    outcome = stage.resume(outcome)
    assert "with tests/run.sh as before" in outcome.pending[0]["reason"]


def test_a_replay_runs_no_check(tmp_path: Path) -> None:
    scene = Scene([DONE, EASY, DONE], [approve], "done", {"check": f"echo >> ../count; {CHECK}"})
    stage, outcome = play("main", scene, tmp_path)
    before = (stage.folder / "count").read_text()
    found = asyncio.run(replay_run(stage.folder / "home", outcome.run))
    assert found.divergence is None, found
    assert (stage.folder / "count").read_text() == before
    assert [e.by for e in stage.events if isinstance(e, AgentBlocked)] == ["check"]
