"""listing_run: one run in detail: steps, checkpoints, tokens; read with sqlite3 alone."""

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store_file import reading


class Step(NamedTuple):
    """One node that ran."""

    step: int
    """The root step that it led to: the state after it is what --at and diff show under this number."""
    depth: int
    """0 for a node of the root graph."""
    workflow: str
    node: str
    started: float
    """Unix time, seconds."""
    ms: float
    keys: tuple[str, ...]
    """What it changed in the state."""
    route: str | None


class Checkpoint(NamedTuple):
    """One root checkpoint."""

    step: int
    id: str
    source: str
    """input | loop | update | fork"""


def steps(home: Path, run: str) -> list[Step]:
    """Every node that ran, in the order in which they ended."""
    return [_step(row) for row in step_rows(home, run)]


def step_rows(home: Path, run: str) -> list[sqlite3.Row]:
    """The rows of `steps`, as `diagrams.run_path` reads them."""
    with reading(home) as conn:
        if conn is None:
            return []
        return conn.execute("select * from steps where run = ? order by seq", (run,)).fetchall()


def _step(row: sqlite3.Row) -> Step:
    keys = tuple(k for k in row["keys"].split(",") if k)
    depth = row["namespace"].count("|") + 1 if row["namespace"] else 0
    return Step(
        row["root_step"] + 1,
        depth,
        row["workflow"],
        row["node"],
        row["started"],
        row["ms"],
        keys,
        row["route"],
    )


def path(taken: list[Step], depth: int = 0) -> list[tuple[str, int]]:
    """Nodes of one depth in the order taken, repetitions in a row counted."""
    found: list[tuple[str, int]] = []
    for step in taken:
        if step.depth != depth:
            continue
        if found and found[-1][0] == step.node:
            found[-1] = (step.node, found[-1][1] + 1)
        else:
            found.append((step.node, 1))
    return found


def checkpoints(home: Path, run: str) -> list[Checkpoint]:
    """Root checkpoints, oldest first."""
    with reading(home) as conn:
        if conn is None:
            return []
        rows = conn.execute(
            "select checkpoint_id, metadata from checkpoints where thread_id = ? and checkpoint_ns = '' "
            "order by checkpoint_id",
            (run,),
        ).fetchall()
    return [_checkpoint(row["checkpoint_id"], json.loads(row["metadata"])) for row in rows]


def _checkpoint(name: str, metadata: dict[str, Any]) -> Checkpoint:
    return Checkpoint(metadata.get("step", 0), name, metadata.get("source", ""))


def models(home: Path, run: str) -> dict[str, dict[str, int]]:
    """Model → requests and tokens."""
    with reading(home) as conn:
        if conn is None:
            return {}
        rows = conn.execute(
            "select model, count(*) as requests, sum(input_tokens) as input_tokens, "
            "sum(output_tokens) as output_tokens, sum(cached_tokens) as cached, "
            "sum(thought_tokens) as thoughts, sum(duration_ms) as duration_ms "
            "from model_calls where run = ? group by model order by model",
            (run,),
        ).fetchall()
    return {row["model"]: {k: row[k] for k in row.keys()[1:]} for row in rows}
