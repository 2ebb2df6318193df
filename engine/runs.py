"""runs: the row that a run is listed by."""

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interlock.services.sqlite import transaction

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
        conn.execute(
            "insert into runs (run, workflow, workspace, title, created, updated, status, options, input) "
            "values (?, ?, ?, ?, ?, ?, 'open', ?, ?)",
            (
                run.run,
                run.workflow,
                run.workspace,
                run.title,
                now,
                now,
                *map(json.dumps, (run.options, run.input)),
            ),
        )


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
