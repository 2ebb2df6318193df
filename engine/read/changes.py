"""changes: whether anything was committed to the store since the last look; so cheap that it can be asked all day."""

import sqlite3
from pathlib import Path


class Changes:
    """Callable from one thread at a time."""

    def __init__(self, home: Path) -> None:
        self._path = home / "interlock.db"
        self._conn: sqlite3.Connection | None = None
        self._version = -1

    def __call__(self) -> bool:
        """True also the first time. A store that can't be read hasn't changed."""
        try:
            if self._conn is None:
                self._conn = sqlite3.connect(
                    f"{self._path.as_uri()}?mode=ro", uri=True, timeout=0.1, check_same_thread=False
                )
            (version,) = self._conn.execute("pragma data_version").fetchone()
        except sqlite3.Error:
            return False
        changed, self._version = version != self._version, version
        return changed

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
