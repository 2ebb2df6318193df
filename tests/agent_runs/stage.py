"""stage: a workspace and a store for runs with sub-agents and plans."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from databases import changed
from folders import put
from scripted import call

from interlock.engine import Decision, Options, Outcome, resume_sync, run_sync
from interlock.engine.diagrams import declared_edges, taken_edges
from interlock.engine.read.run_path import build_run_path
from interlock.engine.store import select_rows
from interlock.state.events import Event

Replies = list[dict[str, Any]]
Move = Callable[[Outcome], list[Decision]]
"""What a person decides."""
REPORT = {
    "SummaryOfFindings": "f does nothing",
    "ExplorationTrace": ["read a.py"],
    "RelevantLocations": [{"FilePath": "a.py", "Reasoning": "it is there", "KeySymbols": ["f"]}],
}


HOOK_NODES = frozenset(
    {
        *("before_agent", "after_agent", "before_model", "before_tool_selection", "after_model"),
        *("pre_compress", "ask_hook", "await_hook", "before_tool", "after_tool", "notify"),
    }
)
"""Nodes whose edges `test_hooks_in_turns` and `test_hooks_around_calls` cover."""


CHECK_NODES = {
    *("run_check", "compare_tests", "run_old_tests", "try_view", "ask_tests", "notify_tests", "await_tests"),
    "take_tests",
}
"""Nodes whose edges `test_checks` covers."""


def of_checks(edge: tuple[str, str, str]) -> bool:
    """Whether an edge starts or ends at a node of a check."""
    return bool(CHECK_NODES.intersection(edge[1:]))


def of_hooks(edge: tuple[str, str, str]) -> bool:
    """Whether an edge starts or ends at a hook node, and at none of a check."""
    return bool(HOOK_NODES.intersection(edge[1:])) and not of_checks(edge)


def says(agent: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One reply of a sub-agent."""
    return {"agent": agent, "tool_calls": list(calls), **more}


def complete(**args: Any) -> dict[str, Any]:
    return call("complete_task", **args)


@dataclass
class Stage:
    """One workspace, one store, one script."""

    folder: Path
    replies: Replies
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    events: list[Event] = field(default_factory=list[Event])
    follow: bool = True
    """Also drive the run that carries on an ended one's work."""

    def __post_init__(self) -> None:
        self.work = self.folder / "work"
        put(self.work / "a.py", "def f(): pass\n")
        self.write(self.replies)

    def write(self, replies: Replies) -> None:
        put(self.folder / "script.json", replies)

    @property
    def options(self) -> Options:
        model = {"streamRetryDelay": 0, "skipNextSpeakerCheck": True, **self.settings.get("model", {})}
        return Options(
            home=self.folder / "home",
            user_home=self.folder / "user",
            workspace=self.work,
            model=f"script:{self.folder / 'script.json'}",
            overrides={**self.settings, "model": model},
            limits=self.limits,
            env={"PATH": os.environ["PATH"]},
        )

    def run(self, workflow: str, given: dict[str, Any], **options: Any) -> Outcome:
        chosen = replace(self.options, **options)
        return run_sync(workflow, given, options=chosen, renderers=[self.events.append], follow=self.follow)

    def resume(self, outcome: Outcome, *decisions: Decision, **options: Any) -> Outcome:
        """Resume in another drive, as another process would."""
        chosen = replace(self.options, **options)
        return resume_sync(
            outcome.run,
            decisions=decisions,
            options=chosen,
            renderers=[self.events.append],
            follow=self.follow,
        )

    def rows(self, sql: str, *values: Any) -> list[Any]:
        return select_rows(self.folder / "home", sql, *values)

    def age(self, seconds: float) -> None:
        """Pretend that the run parked so many seconds earlier."""
        changed(self.folder / "home", "update step_rows set started = started - $1", seconds)

    def edges(self, outcome: Outcome) -> set[tuple[str, str, str]]:
        rows = self.rows("select * from steps where run = $1 order by seq", outcome.run)
        return taken_edges(
            outcome.workflow, build_run_path(rows, "running" if outcome.status == "waiting" else "done")
        )


def approve(outcome: Outcome, choice: str = "proceed_once") -> list[Decision]:
    return [Decision(p["id"], choice) for p in outcome.pending]


def refuse(outcome: Outcome) -> list[Decision]:
    return approve(outcome, "reject")


def cancel(outcome: Outcome) -> list[Decision]:
    return approve(outcome, "cancel")


def answer(text: str) -> Move:
    """Say this to the first request."""
    return lambda outcome: [Decision(outcome.pending[0]["id"], "proceed_once", text=text)]


def send_back(feedback: str) -> Move:
    return lambda outcome: [Decision(outcome.pending[0]["id"], "reject", feedback=feedback)]


def modify(**args: Any) -> Move:
    """Approve the first request with other arguments."""
    return lambda outcome: [
        Decision(outcome.pending[0]["id"], "modify", args={**outcome.pending[0]["args"], **args})
    ]


def untaken(graph: str, runs: Iterable[tuple["Stage", Outcome]]) -> set[tuple[str, str, str]]:
    """The edges of a graph, but those of hooks and checks, that no run took."""
    taken = {edge for stage, outcome in runs for edge in stage.edges(outcome)}
    mine = {edge for edge in declared_edges(graph) if edge[0] == graph}
    return {edge for edge in mine if not of_hooks(edge) and not of_checks(edge)} - taken


def answers(outcome: Outcome) -> list[str]:
    """What the model was told of its calls."""
    return [m["content"] for m in outcome.output["history"] if m["role"] == "tool"]
