"""tasks_program: kills a task whose subtask has a subtask: each asks, runs a command, and hands its result up."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs.compare import TreeEnding, conversation, tree_ending
from kill_runs.harness import Play, ended_well, show
from kill_runs.scene import Scene, call

from interlock.engine import Options
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.engine.store.connection import Connection


def _calls(agent: str, name: str, **args: Any) -> dict[str, Any]:
    return {"agent": agent, "tool_calls": [call(name, **args)]}


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


def tasks_ending(scene: Scene) -> TreeEnding:
    def below(conn: Connection) -> dict[str, Any]:
        runs = [*map(tuple, conn.execute("select run, parent, status, outcome from runs order by run"))]
        return {"mode": scene.outcome()["output"].get("mode", ""), "runs": runs}

    def chains(conn: Connection) -> dict[str, str]:
        heads = {
            run: read_state_at_step(scene.home, run)["head"]
            for (run,) in conn.execute("select run from runs")
        }
        return {run: conversation(conn, scene, run, head) for run, head in heads.items()}

    return tree_ending(scene, below, chains)


if __name__ == "__main__":
    given = ("task", {"prompt": "Do it.", "mode": "code"})
    show(
        Play(
            REPLIES, SHORT, scene=TaskScene, ending=tasks_ending, sound=ended_well, given=given, times=(1, 5)
        )
    )
