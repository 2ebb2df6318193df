"""damage: finds what in the store is unreadable or was altered; `doctor --store`, `show --verify`."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from interlock.engine.store import reading
from interlock.engine.store.checkpoints import state_at
from interlock.services.transcript import continued_by, record_id
from interlock.state.messages import Message

_Check = Callable[[Any], object]


def unreadable(conn: sqlite3.Connection, outputs: Path) -> Iterator[str]:
    """One line per row, of any table, with a value its column can't hold."""
    for table, checks in readers().items():
        columns = {name: (kind, bool(needed)) for _, name, kind, needed, *_ in _info(conn, table)}
        owner = "thread_id" if "thread_id" in columns else "run"
        for values in conn.execute(f"select {', '.join(columns)} from {table}"):
            row = dict(zip(columns, tuple(values), strict=True))
            wrong = [n for n, (kind, needed) in columns.items() if not _fits(row[n], kind, needed)]
            wrong += [
                n for n, check in checks.items() if n not in wrong and not _reads(check, row, n, outputs)
            ]
            if wrong:
                yield f"{', '.join(wrong)} of a row of {table!r}, run {row[owner]!r}"


def _info(conn: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return conn.execute(f"pragma table_info({table})").fetchall()


def _fits(value: object, kind: str, needed: bool) -> bool:
    """Check the type: SQLite accepts anything in any column."""
    if value is None:
        return not needed
    wanted = {"text": str, "blob": bytes, "integer": int, "real": (int, float)}[kind.lower()]
    return isinstance(value, cast("type", wanted))


def _reads(check: _Check, row: dict[str, Any], name: str, outputs: Path) -> bool:
    try:
        value = row[name]
        if value is not None and name.endswith("file"):
            value = (outputs / value).read_bytes()
        if value is not None:
            check((row["type"], value) if name in ("checkpoint", "value") else value)
    except Exception:  # readers fail in any way on bytes they don't expect
        return False
    return True


def readers() -> dict[str, dict[str, _Check]]:
    """Table → column → parser. Whether a record is the one originally written is checked by `damage`."""
    from interlock.engine.read import place_of
    from interlock.engine.store.saver import Serde
    from interlock.services.hooks.reply import Reply
    from interlock.state.calls import Answer, ApprovalRequest, Planned, SessionRule, ToolResult
    from interlock.state.journal import DecisionRecord

    serde = Serde()
    result, reply = ToolResult.model_validate_json, Reply.model_validate_json
    return {
        "runs": {"options": _mapping, "input": _mapping, "error": _error},
        "chain": {"body": _record, "file": _record},
        "model_calls": {},
        "reservations": {},
        "journal": {
            "args": _mapping,
            "planned": Planned.model_validate_json,
            "result": result,
            "result_file": result,
        },
        "decisions": {"body": DecisionRecord.model_validate_json},
        "hook_calls": {"reply": reply, "reply_file": reply},
        "server_replies": {"asked": _list, "reply": _mapping},
        "approvals": {
            "id": place_of,
            "request": ApprovalRequest.model_validate_json,
            "answer": Answer.model_validate_json,
            "rule": SessionRule.model_validate_json,
        },
        "steps": {},
        "snapshots": {},
        "lease": {},
        "checkpoints": {"checkpoint": serde.loads_typed, "metadata": _mapping},
        "writes": {"value": serde.loads_typed},
    }


def _mapping(text: str | bytes) -> dict[str, Any]:
    value: object = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"no mapping: {text!r}")
    return cast("dict[str, Any]", value)


def _list(text: str) -> None:
    if not isinstance(json.loads(text), list):
        raise TypeError(f"no list: {text!r}")


def _record(body: bytes) -> None:
    if body and "root" not in _mapping(body):  # empty: the record is in a file
        Message.model_validate_json(body)


def _error(text: str) -> str:
    value = _mapping(text)
    return f"{value['type']}: {value['message']}"


def damaged_pages(home: Path, *, quick: bool = False) -> list[str]:
    """What SQLite finds wrong with the file; `quick`: at most one line, and indexes aren't compared."""
    with reading(home) as conn:
        rows = conn.execute("pragma quick_check(1)" if quick else "pragma integrity_check") if conn else ()
        return [text for (text,) in rows if text != "ok"]


def damage(home: Path, run: str) -> Iterator[str]:
    """One line per conversation record that is missing or was altered."""
    with reading(home) as conn:
        if conn is None:
            return
        rows = conn.execute(
            "select id, parent, body, file from chain where run = ? order by id", (run,)
        ).fetchall()
        known = {row["id"] for row in conn.execute("select id from chain")}
        head = _newest(home, conn, run)
        for row in rows:
            body: object = row["body"]
            if row["file"]:
                file = home / "outputs" / row["file"]
                body = file.read_bytes() if file.exists() else None
            if not isinstance(body, bytes) or record_id(row["parent"], body) != row["id"]:
                yield f"record {row['id'][:12]}… was changed, or its file is missing"
            elif not row["parent"] and (old := continued_by(body)) and old not in known:
                yield f"record {old[:12]}… is missing; the chain {row['id'][:12]}… continues it"
            if row["parent"] and row["parent"] not in known:
                yield f"record {row['parent'][:12]}… is missing; {row['id'][:12]}… follows it"
        if head and head not in known:
            yield f"record {head[:12]}…, the newest of the conversation, is missing"


def _newest(home: Path, conn: sqlite3.Connection, run: str) -> str:
    """The newest record of the run's conversation; before its first checkpoint, its first record."""
    row = conn.execute(
        "select 1 from checkpoints where thread_id = ? and checkpoint_ns = ''", (run,)
    ).fetchone()
    if row:
        return str(state_at(home, run).get("head") or "")
    (first,) = conn.execute("select input from runs where run = ?", (run,)).fetchone()
    begun = _mapping(first)
    return str(begun.get("head") or begun.get("prompt") or "")
