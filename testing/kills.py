"""kills: check that a workflow killed at any commit ends like an undisturbed one."""

import os
import re
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from interlock.engine import Decision, Outcome, store
from interlock.engine.options import Pending
from interlock.engine.read import list_runs
from interlock.graphs.pipeline import Pipeline
from interlock.testing.stage import Person, Stage, agrees, load_and_register_workflow, said

Happened = Callable[[Stage, Pending], bool]
"""Whether the effect a request asks about took place, as a person checking would find."""


@dataclass(frozen=True)
class Ending:
    """What must match."""

    status: str
    output: str
    files: Mapping[str, str]
    """Every file of the workspace → hash of its bytes, and its mode."""
    calls: tuple[tuple[str, str], ...]
    """Tool calls."""
    more: str


def kill_everywhere(
    stage: Callable[[Path], Stage],
    workflow: str | Path | Pipeline,
    input: Mapping[str, Any],
    folder: Path,
    *,
    person: Person = agrees,
    happened: Happened | None = None,
    more: Callable[[Stage], str] = lambda _: "",
    every: int = 1,
) -> int:
    """Run once undisturbed; then, for each commit, kill the run right before and right after it, and resume.

    `stage` prepares a folder. `happened` answers when a kill hides whether a command took effect. `more`: what else
    must match, such as a repository's log (`.git` and `__pycache__` aren't compared). `every`: test only every n-th
    kill point. Returns the number of kills. Raises `AssertionError` naming the kill points after which the run ended
    differently. Needs `os.fork`; each child is a separate process, like a user's.
    """
    import_module("interlock.engine.driver.runner")  # here, not in each child
    known, place = load_and_register_workflow(workflow), folder / "stage"

    def play_until(kill_point: int) -> Callable[[Stage], None]:
        return lambda scene: _drive_to_end(
            scene, known, input, _answer_outcome_requests(scene, person, happened), kill_point
        )

    def make_fresh_stage() -> Stage:
        shutil.rmtree(place, ignore_errors=True)
        return stage(place)

    scene = make_fresh_stage()
    assert _run_in_child(scene, play_until(0)) is False, "the undisturbed run was killed"
    expected, moments = _read_ending(scene, more), int((scene.folder / "moments").read_text())
    kills, wrong = 0, list[str]()
    for moment in range(1, moments + 1, every):
        scene = make_fresh_stage()
        kills += _run_in_child(scene, play_until(moment))
        _run_in_child(scene, play_until(0))
        if (found := _read_ending(scene, more)) != expected:
            wrong.append(f"killed at commit {moment // 2}: {_describe_difference(found, expected)}")
    assert not wrong, "\n".join(wrong)
    return kills


def _answer_outcome_requests(stage: Stage, person: Person, happened: Happened | None) -> Person:
    def decide(request: Pending) -> Decision:
        if request["kind"] != "outcome" or happened is None:
            return person(request)
        return said(request, "skip" if happened(stage, request) else "redo")

    return decide


def _drive_to_end(
    stage: Stage, workflow: str | Pipeline, input: Mapping[str, Any], person: Person, kill_point: int
) -> None:
    """In a child: start or resume, and answer requests until the run is over. `kill_point`: kill point; 0: none."""
    seen = _kill_at_commit(stage, kill_point)
    begun = list_runs(stage.home)
    if begun:
        outcome = stage.resume(begun[0].run, *map(person, stage.waiting(begun[0].run)))
    else:
        outcome = stage.run(workflow, input)
    outcome = stage.settle(outcome, person)
    (stage.folder / "moments").write_text(str(len(seen)))
    (stage.folder / "outcome").write_text(_outcome_text(outcome))


def _outcome_text(outcome: Outcome) -> str:
    text, known = f"{outcome.status}\n{outcome.output}\n{outcome.error}", dict[str, str]()
    return _RANDOM.sub(lambda found: known.setdefault(found[0], f"id{len(known)}"), text)


_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Ids such as those of LangChain's messages; numbered in their order, as every run has its own."""


def _kill_at_commit(stage: Stage, kill_point: int) -> list[str]:
    """Kill this process at its `kill_point`-th kill point from now on."""
    seen: list[str] = []
    connection: Any = store.open_adapter(stage.home / "interlock.db").connection
    commit = connection.commit

    def note_moment(what: str) -> None:
        if not threading.current_thread().name.startswith("heartbeat"):  # their number isn't deterministic
            seen.append(what)
            if len(seen) == kill_point:
                os.kill(os.getpid(), signal.SIGKILL)

    def commit_and_note(*given: Any) -> None:
        note_moment("before")
        commit(*given)
        note_moment("after")

    connection.commit = commit_and_note
    return seen


def _run_in_child(stage: Stage, work: Callable[[Stage], None]) -> bool:
    """Run `work` in a child process; returns whether it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work(stage)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(9)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or status == 0, f"a child ended with {os.waitstatus_to_exitcode(status)}"
    return os.WIFSIGNALED(status)


def _read_ending(stage: Stage, describe_more: Callable[[Stage], str]) -> Ending:
    outcome = (stage.folder / "outcome").read_text()
    paths = ((p.relative_to(stage.work), p) for p in sorted(stage.work.rglob("*")) if p.is_file())
    files = {
        str(place): _file_fingerprint(path)
        for place, path in paths
        if not _PASSED_OVER.intersection(place.parts)
    }
    done = {tool for tool, state in stage.calls() if state != "done"}
    assert not done, f"calls without an end: {sorted(done)}"
    calls = tuple(sorted(set(stage.calls())))
    return Ending(outcome.partition("\n")[0], outcome, files, calls, describe_more(stage))


_PASSED_OVER = frozenset({".git", "__pycache__"})
"""Skipped because they contain timestamps."""


def _file_fingerprint(file: Path) -> str:
    return f"{sha256(file.read_bytes()).hexdigest()[:16]} {file.stat().st_mode & 0o777:o}"


def _describe_difference(actual: Ending, expected: Ending) -> str:
    lines = (
        f"{k}: {v!r}, expected {vars(expected)[k]!r}"
        for k, v in vars(actual).items()
        if v != vars(expected)[k]
    )
    return "; ".join(lines)
