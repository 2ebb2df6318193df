"""agents: the tree of a run's sub-agents, read with sqlite3 alone."""

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store.database import reading


class Agent(NamedTuple):
    """One sub-agent of a run."""

    path: str
    """`NAME:CALL`, after its parent's path and a slash."""
    depth: int
    """0: started by the run itself."""
    state: str
    """open | waiting | done"""
    turns: int
    tokens: int
    reason: str
    """Why it ended: goal, max_turns, timeout, no_complete_task, aborted, error; empty: it hasn't."""
    seconds: float | None


def agents(home: Path, run: str) -> list[Agent]:
    """Every sub-agent that was started, each below its parent, in the order of the calls."""
    with reading(home) as conn:
        if conn is None:
            return []
        roots = conn.execute(
            "select distinct json_extract(cast(body as text), '$.root.agent') as agent from chain "
            "where run = ? and parent = '' and file is null",
            (run,),
        ).fetchall()
        used = {row["agent"]: row for row in _used(conn, run)}
        ended = _ended(home, conn, run)
        waiting = {agent for (agent,) in _waiting(conn, run)}
    paths = sorted((row["agent"] for row in roots if row["agent"]), key=_order)
    return [_agent(path, used.get(path), ended.get(path), path in waiting) for path in paths]


def _used(conn: sqlite3.Connection, run: str) -> list[sqlite3.Row]:
    return conn.execute(
        "select agent, sum(role = 'main') as turns, sum(input_tokens + output_tokens) as tokens "
        "from model_calls where run = ? group by agent",
        (run,),
    ).fetchall()


def _waiting(conn: sqlite3.Connection, run: str) -> list[tuple[str]]:
    return conn.execute(
        "select distinct json_extract(request, '$.agent') from approvals "
        "where run = ? and answer is null and superseded = 0 and interrupt is not null",
        (run,),
    ).fetchall()


def _ended(home: Path, conn: sqlite3.Connection, run: str) -> dict[str, dict[str, Any]]:
    """Agent → what the journal's row of its parent's call says of its end."""
    rows = conn.execute(
        "select result, result_file from journal where run = ? and state = 'done' "
        "and tool in ('invoke_agent', 'codebase_investigator')",
        (run,),
    ).fetchall()
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        text = row["result"]
        if row["result_file"]:
            path = home / "outputs" / row["result_file"]
            text = path.read_text(encoding="utf-8") if path.exists() else None
        result: dict[str, Any] = json.loads(text) if text else {}
        meta: dict[str, Any] = result.get("meta") or {}
        if "agent" in meta:
            found[meta["agent"]] = meta
    return found


def _agent(path: str, used: sqlite3.Row | None, meta: dict[str, Any] | None, waits: bool) -> Agent:
    return Agent(
        path,
        path.count("/"),
        "done" if meta else "waiting" if waits else "open",
        used["turns"] if used else 0,
        used["tokens"] if used else 0,
        meta["reason"] if meta else "",
        meta["duration_ms"] / 1000 if meta else None,
    )


def _order(path: str) -> list[tuple[list[int], str]]:
    """Each level by the numbers of its call, so that call 10 comes after call 9."""
    return [_place(part) for part in path.split("/")]


def _place(part: str) -> tuple[list[int], str]:
    call = part.rpartition(":")[2].partition("~")[0]
    return [int(n) for n in call.split(".") if n.isdecimal()], part
