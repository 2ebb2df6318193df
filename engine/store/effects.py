"""effects: the journal of what nodes of a workflow do outside: an intent before each effect, its result after it."""

import time
from dataclasses import dataclass
from enum import Enum
from typing import Any

from interlock.engine.store import put
from interlock.engine.store.connection import Connection
from interlock.engine.store.saver import Serde
from interlock.graphs._langgraph import storable_types
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.errors import RunError
from interlock.state.journal import EffectRow


@dataclass
class SqlEffects:
    """Implements `Effects`. Each intent is synced to disk before its effect, each result committed after it."""

    conn: Connection
    run: str
    epoch: int
    serde: Any
    """Stores results as it stores the state."""
    known: frozenset[tuple[str, ...]]
    """Classes (module, name) of which results may be."""
    redact: Redactor = SHAPES

    def find(self, task: str, key: str, place: str) -> EffectRow | None:  # noqa: ARG002 - a replay has other tasks
        found = self.conn.execute(
            "select state, attempt, type, value from effects where run = ? and task = ? and key = ?",
            (self.run, task, key),
        ).fetchone()
        return _row(self.serde, *found) if found else None

    def intend(self, task: str, key: str, place: str) -> None:
        before = self.find(task, key, place)
        attempt = before.attempt + 1 if before else 1
        where = {"run": self.run, "task": task, "key": key, "place": place}
        row = {"attempt": attempt, "state": "intent", "epoch": self.epoch, "intent_at": time.time()}
        with self.conn.transaction(synced=True) as conn:
            put(conn, "effects", {**where, **row}, "replace")

    def fail(self, task: str, key: str) -> None:
        sql = "update effects set state = 'failed', epoch = ? where run = ? and task = ? and key = ?"
        with self.conn.transaction() as conn:
            conn.execute(sql, (self.epoch, self.run, task, key))

    def finish(self, task: str, key: str, result: Any) -> None:
        if wrong := unstorable(result, self.known, self.serde):
            raise RunError(
                f"Effect {key!r} took place, but its result can't be stored: {wrong}. Make its function return "
                f"JSON-like values or messages, then: interlock resume {self.run}"
            )
        kind, data = self.serde.dumps_typed(result)
        sql = (
            "update effects set state = 'done', type = ?, value = ?, done_at = ?, epoch = ? "
            "where run = ? and task = ? and key = ?"
        )
        with self.conn.transaction() as conn:
            conn.execute(sql, (kind, data, time.time(), self.epoch, self.run, task, key))


def effects_of(conn: Connection, run: str, epoch: int, redact: Redactor) -> SqlEffects:
    """The journal of a drive, for results that any graph can store."""
    known = storable_types()
    return SqlEffects(conn, run, epoch, Serde().with_msgpack_allowlist(known), known, redact)


@dataclass
class RecordedEffects:
    """Implements `Effects` for a replay, in which nothing takes place: results come from the record, in its order."""

    conn: Connection
    run: str
    serde: Any
    known: frozenset[tuple[str, ...]] = frozenset()
    redact: Redactor = SHAPES

    def __post_init__(self) -> None:
        self._given: dict[tuple[str, str], EffectRow] = {}
        self._left: dict[tuple[str, str], list[EffectRow]] = {}
        rows = "select place, key, attempt, type, value from recorded_effects where state = 'done' order by intent_at"
        for place, key, *row in self.conn.execute(rows).fetchall():
            self._left.setdefault((place, key), []).append(_row(self.serde, "done", *row))

    def find(self, task: str, key: str, place: str) -> EffectRow | None:
        left = self._left.get((place, key))
        if (task, key) not in self._given and left:
            self._given[task, key] = left.pop(0)
        return self._given.get((task, key))

    def intend(self, task: str, key: str, place: str) -> None:  # noqa: ARG002 - as Effects
        raise RunError(f"The run has no effect {key!r} in {place!r}, so a replay has no result of it.")

    def fail(self, task: str, key: str) -> None: ...

    def finish(self, task: str, key: str, result: Any) -> None: ...


def _row(serde: Any, state: Any, attempt: int, kind: str | None, data: bytes | None) -> EffectRow:
    return EffectRow(state, attempt, serde.loads_typed((kind, data)) if kind else None)


def unstorable(value: Any, known: frozenset[tuple[str, ...]], serde: Any) -> str:
    """What of a value wouldn't come back as it is; empty: nothing."""
    if wrong := _foreign_class(value, known):
        return wrong
    try:
        serde.dumps_typed(value)
    except Exception as error:  # whatever its own methods raise
        return f"{type(value).__name__} ({' '.join(str(error).split())})"
    return ""


def _foreign_class(value: Any, known: frozenset[tuple[str, ...]], deep: int = 0) -> str:
    """The first class inside that would be loaded as plain data; empty: none."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if value is None or kind in (str, int, float, bool, bytes) or deep > 20:
        return ""
    if kind in (list, tuple, set, frozenset, dict):
        inner: Any = [*value.values()] if isinstance(value, dict) else value
        return next(filter(None, (_foreign_class(one, known, deep + 1) for one in inner)), "")
    if (kind.__module__, kind.__qualname__) in known or (kind.__module__, kind.__name__) in known:
        return ""
    if isinstance(value, str) and not isinstance(
        value, Enum
    ):  # such as a message's `.text`: it comes back as a text
        return ""
    if isinstance(value, BaseException) or kind.__module__.partition(".")[0] in ("numpy", "langgraph"):
        return ""
    return f"{kind.__module__}.{kind.__qualname__}"
