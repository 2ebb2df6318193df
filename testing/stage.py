"""stage: a folder in which a workflow runs for a test: workspace, home, store, scripted model, people.

Tables of scenes are played there: what model and people say, and the path taken; together they cover all edges.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlock.engine import Decision, Options, Outcome, resume_sync, run_sync
from interlock.engine.diagrams import declared_edges, taken_edges
from interlock.engine.options import Pending
from interlock.engine.read import (
    count_consecutive_root_nodes,
    list_runs,
    list_step_rows,
    list_steps,
    list_waiting_requests,
)
from interlock.engine.read.run_path import build_run_path
from interlock.engine.store import queries
from interlock.engine.workflows import WorkflowSource
from interlock.graphs import register_pipeline
from interlock.graphs.pipeline import Pipeline
from interlock.state.errors import UserError

Person = Callable[[Pending], Decision]
"""Decides one request."""
_ANSWERS = 20
"""To one question, before a test gives up."""


def said(request: Pending, what: str) -> Decision:
    """A decision from words: `approve`, `reject: WHY`, `edit: JSON`, `answer: TEXT`, `redo`, `skip`."""
    word, _, rest = what.partition(":")
    name, rest = request["id"], rest.strip()
    match word:
        case "approve":
            return Decision(name, "proceed_once")
        case "reject":
            return Decision(name, "reject", feedback=rest or None)
        case "edit":
            return Decision(name, "modify", args={**request["args"], **json.loads(rest)})
        case "answer":
            return Decision(name, "proceed_once", text=rest)
        case "redo" | "skip":
            return Decision(name, "proceed_once" if word == "redo" else "reject", text=word)
        case _:
            raise UserError(
                f"{what!r} decides nothing: expected approve, reject: WHY, edit: JSON, answer: TEXT, redo or skip."
            )


def agrees(request: Pending) -> Decision:
    """Approve everything and take the first option. Raises `UserError` if asked for an outcome hidden by a crash."""
    if request["kind"] == "approval":
        return said(request, "approve")
    if request["kind"] == "outcome":
        raise UserError(
            f"{request['id']!r} asks what became of {request['preview']!r}; this person can't know."
        )
    options = (request["questions"] or [{}])[0].get("options") or ["yes"]
    return said(request, f"answer: {options[0]}")


def reads_from(lines: Iterable[str]) -> Person:
    """A person who answers with these lines (`said`), one per request. Raises `UserError` when they run out."""
    waiting = iter(lines)

    def decide(request: Pending) -> Decision:
        line = next(waiting, None)
        if line is None:
            raise UserError(
                f"Nobody has an answer to {request['id']!r}: {request['reason']} {request['preview']!r}"
            )
        return said(request, line)

    return decide


def load_and_register_workflow(workflow: str | Path | Pipeline) -> Pipeline | str:
    """A workflow by name, by file, or itself; registered in this process from then on."""
    if isinstance(workflow, Path):
        workflow = WorkflowSource(workflow.stem.replace("_", "-"), workflow).load()
    if isinstance(workflow, Pipeline):
        register_pipeline(workflow)
    return workflow


@dataclass
class Stage:
    """Isolated from the user's settings, runs and keys; the model is a script of `replies` (`-m script:FILE`).

    `files` are written to its workspace, `folder/work`.
    """

    folder: Path
    replies: Iterable[Mapping[str, Any]] = ()
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of `Options`, like `allowed_tools`."""
    script: Path | None = None
    """A file of replies, used instead of `replies`."""

    def __post_init__(self) -> None:
        self.work, self.home = self.folder / "work", self.folder / "state"
        self.work.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            file = self.work / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        if self.script is None:
            self.script = self.folder / "script.json"
            self.script.write_text(json.dumps([*self.replies]), encoding="utf-8")

    @property
    def options(self) -> Options:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder / "user")}
        return Options(
            home=self.home,
            user_home=self.folder / "user",
            workspace=self.work,
            model=f"script:{self.script}",
            env=env,
            **self.given,
        )

    def run(self, workflow: str | Path | Pipeline, input: Mapping[str, Any]) -> Outcome:
        """Start the workflow; returns when it ends or needs a person's decision."""
        return run_sync(load_and_register_workflow(workflow), input, options=self.options)

    def resume(self, run: str, *decisions: Decision) -> Outcome:
        return resume_sync(run, decisions=decisions, options=self.options)

    def play(
        self, workflow: str | Path | Pipeline, input: Mapping[str, Any], person: Person = agrees
    ) -> Outcome:
        """Start the workflow and apply the person's decisions until it ends."""
        return self.settle(self.run(workflow, input), person)

    def settle(self, outcome: Outcome, person: Person = agrees) -> Outcome:
        """Apply the person's decisions until the run ends.

        Raises `UserError` where it never would: nothing to decide waits, or a question comes again for every answer.
        """
        asked = Counter[str]()
        while outcome.status == "waiting":
            asked.update(request["preview"] or request["reason"] for request in outcome.pending)
            if not outcome.pending:
                raise UserError(f"Run {outcome.run!r} waits, but no request of it does.")
            if asked.most_common(1)[0][1] > _ANSWERS:
                text = asked.most_common(1)[0][0]
                raise UserError(f"{text!r} was answered {_ANSWERS} times and is asked again: no answer fits.")
            outcome = self.resume(outcome.run, *map(person, outcome.pending))
        return outcome

    def waiting(self, run: str) -> list[Pending]:
        """Requests pending with a person."""
        return [request.fields for request in list_waiting_requests(self.home, run)]

    def path(self, run: str) -> list[str]:
        """The workflow's nodes in the order they ran."""
        return [
            node
            for node, times in count_consecutive_root_nodes(list_steps(self.home, run))
            for _ in range(times)
        ]

    def edges(self, outcome: Outcome) -> set[tuple[str, str]]:
        """Edges taken in the workflow's own graph."""
        taken = taken_edges(outcome.workflow, build_run_path(list_step_rows(self.home, outcome.run), "done"))
        return {(source, target) for graph, source, target in taken if graph == outcome.workflow}

    def calls(self) -> list[tuple[str, str]]:
        """Each attempt at a tool call of the runs here: its tool, and `scheduled`, `intent` or `done`."""
        runs = [row.run for row in list_runs(self.home)]
        return sorted(
            (row["tool"], row["state"]) for run in runs for row in queries.list_calls(self.home, run)
        )


