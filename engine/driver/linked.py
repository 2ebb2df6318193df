"""linked: runs that another run begins: the one that carries out a plan, and subtasks; who waits for whom."""

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from interlock.engine.driver.prepare import RunConfig, kept_options
from interlock.engine.read.runs import IS_SUBTASK
from interlock.engine.read.snapshot import state_at
from interlock.engine.store.database import Store, select
from interlock.engine.store.runs import NewRun, insert_run, read_options
from interlock.services.sqlite import transaction
from interlock.services.transcript import ChainTranscript
from interlock.state.conversation import refusals_in
from interlock.state.deps import RunInfo
from interlock.state.messages import Message
from interlock.state.task import Subtask, TaskEnd, TaskState

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_OVER = ("done", "cancelled")
"""Statuses of a subtask that its parent goes on from. One that failed is tried again first."""


def linked_id(key: str) -> str:
    """The same for the same key, so that what was killed while it began a run begins no second one."""
    digest = hashlib.sha256(key.encode()).digest()
    return "".join(_LETTERS[byte % 32] for byte in digest[:8])


def begin_linked(
    store: Store, prepared: RunConfig, parent: str, run: str, made: Callable[[ChainTranscript], NewRun]
) -> str:
    """Insert a run with its parent; twice changes nothing. `made` writes what it begins with into its chain.

    It begins with the rules that its parent goes by: some may have been saved since that was prepared.
    """
    with closing(store.connect()) as conn:
        new = made(ChainTranscript(conn, store.outputs, run, redact=prepared.redact))
        new = replace(new, options={**new.options, "rights": read_options(conn, parent)["rights"]})
        with transaction(conn):
            if conn.execute("select 1 from runs where run = ?", (run,)).fetchone() is None:
                insert_run(conn, new)
                conn.execute("update runs set parent = ? where run = ?", (parent, run))
    return run


class RunTasks:
    """Implements `Tasks`."""

    def __init__(self, store: Store, info: RunInfo, prepared: RunConfig) -> None:
        self._store, self._info, self._prepared = store, info, prepared

    def begin(self, subtask: Subtask, parent: TaskState) -> str:
        key = f"task {subtask.call} after {parent['reply']} of {self._info.run}"
        run, path = linked_id(key), "/".join(filter(None, [parent["path"], f"task:{subtask.call}"]))

        def made(chain: ChainTranscript) -> NewRun:
            message = Message(role="user", origin="agent", content=subtask.message)
            mode = parent["approval_mode"]
            kept = kept_options(self._prepared.options)
            options = {**kept, "approval_mode": mode, "task_path": path, "subtask_of": self._info.run}
            title = self._prepared.redact(subtask.message)[:200]
            first = {
                **self._same(parent),
                "prompt": chain.append("", [message]),
                "head": "",
                "mode": subtask.mode,
                "first_todos": subtask.todos,
                "depth": parent["depth"] + 1,
                "path": path,
                "session_turns": 0,
                "last_prompt_tokens": 0,
            }
            return NewRun(run, "task", str(self._info.workspace), title, options, first)

        return begin_linked(self._store, self._prepared, self._info.run, run, made)

    def _same(self, parent: TaskState) -> dict[str, object]:
        limits = self._prepared.limits
        return {
            "approval_mode": parent["approval_mode"],
            "protocol": parent.get("protocol", ""),
            "model": self._prepared.model,
            "max_turns": limits.max_turns,
            "max_session_turns": limits.max_session_turns,
        }

    def end(self, run: str) -> TaskEnd | None:
        home = self._store.home
        rows = select(home, "select status from runs where run = ?", run)
        if not rows:
            return TaskEnd("removed", "", {})
        if rows[0]["status"] not in _OVER:
            return None
        values = state_at(home, run)
        if rows[0]["status"] != "done" or not values.get("result"):
            return TaskEnd("cancelled", "", refusals_in(values))
        with closing(self._store.connect()) as conn:
            text = ChainTranscript(conn, self._store.outputs, run).message(values["result"]).text
        return TaskEnd("done", text, refusals_in(values))


def has_ended(conn: sqlite3.Connection, run: str) -> bool:
    """A subtask is over, or gone: its parent can go on."""
    row = conn.execute("select status from runs where run = ?", (run,)).fetchone()
    return row is None or row[0] in _OVER


_ABOVE = f"""
select p.run from runs c join runs p on p.run = c.parent
where c.run = ? and {IS_SUBTASK} and p.status = 'open'
"""


def above(home: Path, run: str) -> str | None:
    """The task that waits for this one."""
    rows = select(home, _ABOVE, run)
    return rows[0]["run"] if rows else None


def topmost(home: Path, run: str) -> str:
    """The task for which all this is done."""
    while parent := above(home, run):
        run = parent
    return run
