"""integrity: finds what in the store is unreadable or was altered; `doctor --store`, `show --verify`."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from interlock.engine.store import Store, open_reader
from interlock.engine.store.blobs import open_blob_storage
from interlock.engine.store.connection import Column, Connection
from interlock.engine.store.tables import TABLES
from interlock.services.files.blobs import Blobs, inflate_if_deflated

if TYPE_CHECKING:
    pass

_Check = Callable[[Any], object]


def find_unreadable_rows(
    conn: Connection, outputs: Path, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Iterator[str]:
    """One line per row, of any table, with a value its column can't hold. `on_progress`: rows read, and rows in all."""
    blobs, done = open_blob_storage(conn, outputs), 0
    total = sum(conn.execute(f"select count(*) from {table.name}").fetchone()[0] for table in TABLES)
    for table in TABLES:
        checks = {name: _load_column_reader(where) for name, where in table.holds.items()}
        columns = conn.list_columns(table.name)
        for values in conn.execute(f"select {', '.join(c.name for c in columns)} from {table.name}"):
            row = dict(zip((c.name for c in columns), tuple(values), strict=True))
            on_progress(done := done + 1, total)
            wrong = [c.name for c in columns if not _fits_column(row[c.name], c)]
            wrong += [
                n
                for n, check in checks.items()
                if n not in wrong and not _is_column_readable(check, row, n, blobs)
            ]
            if wrong:
                yield f"{', '.join(wrong)} of a row of {table.name!r}, run {row[table.owner]!r}"


def _load_column_reader(reference: str) -> _Check:
    module, _, name = reference.partition(":")
    found = getattr(import_module(module), name)
    return getattr(found, "model_validate_json", found)


def _fits_column(value: object, column: Column) -> bool:
    """Check the type: SQLite accepts anything in any column."""
    return isinstance(value, column.kind) if value is not None else not column.needed


def _is_column_readable(check: _Check, row: dict[str, Any], name: str, blobs: Blobs) -> bool:
    try:
        value = row[name]
        if value is not None and name.endswith("file"):
            value = blobs.load_named_body(value) or b""
        if value is not None:
            check((row["type"], value) if name in ("checkpoint", "value") else value)
    except Exception:  # readers fail in any way on bytes they don't expect
        return False
    return True


def parse_mapping(text: str | bytes) -> dict[str, Any]:
    value: object = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"no mapping: {text!r}")
    return cast("dict[str, Any]", value)


def check_json_list(text: str) -> None:
    if not isinstance(json.loads(text), list):
        raise TypeError(f"no list: {text!r}")


def check_chain_record(body: bytes) -> None:
    from interlock.state.messages import Message  # deferred: lists import this module, and need no messages

    body = inflate_if_deflated(body)
    if body and "root" not in parse_mapping(body):  # empty: the record is in a file
        Message.model_validate_json(body)


def format_stored_error(text: str) -> str:
    value = parse_mapping(text)
    return f"{value['type']}: {value['message']}"


def find_damaged_pages(home: Path, *, quick: bool = False) -> list[str]:
    """What the database finds wrong with its file; `quick`: at most one line, and indexes aren't compared."""
    with open_reader(home) as conn:
        return Store(home).database.find_damaged_pages(conn, quick=quick) if conn else []


def find_damaged_records(home: Path, run: str) -> Iterator[str]:
    """One line per conversation record that is missing or was altered."""
    from interlock.services.transcript import parse_continued_head, record_hash

    with open_reader(home) as conn:
        if conn is None:
            return
        blobs = open_blob_storage(conn, home / "outputs")
        rows = conn.execute(
            "select id, parent, body, file from chain where run = $1 order by id", (run,)
        ).fetchall()
        known = {row["id"] for row in conn.execute("select id from chain")}
        head = _read_newest_record_id(home, conn, run)
        for row in rows:
            body = blobs.read_body(row["body"], row["file"])
            if not isinstance(body, bytes) or record_hash(row["parent"], body) != row["id"]:
                yield f"record {row['id'][:12]}… was changed, or its file is missing"
            elif not row["parent"] and (old := parse_continued_head(body)) and old not in known:
                yield f"record {old[:12]}… is missing; the chain {row['id'][:12]}… continues it"
            if row["parent"] and row["parent"] not in known:
                yield f"record {row['parent'][:12]}… is missing; {row['id'][:12]}… follows it"
        if head and head not in known:
            yield f"record {head[:12]}…, the newest of the conversation, is missing"


def _read_newest_record_id(home: Path, conn: Connection, run: str) -> str:
    """The newest record of the run's conversation; before its first checkpoint, its first record."""
    row = conn.execute(
        "select 1 from checkpoints where thread_id = $1 and checkpoint_ns = ''", (run,)
    ).fetchone()
    if row:
        from interlock.engine.store.checkpoints import read_state_at_step

        return str(read_state_at_step(home, run).get("head") or "")
    (first,) = conn.execute("select input from runs where run = $1", (run,)).fetchone()
    begun = parse_mapping(first)
    return str(begun.get("head") or begun.get("prompt") or "")


def find_changed_or_missing_messages(home: Path, conn: Connection) -> Iterator[str]:
    """Yield a line per message that was changed or is missing: calls and results are named by their hashes."""
    from interlock.services.transcript import record_hash

    blobs = open_blob_storage(conn, home / "outputs")
    known: set[str] = set()
    for name, run, parent, body, file in conn.execute("select id, run, parent, body, file from chain"):
        known.add(name)
        data = blobs.read_body(body, file)
        if not isinstance(data, bytes) or record_hash(parent, data) != name:
            yield f"message {name[:12]}… of run {run} was changed, or its file is missing"
    for run, name in conn.execute(
        "select run, message from journal union select run, record from journal where record is not null"
    ):
        if name not in known:
            yield f"message {name[:12]}… of run {run} is missing"