@dataclass(frozen=True)
class Scene:
    """One row: an input, what the model and people say, and the nodes that must run, in order."""

    input: Mapping[str, Any]
    path: str
    """`plan verify fix verify`: nodes of the workflow's own graph, separated by spaces."""
    replies: Sequence[Mapping[str, Any]] = ()
    said: Sequence[str] = ()
    """What people say, one item per request (`said`)."""
    status: str = "done"
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """As in `Stage`."""


def check_paths(workflow: str | Path | Pipeline, scenes: Iterable[Scene], folder: Path) -> None:
    """Play each scene in its own folder below `folder`.

    Raises `AssertionError` for a scene that took another path or ended differently, and for edges no scene took.
    """
    named = load_and_register_workflow(workflow)
    name = named if isinstance(named, str) else named.name
    declared = {(source, target) for graph, source, target in declared_edges(name) if graph == name}
    for number, scene in enumerate(scenes):
        stage = Stage(folder / str(number), scene.replies, scene.files, scene.given)
        outcome = stage.play(named, scene.input, reads_from(scene.said))
        took = " ".join(stage.path(outcome.run))
        assert took == scene.path, f"scene {number} took {took!r}, expected {scene.path!r}"
        assert outcome.status == scene.status, f"scene {number} ended as {outcome.status!r}: {outcome.error}"
        declared -= stage.edges(outcome)
    assert not declared, f"no scene takes {sorted(declared)}"
