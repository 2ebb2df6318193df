"""named_files: which files of `outputs/` the rows of each run name, so that a removal reads no rows of other runs."""

import re
from collections.abc import Collection
from pathlib import Path

from interlock.engine.store import among, listed_as_keys
from interlock.engine.store.blobs import blobs_of
from interlock.engine.store.connection import Connection

_KEPT = re.compile(rb"\b(?:[0-9a-f]{32}|spool-[0-9a-f]{16})\.txt\b")
"""Names given by `services/files/filesystem.py`, in texts for the model."""
_RECORD = re.compile(r"[0-9a-f]{64}\.json")
"""Checked because a damaged row may name anything."""


def note_files(conn: Connection, run: str, body: bytes, file: str | None) -> None:
    """List the files that a row names: in its text, and the one that holds the text. With the row's own commit."""
    for name in _names_in(body, file):
        conn.insert("named_files", {"name": name, "run": run}, "keep")


def _names_in(body: bytes, file: str | None) -> set[str]:
    found = {name.decode() for name in _KEPT.findall(body)} if b".txt" in body else set[str]()
    return found | {file} if file is not None and _RECORD.fullmatch(file) else found


def files_of(conn: Connection, outputs: Path, run: str) -> set[str]:
    """Names in `outputs/` held by the records of a run."""
    if not _is_complete(conn):  # a store of an earlier version
        return _files_in_rows(conn, outputs, run)
    return {
        name for (name,) in conn.execute("select name from named_files where run = $1", (run,)).fetchall()
    }


def named_by_others(conn: Connection, outputs: Path, names: Collection[str]) -> set[str]:
    """Which of these the rows of any run name. Inside a transaction: it completes the list of an earlier version."""
    if names and not _is_complete(conn):
        _complete(conn, outputs)
    query = f"select distinct name from named_files where name in {among()}"
    return {name for (name,) in conn.execute(query, (listed_as_keys(names),)).fetchall()}


def list_again(conn: Connection, outputs: Path, run: str) -> None:
    """List what a run's rows name that are left."""
    for name in _files_in_rows(conn, outputs, run):
        conn.insert("named_files", {"name": name, "run": run}, "keep")


def _is_complete(conn: Connection) -> bool:
    """Whether all runs are listed: not if some are of a version that had no list."""
    return conn.execute("select 1 from named_files where name = '' and run = ''").fetchone() is not None


def _complete(conn: Connection, outputs: Path) -> None:
    runs = conn.execute("select run from runs union select run from chain").fetchall()
    for (run,) in runs:
        list_again(conn, outputs, run)
    conn.insert("named_files", {"name": "", "run": ""}, "keep")


def _files_in_rows(conn: Connection, outputs: Path, run: str) -> set[str]:
    rows = [
        *conn.execute("select body, file from chain where run = $1", (run,)),
        *conn.execute("select result, result_file from journal where run = $1", (run,)),
        *conn.execute("select '', reply_file from hook_calls where run = $1", (run,)),
    ]
    found, blobs = set[str](), blobs_of(conn, outputs)
    for text, file in rows:
        named = file if isinstance(file, str) and _RECORD.fullmatch(file) else None
        body = blobs.read_body(text, named) or text or b""
        found |= _names_in(body if isinstance(body, bytes) else str(body).encode(errors="replace"), named)
    return found
