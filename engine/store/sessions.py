"""sessions: which run an editor's session shows now. Its first run has the session's own id."""

import json
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from interlock.engine.store import Store, put, select
from interlock.engine.store.runs import new_run_id


class Shown(NamedTuple):
    """What a session shows."""

    run: str
    """It may not have begun."""
    workspace: str
    chosen: Mapping[str, str]
    """Options that count from the next prompt on, by name."""


def open_session(home: Path, workspace: Path, run: str = "") -> str:
    """A new session, which shows `run`, by default one to be started under the session's id."""
    name = run or new_run_id()
    point_session(home, name, name, workspace, {})
    return name


def point_session(home: Path, session: str, run: str, workspace: Path, chosen: Mapping[str, str]) -> None:
    """Let a session show another run, or keep what was chosen for its next prompt."""
    store = Store(home)
    store.open()
    row = {"session": session, "run": run, "workspace": str(workspace), "at": time.time()}
    with closing(store.connect("FULL")) as conn, conn.transaction():
        put(conn, "sessions", row | {"chosen": json.dumps({**chosen})}, "replace")


def sessions(home: Path) -> dict[str, Shown]:
    """Each session by its id, the newest first."""
    rows = select(home, "select session, run, workspace, chosen from sessions order by at desc")
    return {session: Shown(run, place, json.loads(chosen)) for session, run, place, chosen in rows}
