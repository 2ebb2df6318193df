"""tasks_program: kills a task whose subtask has a subtask: each asks, runs a command, and hands its result up."""

import json
import sqlite3
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs.compare import unlike, unlike_in
from kill_runs.harness import Play, ended_well, show
from kill_runs.scene import Scene

from interlock.engine import Options
from interlock.engine.store.checkpoints import state_at
from interlock.services.transcript import ChainTranscript


def _calls(agent: str, name: str, **args: Any) -> dict[str, Any]:
    return {"agent": agent, "tool_calls": [{"name": name, "args": args}]}


def _level(agent: str, word: str, mode: str = "") -> list[dict[str, Any]]:
    """A task's replies: it changes a file, runs a command, perhaps delegates, and reports."""
    below = [_calls(agent, "new_task", mode=mode, message=f"below {word}", todos="[ ] it")] if mode else []
    return [
        *below,
        _calls(agent, "write_to_file", path=f"{word}.txt", content=f"{word}\n"),
        _calls(agent, "execute_command", command=f"echo {word} >> ../effects.log"),
        {**_calls(agent, "attempt_completion", result=f"{word} is done")},
    ]


REPLIES = (
    *_level("", "one", "debug"),
    *_level("task:0.0", "two", "code"),
    *_level("task:0.0/task:0.0", "three"),
)
SHORT = (*_level("", "one", "code"), *_level("task:0.0", "two"))
"""Without the third level, which goes through the same states as the second."""


class TaskScene(Scene):
    @property
    def options(self) -> Options:
        return replace(super().options, approval_mode="auto_edit")  # tasks and commands ask, in every level

    def expected_effects(self) -> tuple[str, ...]:
        calls = [c for reply in self.replies for c in reply["tool_calls"] if c["name"] == "execute_command"]
        return tuple(sorted(c["args"]["command"].split()[1] for c in calls))


@dataclass(frozen=True)
class TasksEnding:
    """How the stack ended, without times and record ids."""

    status: str
    response: str
    mode: str
    tree: dict[str, tuple[str, int]]
    effects: tuple[str, ...]
    runs: tuple[tuple[Any, ...], ...]
    """Run, parent, status and outcome: one child per call, none lost."""
    chains: dict[str, str]
    """Run → its whole conversation."""
    journal: dict[str, str]
    asked: int

    def differences(self, expected: "TasksEnding") -> list[str]:
        names = ("status", "response", "mode", "tree", "effects", "runs")
        found = unlike_in(names, self, expected)
        if not self.asked:  # otherwise answers to what was asked differ, as they should
            found += unlike("chain", self.chains, expected.chains)
            found += unlike("journal", self.journal, expected.journal)
        return found


def tasks_ending(scene: Scene) -> TasksEnding:
    outcome = scene.outcome()
    conn = sqlite3.connect(scene.store)
    try:
        (asked,) = conn.execute(
            "select count(*) from approvals where json_extract(request, '$.kind') = 'outcome'"
        ).fetchone()
        runs = tuple(conn.execute("select run, parent, status, outcome from runs order by run").fetchall())
        return TasksEnding(
            status=outcome["status"],
            response=outcome["output"].get("response", ""),
            mode=outcome["output"].get("mode", ""),
            tree=scene.tree(),
            effects=tuple(sorted(scene.effects())),
            runs=runs,
            chains={run: _chain(conn, scene, run) for run, *_ in runs},
            journal=_journal(conn),
            asked=asked,
        )
    finally:
        conn.close()


def _chain(conn: sqlite3.Connection, scene: Scene, run: str) -> str:
    head = state_at(scene.folder / "home", run)["head"]
    messages = ChainTranscript(conn, scene.folder / "home" / "outputs", run).read(head)
    return json.dumps([m.model_dump(mode="json") for m in messages if m.origin != "context"])


def _journal(conn: sqlite3.Connection) -> dict[str, str]:
    """Run, ordinal of the reply and index → tool, state and result."""
    places = {
        record: f"{agent}#{ordinal}"
        for record, agent, ordinal in conn.execute("select record, agent, ordinal from model_calls")
    }
    rows = conn.execute(
        "select message, idx, attempt, tool, state, json_extract(result, '$.content'), result_file from journal"
    )
    return {f"{places[m]}.{i}.{a}": json.dumps(rest) for m, i, a, *rest in rows}


if __name__ == "__main__":
    given = ("task", {"prompt": "Do it.", "mode": "code"})
    show(
        Play(
            REPLIES, SHORT, scene=TaskScene, ending=tasks_ending, sound=ended_well, given=given, times=(1, 5)
        )
    )
