"""steps: records what each node did, how long it took, and who decided on each call."""

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from interlock.engine.store import insertion, put
from interlock.engine.store.connection import Connection
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.calls import CallKey
from interlock.state.clock import unix_time
from interlock.state.journal import DecisionRecord
from interlock.state.node import inside

_ID = re.compile(r"([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""LangGraph's ids; the first eight digits distinguish a run's tasks."""


_WHERE = ("run", "namespace", "task", "root_step", "superstep", "seq")
_STEP = insertion("steps", (*_WHERE, "started", "ms", "node", "workflow", "keys", "route", "reason"))


@dataclass
class _StepNote:
    namespace: str
    node: str
    workflow: str
    started: float
    ms: float | None = None
    keys: Sequence[str] = ()
    route: str | None = None
    reason: str | None = None
    inside: "list[_StepNote]" = field(default_factory=list["_StepNote"])
    """Notes of the nested graph's nodes, if one ran in this node's superstep."""


class _DecisionNote(NamedTuple):
    key: CallKey
    what: DecisionRecord
    at: float


class StepLog:
    """Implements `Steps`: collects notes from the nodes' wrapper; the saver saves them with the task's writes."""

    def __init__(self, redact: Redactor = SHAPES, conn: Connection | None = None, run: str = "") -> None:
        """With a run's connection, numbering continues after its existing rows."""
        self._notes: dict[str, _StepNote] = {}
        self._before: dict[str, list[_StepNote]] = {}
        """Nodes that ran before the task's newest one in the same superstep."""
        self._decided: dict[str, list[_DecisionNote]] = {}
        """By task; saved with its writes, never for a node cut off by a kill."""
        self._numbers: dict[str, Counter[str]] = {}
        self._one = threading.Lock()
        self._redact = redact
        self._conn, self._run = conn, run
        self._seq, self.root_step = (-1, 0) if conn is None else _last(conn, run)

    def started(self, task: str, namespace: str, node: str, workflow: str) -> None:
        now = unix_time()
        self._numbers.pop(task, None)
        if (note := self._notes.get(task)) and note.ms is not None:
            self._before.setdefault(task, []).append(note)
        self._notes[task] = _StepNote(namespace, node, workflow, now)
        # A graph used as a node has no wrapper: its first node starts it too.
        for part in namespace.split("|")[:-1]:
            name, _, owner = part.partition(":")
            if owner not in self._notes:
                self._notes[owner] = _StepNote("", name, "", now)

    def node_of(self, task: str) -> str:
        """The node that runs in a task; empty: it hasn't started here."""
        return self._notes[task].node if task in self._notes else ""

    def ended(self, task: str, ms: float, keys: Sequence[str]) -> None:
        note = self._notes.get(task)
        if note is None:
            return
        note.ms, note.keys = ms, tuple(keys)
        self._take_in(task, note)

    def failed(self, task: str) -> None:
        if self._conn is not None:
            with self._conn.transaction() as conn:
                conn.execute(
                    "update model_calls set task = task || '!' || ordinal where run = ? and task like ? || '#%' "
                    "and task not like '%!%'",
                    (self._run, task),
                )

    def numbered(self, task: str, name: str) -> int:
        with self._one:  # a node's threads number, too
            numbers = self._numbers.setdefault(task, Counter())
            numbers[name] += 1
            return numbers[name] - 1

    def _take_in(self, task: str, note: _StepNote) -> None:
        within = inside(task)
        if last := self._notes.pop(within, None):
            note.inside = [*self._before.pop(within, ()), last]
            self._decided.setdefault(task, []).extend(self._decided.pop(within, ()))

    def handed_on(self, task: str) -> list[dict[str, Any]]:
        note = self._notes[task]
        self._take_in(task, note)
        self._drop(task)
        return [_packed(done, len(note.namespace)) for done in note.inside]

    def taken_up(self, task: str, namespace: str, done: Sequence[Mapping[str, Any]]) -> None:
        within = inside(task)
        *before, self._notes[within] = (_unpacked(note, namespace) for note in done)
        self._before[within] = before

    def _drop(self, task: str) -> None:
        del self._notes[task]
        if before := self._before.get(task):
            self._notes[task] = before.pop()

    def undone(self, task: str) -> None:
        self._drop(task)
        within = inside(task)
        while within in self._notes:
            for kept in (self._notes, self._before, self._decided):
                kept.pop(within, None)
            within = inside(within)

    def routed(self, task: str, label: str) -> None:
        if note := self._notes.get(task):
            note.route = label

    def reasoned(self, task: str, reason: str) -> None:
        if note := self._notes.get(task):
            note.reason = reason

    def decided(self, task: str, key: CallKey, what: DecisionRecord) -> None:
        self._decided.setdefault(task, []).append(_DecisionNote(key, what, unix_time()))

    def commit(self) -> None:
        if self._conn is not None:
            self._conn.flush()

    def spent_s(self, namespace: str) -> float:
        """Seconds spent by finished nodes; those that ran in parallel count once."""
        total, until = 0.0, 0.0
        for begin, end in self._times(_short(namespace)):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total

    def _times(self, namespace: str) -> list[tuple[float, float]]:
        if self._conn is None:
            return []
        return self._conn.execute(
            "select started, started + ms / 1000 from steps where run = :run and workflow <> '' "
            "and (:within = '' or namespace = :within or namespace like :within || '|%') order by started",
            {"run": self._run, "within": namespace},
        ).fetchall()

    def save(
        self, conn: Connection, run: str, namespace: str, checkpoint: str, task: str, task_path: str
    ) -> None:
        """Save the rows of a finished task; one without a note is a nested graph, named in the task's path."""
        self.save_inside(conn, run, checkpoint, task)
        self._save_decided(conn, run, task)
        now = unix_time()
        note = self._notes.pop(task, None) or _StepNote("", task_path.rpartition(", ")[2], "", now)
        if note.ms is None:
            note.ms = (now - note.started) * 1000
        notes = [*self._before.pop(task, ()), note]
        self._insert(conn, run, namespace, checkpoint[-12:], task, notes)

    def save_inside(self, conn: Connection, run: str, checkpoint: str, task: str) -> None:
        """Save the rows of nodes of a graph that ran in its own node's task, and of graphs inside it."""
        task, superstep = inside(task), inside(checkpoint[-12:])
        if inside(task) in self._notes:
            self.save_inside(conn, run, superstep, task)
        if note := self._notes.pop(task, None):
            self._save_decided(conn, run, task)
            # The graph's next node may run in this same checkpoint, and comes after these.
            self._insert(conn, run, "", superstep, task, [*self._before.pop(task, ()), note])

    def _insert(
        self,
        conn: Connection,
        run: str,
        namespace: str,
        superstep: str,
        task: str,
        notes: Sequence[_StepNote],
    ) -> None:
        """`namespace`: LangGraph's; empty for nodes that ran inside a task, whose notes have their own."""
        for place, ran in enumerate(notes):
            if ran.inside:
                self._insert(conn, run, "", inside(superstep), inside(task), ran.inside)
            # Nodes that share a superstep ran in sequence: each counts as a task of its own.
            mark = f".{place}" if place else ""
            self._seq += 1
            within = _short(namespace or ran.namespace.rpartition("|")[0])
            where = (run, within, _short(task) + mark, self.root_step, superstep + mark, self._seq)
            times = (ran.started, round(ran.ms or 0.0, 3))
            what = (ran.node, ran.workflow, ",".join(ran.keys), ran.route, ran.reason)
            conn.later("steps", _STEP, (*where, *times, *what))

    def _save_decided(self, conn: Connection, run: str, task: str) -> None:
        """Save with the task's writes; idempotent if the task runs again."""
        for place, (key, what, at) in enumerate(self._decided.pop(task, ())):
            body = self._redact.json(what.model_dump(mode="json", exclude_defaults=True))
            call = {"run": run, "message": key.message, "idx": key.index, "attempt": key.attempt}
            columns = {"body": json.dumps(body, ensure_ascii=False), "at": at}
            row = {**call, "task": f"{task}.{place}" if place else task, **columns}
            put(conn, "decisions", row, "replace", later=True)


def _packed(note: _StepNote, prefix: int) -> dict[str, Any]:
    """`prefix`: length of the graph's namespace, which is removed."""
    within = [_packed(done, prefix) for done in note.inside]
    return {**vars(note), "namespace": note.namespace[prefix:], "keys": [*note.keys], "inside": within}


def _unpacked(note: Mapping[str, Any], prefix: str) -> _StepNote:
    within: Any = [_unpacked(done, prefix) for done in note["inside"]]
    return _StepNote(**{**note, "namespace": prefix + note["namespace"], "inside": within})


@lru_cache(maxsize=64)  # a superstep's rows repeat the same few names
def _short(name: str) -> str:
    return _ID.sub(r"\1", name)


def _last(conn: Connection, run: str) -> tuple[int, int]:
    """A run's last row number and root step."""
    (seq,) = conn.execute("select max(seq) from steps where run = ?", (run,)).fetchone()
    # Not the steps' own maximum: a kill can fall between a root checkpoint and the first step after it.
    row = conn.execute("select step from runs where run = ?", (run,)).fetchone()
    return (-1 if seq is None else seq), (row[0] if row else 0)
