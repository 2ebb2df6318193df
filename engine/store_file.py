"""store_file: opens the store for reading, with sqlite3 alone, and says plainly why it can't."""

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from interlock.state.errors import StoreError

SCHEMA_VERSION = 3
"""What this Interlock reads: `engine/store.py` writes the same number (a test compares them)."""


def state_home(env: Mapping[str, str]) -> Path:
    """`$INTERLOCK_HOME`, else `$XDG_STATE_HOME/interlock`, else `~/.local/state/interlock`."""
    if home := env.get("INTERLOCK_HOME"):
        return Path(home).expanduser().absolute()
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or Path.home()) / ".local" / "state")
    return Path(base).expanduser().absolute() / "interlock"


@contextmanager
def reading(home: Path) -> Generator[sqlite3.Connection | None]:
    """A connection that can't write; None where nothing has run yet. Raises `StoreError` in one line."""
    path = home / "interlock.db"
    if not path.exists():
        yield None
        return
    conn: sqlite3.Connection | None = None
    try:
        conn = sqlite3.connect(path, timeout=10)
        conn.row_factory = sqlite3.Row
        conn.execute("pragma query_only = 1")
        version = int(conn.execute("pragma user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"The store {str(path)!r} was written by a newer Interlock (version {version}, this one "
                f"reads {SCHEMA_VERSION}). Upgrade, or choose another with INTERLOCK_HOME."
            )
        yield conn if version else None
    except sqlite3.DatabaseError as error:
        from interlock.services.sqlite import explain

        raise explain(error, path) from error
    finally:
        if conn is not None:
            conn.close()
