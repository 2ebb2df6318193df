"""removal: deletes what a run recorded. What it changed in the workspace stays."""

import re
import shutil
import sqlite3
from pathlib import Path

from interlock.engine.process_identity import Owner, is_alive
from interlock.engine.store import Store
from interlock.services.sqlite import explained, transaction
from interlock.state.errors import BusyError

_KEPT = re.compile(r"\b(?:[0-9a-f]{32}|spool-[0-9a-f]{16})\.txt\b")
"""As `services/outputs.py` names them."""
_TABLES = (
    "steps",
    "journal",
    "decisions",
    "hook_calls",
    "model_calls",
    "reservations",
    "approvals",
    "lease",
    "runs",
)


def remove_run(home: Path, run: str) -> None:
    """Delete a run's rows, and the files that only they named. Raises `BusyError` while it is driven."""
    store = Store(home)
    with explained(store.path):
        conn = store.connect("FULL")
        try:
            with transaction(conn):
                _refuse_driven(conn, run)
                files = _files(conn, run)
                kept = _kept_outputs(conn, store.outputs)
                _delete(conn, run)
                orphans = files - _files(conn, None)
                orphans |= kept - _kept_outputs(conn, store.outputs) if kept else set()
        finally:
            conn.close()
    for name in orphans:
        (store.outputs / name).unlink(missing_ok=True)
    shutil.rmtree(home / "plans" / run, ignore_errors=True)


def _refuse_driven(conn: sqlite3.Connection, run: str) -> None:
    row = conn.execute("select host, boot, pid, started from lease where run = ? and held", (run,)).fetchone()
    if row and is_alive(Owner(*row)) is not False:
        raise BusyError(f"Run {run!r} is driven by process {row[2]} on {row[0]}. Stop it there first.")


def _delete(conn: sqlite3.Connection, run: str) -> None:
    forked = conn.execute(
        "select 1 from runs where parent = ?1 union all "
        "select 1 from chain c join chain p on c.parent = p.id where p.run = ?1 and c.run <> ?1 limit 1",
        (run,),
    ).fetchone()
    if not forked:  # a fork reads its past from its parent's records (`engine.md` 9)
        conn.execute("delete from chain where run = ?", (run,))
    for table in ("checkpoints", "writes"):
        conn.execute(f"delete from {table} where thread_id = ?", (run,))
    for table in _TABLES:
        conn.execute(f"delete from {table} where run = ?", (run,))


def _files(conn: sqlite3.Connection, run: str | None) -> set[str]:
    """Names in `outputs/` that rows of the run (of any run) stand for."""
    rows = conn.execute(
        "select file from chain where file is not null and (?1 is null or run = ?1) union "
        "select result_file from journal where result_file is not null and (?1 is null or run = ?1) union "
        "select reply_file from hook_calls where reply_file is not null and (?1 is null or run = ?1)",
        (run,),
    )
    return {name for (name,) in rows}


def _kept_outputs(conn: sqlite3.Connection, outputs: Path) -> set[str]:
    """Tool outputs that were kept whole in files: the conversation names them to the model, no column does."""
    rows = conn.execute(
        "select body, file from chain union all select coalesce(result, ''), result_file from journal"
    )
    found: set[str] = set()
    for text, file in rows:
        whole = outputs / file if file else None
        body = whole.read_bytes() if whole and whole.exists() else text
        found.update(_KEPT.findall(body if isinstance(body, str) else body.decode()))
    return found
