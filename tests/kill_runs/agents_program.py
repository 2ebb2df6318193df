"""agents_program: kills a parent with three parallel sub-agents; each reads, two run commands and write."""

import json
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs.compare import unlike, unlike_in
from kill_runs.harness import Play, ended_well, show
from kill_runs.scene import RUN, Scene

from interlock.engine.read.calls import agents
from interlock.services.transcript import ChainTranscript


def _call(name: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args}


def _worker(number: int, word: str) -> list[dict[str, Any]]:
    who = {"agent": f"generalist:0.{number}", "delay_s": 0.02}
    run = _call("run_shell_command", command=f"echo {word} >> ../effects.log")
    write = _call("write_file", file_path=f"{word}.txt", content=f"{word}\n")
    return [
        {**who, "tool_calls": [_call("read_file", file_path="a.txt"), run]},
        {**who, "tool_calls": [write, _call("no_such_tool")]},
        {**who, "tool_calls": [_call("complete_task", result=f"{word} is done")]},
    ]


_REPORT = {"SummaryOfFindings": "three lines", "ExplorationTrace": ["a.txt"], "RelevantLocations": []}
_DETECTIVE = {"agent": "codebase_investigator:0.2", "delay_s": 0.03}
_PAD = _call("update_scratchpad", questions=["what is in b.txt?"], findings=["a.txt has three lines"])
REPLIES: tuple[dict[str, Any], ...] = (
    {
        "text": "I send out scouts.",
        "tool_calls": [
            *(
                _call("invoke_agent", agent_name="generalist", prompt=f"do {word}")
                for word in ("alpha", "beta")
            ),
            _call("codebase_investigator", objective="what is in a.txt?"),
        ],
    },
    {"text": "All done."},
    *_worker(0, "alpha"),
    *_worker(1, "beta"),
    {**_DETECTIVE, "tool_calls": [_call("read_file", file_path="a.txt"), _PAD]},
    {**_DETECTIVE, "tool_calls": [_call("complete_task", report=_REPORT)]},
    {
        **_DETECTIVE,
        "tool_calls": [_call("update_scratchpad", questions=[]), _call("complete_task", report=_REPORT)],
    },
)


@dataclass(frozen=True)
class AgentsEnding:
    """How the tree ended, without times and record ids."""

    status: str
    response: str
    tree: dict[str, tuple[str, int]]
    effects: tuple[str, ...]
    agents: tuple[tuple[Any, ...], ...]
    """Path, state, turns, reason: none lost, one child per call."""
    chains: dict[str, str]
    """Agent → its whole conversation."""
    journal: dict[str, str]
    again: tuple[str, ...]
    """Steps that were completed, and run once more."""
    asked: int

    def differences(self, expected: "AgentsEnding") -> list[str]:
        names = ("status", "response", "tree", "effects", "agents", "again")
        found = unlike_in(names, self, expected)
        if not self.asked:  # otherwise answers to what was asked differ, as they should
            found += unlike("chain", self.chains, expected.chains)
            found += unlike("journal", self.journal, expected.journal)
        return found


def agents_ending(scene: Scene) -> AgentsEnding:
    outcome = scene.outcome()
    home = scene.folder / "home"
    conn = sqlite3.connect(scene.store)
    try:
        (asked,) = conn.execute(
            "select count(*) from approvals where json_extract(request, '$.kind') = 'outcome'"
        ).fetchone()
        return AgentsEnding(
            status=outcome["status"],
            response=outcome["output"].get("response", ""),
            tree=scene.tree(),
            effects=tuple(sorted(scene.effects())),
            agents=tuple((a.path, a.state, a.turns, a.reason) for a in agents(home, RUN)),
            chains=_chains(conn, scene),
            journal=_journal(conn, scene),
            again=_again(conn),
            asked=asked,
        )
    finally:
        conn.close()


def _chains(conn: sqlite3.Connection, scene: Scene) -> dict[str, str]:
    chain = ChainTranscript(conn, scene.folder / "home" / "outputs", RUN)
    last = conn.execute(
        "select agent, record from model_calls where role = 'main' group by agent having ordinal = max(ordinal)"
    ).fetchall()
    return {
        agent: json.dumps([m.model_dump(mode="json") for m in chain.read(record) if m.origin != "context"])
        for agent, record in last
    }


def _journal(conn: sqlite3.Connection, scene: Scene) -> dict[str, str]:
    """Agent, ordinal of the reply and index → tool, state and result."""
    places = {
        record: f"{agent}#{ordinal}"
        for record, agent, ordinal in conn.execute("select record, agent, ordinal from model_calls")
    }
    rows = conn.execute(
        "select message, idx, attempt, tool, state, json_extract(result, '$.content'), result_file from journal"
    )
    return {f"{places[m]}.{i}.{a}": json.dumps(rest) for m, i, a, *rest in rows}


def _again(conn: sqlite3.Connection) -> tuple[str, ...]:
    rows = conn.execute(
        "select workflow || '.' || node from steps where workflow <> '' "
        "group by namespace, task having count(*) > 1"
    )
    return tuple(name for (name,) in rows)


def sound(scene: Scene, found: AgentsEnding) -> bool:
    return ended_well(scene, found) and not found.again


if __name__ == "__main__":
    # Parallel agents may shift their moments by a few.
    show(Play(REPLIES, ending=agents_ending, sound=sound, times=(1, 5), exact=False))
