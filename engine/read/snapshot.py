"""snapshot: a run's state at one of its root checkpoints, and its conversation there."""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from interlock.engine.store.database import reading, select
from interlock.engine.store.packed import checkpoint_of
from interlock.services.transcript import ChainTranscript
from interlock.state.errors import UserError
from interlock.state.messages import Message


def state_at(home: Path, run: str, step: int | None = None) -> dict[str, Any]:
    """The state after a root step; the newest without one. Raises `UserError` naming the steps that there are."""
    rows = select(
        home,
        "select type, checkpoint, json_extract(cast(metadata as text), '$.step') as step from checkpoints "
        "where thread_id = ? and checkpoint_ns = '' order by checkpoint_id",
        run,
    )
    steps = [row["step"] for row in rows]
    if not rows:
        raise UserError(
            f"Run {run!r} has no checkpoint yet. Look again, or resume it: interlock resume {run}"
        )
    if step is not None and step not in steps:
        raise UserError(
            f"Run {run!r} has no step {step}: it has {steps[0]} to {steps[-1]}. See: interlock history {run}"
        )
    # A root step that was done again after a crash has two checkpoints: the newer one counts.
    values = _values(rows[-1] if step is None else [r for r in rows if r["step"] == step][-1])
    return {k: v for k, v in values.items() if not k.startswith(("__", "branch:"))}


def state_within(home: Path, run: str) -> dict[str, Any]:
    """The newest state of a batch that is under way or waits; empty where there is none."""
    rows = select(
        home,
        "select type, checkpoint from checkpoints where thread_id = ? and checkpoint_ns like 'tools:%' "
        "and instr(checkpoint_ns, '|') = 0 order by checkpoint_id desc limit 1",
        run,
    )
    return _values(rows[0]) if rows else {}


def _values(row: sqlite3.Row) -> dict[str, Any]:
    return checkpoint_of(row["type"], row["checkpoint"])["channel_values"]


def first_prompt(home: Path, run: str) -> str:
    """What a run was begun with, also before its first checkpoint; empty: it takes none."""
    rows = select(home, "select input from runs where run = ?", run)
    record = str(json.loads(rows[0]["input"]).get("prompt") or "") if rows else ""
    told = messages_at(home, run, record)
    return told[-1].text if told else ""


def messages_at(home: Path, run: str, head: str) -> list[Message]:
    """The conversation up to a record of the chain."""
    with reading(home) as conn:
        if conn is None or not head:
            return []
        return ChainTranscript(conn, home / "outputs", run).read(head)


def dropped(home: Path, run: str) -> list[list[Message]]:
    """What each compression or masking of the conversation took out of it, word for word, oldest first."""
    head = str(state_at(home, run).get("head") or "")
    found: list[list[Message]] = []
    with reading(home) as conn:
        if conn is None:
            return []
        chain = ChainTranscript(conn, home / "outputs", run)
        while head and (old := chain.continued(head)):
            kept = Counter(m.model_dump_json() for m in chain.read(head))
            gone: list[Message] = []
            for message in chain.read(old):
                text = message.model_dump_json()
                kept[text] -= 1
                if kept[text] < 0:
                    gone.append(message)
            found.append(gone)
            head = old
    return found[::-1]
