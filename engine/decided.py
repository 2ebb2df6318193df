"""decided: the record of who decided what of a call; a row is committed with the writes of the node that decided."""

import json
import sqlite3
import time
from typing import NamedTuple

from interlock.services.redaction import SHAPES, Redactor
from interlock.services.sqlite import later
from interlock.state.calls import CallKey
from interlock.state.decided import Decided


class _Note(NamedTuple):
    key: CallKey
    what: Decided
    at: float


class DecisionLog:
    """Keeps what nodes note until the saver takes it: no commit of its own, and none for a node that a kill cut."""

    def __init__(self, redact: Redactor = SHAPES) -> None:
        self._notes: dict[str, list[_Note]] = {}
        self._redact = redact

    def note(self, task: str, key: CallKey, what: Decided) -> None:
        self._notes.setdefault(task, []).append(_Note(key, what, time.time()))

    def save(self, conn: sqlite3.Connection, run: str, task: str) -> None:
        """With the task's writes; a task that runs again writes the same row."""
        for place, note in enumerate(self._notes.pop(task, ())):
            key = note.key
            told = self._redact.json(note.what.model_dump(mode="json", exclude_defaults=True))
            body = json.dumps(told, ensure_ascii=False)
            later(
                conn,
                "insert or replace into decisions (run, message, idx, attempt, task, body, at) "
                "values (?, ?, ?, ?, ?, ?, ?)",
                (
                    run,
                    key.message,
                    key.index,
                    key.attempt,
                    f"{task}.{place}" if place else task,
                    body,
                    note.at,
                ),
            )
