"""listing_run: one run in detail: steps, calls, tokens; read with sqlite3 alone."""

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


class Call(NamedTuple):
    """One tool call, as the journal has it."""

    tool: str
    state: str
    """scheduled | intent | done"""
    status: str | None
    """success | error | cancelled, once it is done."""
    attempt: int
    args: dict[str, Any]
    summary: str
    """The error's first line, else the tool's own word for what came of it."""
    ms: float | None


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


def calls(home: Path, run: str) -> list[Call]:
    """Tool calls in the order in which they were done; those without a result last."""
    with reading(home) as conn:
        if conn is None:
            return []
        rows = conn.execute(
            "select j.*, c.body as asked, c.file as asked_file, a.body as answer, a.file as answer_file "
            "from journal j left join chain c on c.id = j.message left join chain a on a.id = j.record "
            "where j.run = ? "
            "order by coalesce(done_at, 9e99), coalesce(intent_at, 9e99), message, idx, attempt",
            (run,),
        ).fetchall()
    return [_call(home, row) for row in rows]


def _call(home: Path, row: sqlite3.Row) -> Call:
    result = _json(home, row["result"], row["result_file"])
    # Once the answer is in the conversation, its text is there and not in the journal.
    result = {**result, **_json(home, row["answer"], row["answer_file"])}
    asked: list[dict[str, Any]] = _json(home, row["asked"], row["asked_file"]).get("tool_calls", [])
    args = _json(home, row["args"], None)  # of an attempt with other arguments than the model's
    index: int = row["idx"]
    if not args and index < len(asked):
        args = asked[index].get("args", {})
    meta: dict[str, Any] = result.get("meta") or {}
    error: dict[str, Any] = result.get("error") or {}
    summary = str(error.get("message") or meta.get("summary") or result.get("content", ""))
    first = next(iter(summary.splitlines()), "")
    ms = meta.get("duration_ms")
    return Call(row["tool"], row["state"], result.get("status"), row["attempt"], args, first, ms)


def _json(home: Path, text: str | bytes | None, file: str | None) -> dict[str, Any]:
    """What a row holds, or the file in `outputs/` that it names."""
    if file:
        path = home / "outputs" / file
        text = path.read_bytes() if path.exists() else None
    return json.loads(text) if text else {}


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
