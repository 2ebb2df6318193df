"""damage: what in the store can't be read, so that a damaged row is told as one and isn't taken for a bug."""

import json
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from interlock.engine.store.checkpoints import state_at
from interlock.engine.store.database import reading
from interlock.services.sqlite import explained
from interlock.services.transcript import continued_by, record_id
from interlock.state.errors import InterlockError, StoreError
from interlock.state.messages import Message

_MOST = 3
"""Damaged rows that an error names; `doctor --store` names all."""
_Check = Callable[[Any], object]


@contextmanager
def diagnosed(path: Path) -> Generator[None]:
    """As `explained`; and what fails for another reason while rows can't be read most likely fails because of them."""
    with explained(path):
        try:
            yield
        except (InterlockError, sqlite3.Error):
            raise
        except Exception as error:
            raise_if_damaged(path, error)
            raise


def raise_if_damaged(path: Path, error: Exception) -> None:
    """Raises `StoreError` when rows of the store can't be read; else `error` is a bug."""
    with reading(path.parent) as conn:
        found = list(unreadable(conn, path.parent / "outputs")) if conn else []
    if found:
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        raise StoreError(
            f"The store {str(path)!r} is damaged: {'; '.join(found[:_MOST])}{more}. See all with: interlock doctor "
            "--store; remove a run with: interlock runs rm RUN; or move the store away to start anew. What failed, "
            f"if that isn't why: {type(error).__name__}: {error}"
        ) from error


def unreadable(conn: sqlite3.Connection, outputs: Path) -> Iterator[str]:
    """One line for each row that doesn't hold what its columns are for, of every table."""
    for table, checks in _readers().items():
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
    """SQLite takes anything in any column."""
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
    except Exception:  # whatever a reader says to bytes that it wasn't made for
        return False
    return True


def _readers() -> dict[str, dict[str, _Check]]:
    """Table → column → what reads it. Whether a record is the one that was written is another question: `damage`."""
    from interlock.engine.read.runs import place_of
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
    if body and "root" not in _mapping(body):  # empty: the record is a file
        Message.model_validate_json(body)


def _error(text: str) -> str:
    value = _mapping(text)
    return f"{value['type']}: {value['message']}"


def damage(home: Path, run: str) -> Iterator[str]:
    """One line for each record of a conversation that is missing or whose bytes were changed."""
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
    """The newest record of the run's conversation; before its first checkpoint the one that it begins with."""
    row = conn.execute(
        "select 1 from checkpoints where thread_id = ? and checkpoint_ns = ''", (run,)
    ).fetchone()
    if row:
        return str(state_at(home, run).get("head") or "")
    (first,) = conn.execute("select input from runs where run = ?", (run,)).fetchone()
    begun = _mapping(first)
    return str(begun.get("head") or begun.get("prompt") or "")
