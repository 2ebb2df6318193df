"""agents_program: kills a parent with three parallel sub-agents; each reads, two run commands and write."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs.compare import TreeEnding, conversation, tree_ending
from kill_runs.harness import Play, ended_well, show
from kill_runs.scene import RUN, Scene, call, shell
from scripted import tools

from interlock.engine.read.calls import list_agents
from interlock.engine.store.connection import Connection


def _worker(number: int, word: str) -> list[dict[str, Any]]:
    who = {"agent": f"generalist:0.{number}", "delay_s": 0.02}
    write = call("write_file", file_path=f"{word}.txt", content=f"{word}\n")
    return [
        {**who, "tool_calls": [call("read_file", file_path="a.txt"), shell(word)]},
        {**who, "tool_calls": [write, call("no_such_tool")]},
        {**who, "tool_calls": [call("complete_task", result=f"{word} is done")]},
    ]


_REPORT = {"SummaryOfFindings": "three lines", "ExplorationTrace": ["a.txt"], "RelevantLocations": []}
_DETECTIVE = {"agent": "codebase_investigator:0.2", "delay_s": 0.03}
_PAD = call("update_scratchpad", questions=["what is in b.txt?"], findings=["a.txt has three lines"])
REPLIES: tuple[dict[str, Any], ...] = (
    tools(
        *(call("invoke_agent", agent_name="generalist", prompt=f"do {word}") for word in ("alpha", "beta")),
        call("codebase_investigator", objective="what is in a.txt?"),
        text="I send out scouts.",
    ),
    {"text": "All done."},
    *_worker(0, "alpha"),
    *_worker(1, "beta"),
    {**_DETECTIVE, "tool_calls": [call("read_file", file_path="a.txt"), _PAD]},
    {**_DETECTIVE, "tool_calls": [call("complete_task", report=_REPORT)]},
    {
        **_DETECTIVE,
        "tool_calls": [call("update_scratchpad", questions=[]), call("complete_task", report=_REPORT)],
    },
)


def agents_ending(scene: Scene) -> TreeEnding:
    last = (
        "select agent, record from model_calls c where role = 'main' and ordinal = "
        "(select max(ordinal) from model_calls where agent = c.agent and role = 'main')"
    )

    def below(conn: Connection) -> dict[str, Any]:
        ended = [(a.path, a.state, a.turns, a.reason) for a in list_agents(scene.home, RUN)]
        return {"agents": ended, "again": _again(conn)}

    def chains(conn: Connection) -> dict[str, str]:
        return {
            agent: conversation(conn, scene, RUN, record) for agent, record in conn.execute(last).fetchall()
        }

    return tree_ending(scene, below, chains)


def _again(conn: Connection) -> list[str]:
    """Steps that were completed, and run once more."""
    rows = conn.execute(
        "select min(workflow) || '.' || min(node) from steps where workflow <> '' "
        "group by namespace, task having count(*) > 1"
    )
    return [name for (name,) in rows]


def sound(scene: Scene, found: TreeEnding) -> bool:
    return ended_well(scene, found) and not found.same["again"]


if __name__ == "__main__":
    # Parallel agents may shift their moments by a few.
    show(Play(REPLIES, ending=agents_ending, sound=sound, times=(1, 5), exact=False))
