"""runs: the row that a run is listed by, and its removal."""

import json
import re
import secrets
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.engine.driver.lease import Owner, is_alive
from interlock.engine.store import Store, insertion
from interlock.services.files.filesystem import remove_untouched
from interlock.services.sqlite import explained, transaction
from interlock.state.errors import BusyError

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: no letter that reads as another."""
_ID_LENGTH = 8
"""40 bits: among 10,000 runs of a store two collide with a chance of 1 in 20,000; `insert_run` would refuse."""


@dataclass(frozen=True)
class NewRun:
    """What is known of a run when it begins."""

    run: str
    workflow: str
    workspace: str
    title: str
    options: Mapping[str, Any]
    input: Mapping[str, Any]
    """The graph's first input: small, for texts are in the chain."""


def new_run_id() -> str:
    """Short enough to be typed."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))


def insert_run(conn: sqlite3.Connection, run: NewRun) -> None:
    """Fails when the id is taken: a run is never overwritten."""
    now = time.time()
    with transaction(conn):
        texts = {"options": json.dumps(run.options), "input": json.dumps(run.input)}
        times = {"created": now, "updated": now}
        conn.execute(*insertion("runs", {**vars(run), **texts, **times, "status": "open"}))


def read_options(conn: sqlite3.Connection, run: str) -> dict[str, Any]:
    (text,) = conn.execute("select options from runs where run = ?", (run,)).fetchone()
    return json.loads(text)


def keep_rights(conn: sqlite3.Connection, run: str, rights: Mapping[str, Any]) -> None:
    """The rules that a run goes on with."""
    options = read_options(conn, run)
    if options.get("rights") != rights:
        with transaction(conn):
            text = json.dumps({**options, "rights": rights})
            conn.execute("update runs set options = ? where run = ?", (text, run))


def read_input(conn: sqlite3.Connection, run: str) -> dict[str, Any]:
    (text,) = conn.execute("select input from runs where run = ?", (run,)).fetchone()
    return json.loads(text)


def note_error(conn: sqlite3.Connection, run: str, error: Mapping[str, str] | None) -> None:
    """What went wrong last; None clears it."""
    with transaction(conn):
        conn.execute(
            "update runs set error = ?, updated = ? where run = ?",
            (json.dumps(error) if error else None, time.time(), run),
        )


_KEPT = re.compile(r"\b(?:[0-9a-f]{32}|spool-[0-9a-f]{16})\.txt\b")
"""As `services/files/filesystem.py` names them."""
_RECORD = re.compile(r"[0-9a-f]{64}\.json")
"""A row that was damaged may name anything."""
_TABLES = (
    "steps",
    "journal",
    "decisions",
    "hook_calls",
    "server_replies",
    "snapshots",
    "model_calls",
    "reservations",
    "approvals",
    "lease",
    "runs",
)


def remove_run(home: Path, run: str) -> None:
    """Delete a run's rows, and the files that only they named. Raises `BusyError` while it is driven."""
    store = Store(home)
    with explained(store.path), closing(store.connect("FULL")) as conn:
        with transaction(conn):
            _refuse_driven(conn, run)
            last = _last_write(conn, run)
            files = _files(conn, store.outputs, run)
            lonely = _lonely_snapshots(conn, run)
            _delete(conn, run)
        # After the commit, for a kill in between must leave no row without its file; and looked up once more,
        # with the write lock held, for another run may have named one of them since.
        with transaction(conn):
            for name in files - _files(conn, store.outputs, None) if files else ():
                remove_untouched(store.outputs / name, last)
    shutil.rmtree(home / "plans" / run, ignore_errors=True)
    for name in lonely:
        shutil.rmtree(home / "snapshots" / name, ignore_errors=True)


def _lonely_snapshots(conn: sqlite3.Connection, run: str) -> list[str]:
    """Repositories in `snapshots/` that no other run can need: it names none of them, and worked elsewhere."""
    rows = conn.execute(
        "select distinct repository from snapshots where run = ?1 and not exists "
        "(select 1 from runs o join runs r on r.workspace = o.workspace where r.run = ?1 and o.run <> ?1) "
        "and repository not in (select repository from snapshots where run <> ?1)",
        (run,),
    )
    return [name for (name,) in rows]


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
