"""removal: deletes what a run recorded. What it changed in the workspace stays."""

import re
import shutil
import sqlite3
from pathlib import Path

from interlock.engine.process_identity import Owner, is_alive
from interlock.engine.store import Store
from interlock.services.outputs import remove_untouched
from interlock.services.sqlite import explained, transaction
from interlock.state.errors import BusyError

_KEPT = re.compile(r"\b(?:[0-9a-f]{32}|spool-[0-9a-f]{16})\.txt\b")
"""As `services/outputs.py` names them."""
_RECORD = re.compile(r"[0-9a-f]{64}\.json")
"""A row that was damaged may name anything."""
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
                last = _last_write(conn, run)
                files = _files(conn, store.outputs, run)
                _delete(conn, run)
            # After the commit, for a kill in between must leave no row without its file; and looked up once more,
            # with the write lock held, for another run may have named one of them since.
            with transaction(conn):
                for name in files - _files(conn, store.outputs, None) if files else ():
                    remove_untouched(store.outputs / name, last)
        finally:
            conn.close()
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


def _last_write(conn: sqlite3.Connection, run: str) -> float:
    """When the run last named a file: one that was touched later is in another run's hands."""
    (last,) = conn.execute(
        "select max(t) from (select max(cast(updated as real)) as t from runs where run = ?1 union all "
        "select max(cast(done_at as real)) from journal where run = ?1 union all "
        "select max(cast(done_at as real)) from hook_calls where run = ?1 union all "
        "select max(cast(at as real)) from model_calls where run = ?1)",
        (run,),
    ).fetchone()
    return last or 0.0


def _files(conn: sqlite3.Connection, outputs: Path, run: str | None) -> set[str]:
    """Names in `outputs/` that the records of a run (of all runs) hold: in columns, or in texts for the model."""
    rows = conn.execute(
        "select body, file from chain where ?1 is null or run = ?1 union all "
        "select coalesce(result, ''), result_file from journal where ?1 is null or run = ?1 union all "
        "select '', reply_file from hook_calls where ?1 is null or run = ?1",
        (run,),
    )
    found: set[str] = set()
    for text, file in rows:
        named = file if isinstance(file, str) and _RECORD.fullmatch(file) else None
        found |= {named} if named else set()
        whole = outputs / named if named else None
        body = whole.read_bytes() if whole and whole.exists() else text
        found.update(_KEPT.findall(body.decode(errors="replace") if isinstance(body, bytes) else str(body)))
    return found
