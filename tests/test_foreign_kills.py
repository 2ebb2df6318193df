"""Killed before or after any commit and resumed, a graph that knows nothing of Interlock ends as if undisturbed."""

import os
from pathlib import Path
from typing import Any

import pytest

from interlock.engine import Decision
from interlock.engine.options import Pending
from interlock.engine.read import list_runs, list_steps
from interlock.engine.store import queries
from interlock.state.errors import UserError
from interlock.testing import Stage, kill_everywhere

SHAPES = Path(__file__).with_name("foreign_shapes.py")
LOG: dict[str, Any] = {"text": "tea"}
GIVEN: dict[str, dict[str, Any]] = {
    "line": LOG,
    "asked": LOG,
    "twice": LOG,
    "validated": LOG,
    "edited": LOG,
    "parallel": LOG,
    "sent": LOG,
    "nested": LOG,
    "invoking": LOG,
    "asking_on": LOG,
    "handing": LOG,
    "typed": {"name": "tea"},
    "loop": LOG,
    "talk": {"messages": "tea"},
    "functional": {"input": "tea"},
    "paused": LOG,
    "paused_inside": LOG,
}


def answers(request: Pending) -> Decision:
    return Decision(request["id"], "proceed_once", text="7")


def decided(stage: Stage) -> str:
    """How many requests were decided: a kill passes none over."""
    return str(sum(len(queries.list_answered_requests(stage.home, row.run)) for row in list_runs(stage.home)))


SAMPLE = ("parallel", "functional")


@pytest.mark.parametrize(
    ("name", "every"),
    [(name, 41) for name in SAMPLE] + [pytest.param(name, 5, marks=pytest.mark.sweep) for name in GIVEN],
)
def test_killed_at_commits_it_ends_as_the_undisturbed_one(name: str, every: int, tmp_path: Path) -> None:
    """KILL_EVERY=1 takes all."""
    every = int(os.environ.get("KILL_EVERY", every))
    workflow = f"{SHAPES}:{name}"
    kills = kill_everywhere(Stage, workflow, GIVEN[name], tmp_path, person=answers, more=decided, every=every)
    assert kills >= 1


def test_the_tasks_of_a_functional_graph_are_steps_of_their_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    done = stage.play(f"{SHAPES}:functional", GIVEN["functional"], answers)
    found = [(step.node, step.depth) for step in list_steps(stage.home, done.run)]
    assert found == [("write_essay", 0), ("grade", 0), ("functional", 0)]


def test_an_answer_that_never_fits_ends_the_test_instead_of_hanging(tmp_path: Path) -> None:
    """By default, a person says yes."""
    with pytest.raises(UserError, match=r"was answered 20 times and is asked again: no answer fits\."):
        Stage(tmp_path).play(f"{SHAPES}:validated", LOG)
