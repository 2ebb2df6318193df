"""sqlite: transactions, and SQLite's errors as one line each."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.state.errors import BusyError, InterlockError, StoreError

BUSY_TIMEOUT_S = 10.0


@contextmanager
def transaction(conn: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    """One write transaction, or a part of the one that is open. Holds no `await`: others would wait for it."""
    if conn.in_transaction:
        yield conn
        return
    conn.execute("begin immediate")
    try:
        yield conn
        conn.execute("commit")
    except BaseException:
        if conn.in_transaction:
            conn.execute("rollback")
        raise


@contextmanager
def explained(path: Path) -> Generator[None]:
    """SQLite's errors as one line that says what to do."""
    try:
        yield
    except InterlockError:
        raise
    except sqlite3.DatabaseError as error:
        raise explain(error, path) from error


def explain(error: sqlite3.DatabaseError, path: Path) -> StoreError | BusyError:
    """The error of ours that stands for one of SQLite's."""
    text, shown = str(error), repr(str(path))
    if "locked" in text or "busy" in text:
        return BusyError(
            f"The store {shown} is busy: another process has written to it for {BUSY_TIMEOUT_S:.0f} s. "
            "See which with: interlock runs --status running"
        )
    if "full" in text:
        return StoreError(f"No space left for the store {shown}. Free some, then: interlock resume latest")
    if "readonly" in text or "unable to open" in text:
        return StoreError(
            f"Can't write the store {shown}: {text}. Check its permissions, or set INTERLOCK_HOME."
        )
    if "malformed" in text or "not a database" in text:
        return StoreError(
            f"The store {shown} is damaged ({text}). Move it away to start anew, "
            "or recover it with: sqlite3 interlock.db .recover"
        )
    return StoreError(f"The store {shown} failed: {text}. Check it with: interlock doctor --store")
