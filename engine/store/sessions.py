"""sessions: which run an editor's session shows now. Its first run has the session's own id."""

import time
from contextlib import closing
from pathlib import Path

from interlock.engine.store import Store, put, select
from interlock.engine.store.runs import new_run_id


def open_session(home: Path, workspace: Path, run: str = "") -> str:
    """A new session, which shows `run`, by default one to be started under the session's id."""
    name = run or new_run_id()
    point_session(home, name, name, workspace)
    return name


def point_session(home: Path, session: str, run: str, workspace: Path) -> None:
    """Let a session show another run."""
    store = Store(home)
    store.open()
    row = {"session": session, "run": run, "workspace": str(workspace), "at": time.time()}
    with closing(store.connect("FULL")) as conn, conn.transaction():
        put(conn, "sessions", row, "replace")


def sessions(home: Path) -> dict[str, tuple[str, str]]:
    """Session → its run, which may not have begun, and its workspace."""
    rows = select(home, "select session, run, workspace from sessions order by at desc")
    return {session: (run, workspace) for session, run, workspace in rows}
