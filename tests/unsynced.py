"""unsynced: stores and files of tests don't wait for the disk. No kill loses anything by it; no test cuts the power.

Programs that a test starts from scratch do wait.
"""

import os
import sqlite3
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

from interlock.engine.store import sqlite
from interlock.engine.store.sqlite import SqliteConnection

_connect = sqlite.Sqlite.connect


def _connected(*given: Any, **named: Any) -> sqlite3.Connection:
    conn = sqlite3.connect(*given, **named)
    with suppress(sqlite3.Error):  # a damaged file is found by what uses it
        conn.execute("pragma synchronous = off")
    return conn


def _unsynced(store: sqlite.Sqlite, _: str, **given: Any) -> SqliteConnection:
    return _connect(store, "OFF", **given)


def sync_nothing() -> None:
    """From now on, in this process and its forks."""
    os.fsync = lambda file: None
    sqlite.sqlite3 = SimpleNamespace(**{**vars(sqlite3), "connect": _connected})
    sqlite.Sqlite.connect = _unsynced
    SqliteConnection._use_full_sync = lambda conn: nullcontext()
