"""steps: records what each node did, how long it took, and who decided on each call."""

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from interlock.engine.store.connection import Connection
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.calls import CallKey
from interlock.state.clock import unix_time
from interlock.state.journal import DecisionRecord
from interlock.state.names import ERROR_HANDLER, RAISED
from interlock.state.node import inner_task_id

_ID = re.compile(r"([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""LangGraph's ids; the first eight digits distinguish a run's tasks."""
_SHORT_ID = re.compile(r"\b[0-9a-f]{8}\b")


@dataclass
class _StepNote:
    """A step that isn't stored yet."""

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


class StepRow(NamedTuple):
    """A row of the view `steps`."""

    run: str
    seq: int
    namespace: str
    task: str
    workflow: str
    node: str
    started: float
    ms: float
    keys: str
    route: str | None
    reason: str | None
    root_step: int
    superstep: str


_LAST = "(select max(seq) from step_rows where run = $1)"
"""Number of the first step of the run's newest row."""


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
        self._kinds: set[int] = set()
        self._numbers: dict[str, Counter[str]] = {}
        self._one = threading.Lock()
        self._redact = redact
        self._conn, self._run = conn, run
        self._seq, self.root_step = (-1, 0) if conn is None else _read_last_seq_and_root_step(conn, run)
        self.on_root_step: Callable[[int], None] = lambda _: None
        """Called with the number of each root step that is saved."""

    def record_start(self, task: str, namespace: str, node: str, workflow: str) -> None:
        if node.startswith(ERROR_HANDLER):  # LangGraph's namespace has it inside the node that raised
            *outer, _raised, own = namespace.split("|")
            namespace = "|".join([*outer, own])
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

    def find_node_of_task(self, task: str) -> str:
        """The node that runs in a task; empty: it hasn't started here."""
        return self._notes[task].node if task in self._notes else ""

    def find_sole_writer_of_key(self, key: str) -> str:
        """The node that wrote a state key in this superstep; empty: not one alone."""
        found = {note.node for note in self._notes.values() if key in note.keys}
        return found.pop() if len(found) == 1 else ""

    def record_end(self, task: str, ms: float, keys: Sequence[str]) -> None:
        note = self._notes.get(task)
        if note is None:
            return
        note.ms, note.keys = ms, tuple(keys)
        self._move_inner_notes(task, note)

    def invalidate_replies_of_failed_node(self, task: str) -> None:
        if self._conn is not None:
            sql = (
                "select task, ordinal from model_calls where run = $1 and task like $2 || '#%' "
                "and task not like '%!%'"
            )
            with self._conn.transaction() as conn:
                for asked, ordinal in conn.execute(sql, (self._run, task)).fetchall():
                    where = {"run": self._run, "task": asked, "ordinal": ordinal}
                    conn.update("model_calls", {"task": f"{asked}!{ordinal}"}, where)

    def next_occurrence_index(self, task: str, name: str) -> int:
        with self._one:  # a node's threads number, too
            numbers = self._numbers.setdefault(task, Counter())
            numbers[name] += 1
            return numbers[name] - 1

    def _move_inner_notes(self, task: str, note: _StepNote) -> None:
        within = inner_task_id(task)
        if last := self._notes.pop(within, None):
            note.inside = [*self._before.pop(within, ()), last]
            self._decided.setdefault(task, []).extend(self._decided.pop(within, ()))

    def detach_graph_steps(self, task: str) -> list[dict[str, Any]]:
        note = self._notes[task]
        self._move_inner_notes(task, note)
        del self._notes[task]
        if before := self._before.get(task):
            self._notes[task] = before.pop()
        return [_note_to_json(done, len(note.namespace)) for done in note.inside]

    def attach_graph_steps(self, task: str, namespace: str, step_notes: Sequence[Mapping[str, Any]]) -> None:
        within = inner_task_id(task)
        *before, self._notes[within] = (_note_from_json(note, namespace) for note in step_notes)
        self._before[within] = before

    def record_route(self, task: str, label: str) -> None:
        if note := self._notes.get(task):
            note.route = label

    def record_reason(self, task: str, reason: str) -> None:
        if note := self._notes.get(task):
            note.reason = reason

    def record_decision(self, task: str, key: CallKey, decision: DecisionRecord) -> None:
        self._decided.setdefault(task, []).append(_DecisionNote(key, decision, unix_time()))

    def commit_progress(self) -> None:
        if self._conn is not None:
            self._conn.flush()

    def working_seconds(self, namespace: str) -> float:
        """Seconds spent by finished nodes; those that ran in parallel count once."""
        if self._conn is None:
            return 0.0
        total, until = 0.0, 0.0
        rows: list[tuple[float, float]] = self._conn.execute(
            "select started, started + ms / 1000 from steps where run = $1 and workflow <> '' "
            "and ($2 = '' or namespace = $2 or namespace like $2 || '|%') order by started",
            (self._run, _shorten_ids(namespace)),
            tables=_TABLES,
        ).fetchall()
        for begin, end in rows:
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total

    def save_finished_task_steps(
        self, conn: Connection, run: str, namespace: str, checkpoint: str, task: str, task_path: str
    ) -> None:
        """Save the rows of a finished task; one without a note is a nested graph, named in the task's path."""
        rows = [*self._pop_inner_step_rows(conn, run, checkpoint, task)]
        self._insert_task_decisions(conn, run, task)
        now = unix_time()
        note = self._notes.pop(task, None) or _StepNote("", task_path.rpartition(", ")[2], "", now)
        if note.ms is None:
            note.ms = (now - note.started) * 1000
        notes = [*self._before.pop(task, ()), note]
        rows += self._to_step_rows(run, namespace, checkpoint[-12:], task, notes)
        write_step_rows(conn, rows, self._kinds)

    def save_failed_task_step(
        self, conn: Connection, run: str, namespace: str, checkpoint: str, task: str, why: str
    ) -> None:
        """Save the row of a task that raised; nodes that ran before it in its superstep run again with it."""
        if (note := self._notes.pop(task, None)) is None:
            return
        self._before.pop(task, None)
        note.ms = (unix_time() - note.started) * 1000 if note.ms is None else note.ms
        note.route, note.reason, note.inside = RAISED, self._redact(why), []
        write_step_rows(
            conn, [*self._to_step_rows(run, namespace, checkpoint[-12:], task, [note])], self._kinds
        )

    def save_inner_task_steps(self, conn: Connection, run: str, checkpoint: str, task: str) -> None:
        """Save the rows of nodes of a graph that ran in its own node's task, and of graphs inside it."""
        write_step_rows(conn, [*self._pop_inner_step_rows(conn, run, checkpoint, task)], self._kinds)

    def _pop_inner_step_rows(
        self, conn: Connection, run: str, checkpoint: str, task: str
    ) -> Iterator[StepRow]:
        task, superstep = inner_task_id(task), inner_task_id(checkpoint[-12:])
        if inner_task_id(task) in self._notes:
            yield from self._pop_inner_step_rows(conn, run, superstep, task)
        if note := self._notes.pop(task, None):
            self._insert_task_decisions(conn, run, task)
            # The graph's next node may run in this same checkpoint, and comes after these.
            yield from self._to_step_rows(run, "", superstep, task, [*self._before.pop(task, ()), note])

    def _to_step_rows(
        self, run: str, namespace: str, superstep: str, task: str, notes: Sequence[_StepNote]
    ) -> Iterator[StepRow]:
        """`namespace`: LangGraph's; empty for nodes that ran inside a task, whose notes have their own."""
        for number, ran in enumerate(notes):
            if ran.inside:
                yield from self._to_step_rows(
                    run, "", inner_task_id(superstep), inner_task_id(task), ran.inside
                )
            # Nodes that share a superstep ran in sequence: each counts as a task of its own.
            mark = f".{number}" if number else ""
            self._seq += 1
            within = _shorten_ids(namespace or ran.namespace.rpartition("|")[0])
            times, what = (ran.started, ran.ms or 0.0), (",".join(ran.keys), ran.route, ran.reason)
            where = (self.root_step, superstep + mark)
            place = (run, self._seq, within, _shorten_ids(task) + mark, ran.workflow, ran.node)
            yield StepRow(*place, *times, *what, *where)

    def _insert_task_decisions(self, conn: Connection, run: str, task: str) -> None:
        """Save with the task's writes; idempotent if the task runs again."""
        for place, (key, what, at) in enumerate(self._decided.pop(task, ())):
            body = self._redact.redact_json(what.model_dump(mode="json", exclude_defaults=True))
            call = {"run": run, "message": key.message, "idx": key.index, "attempt": key.attempt}
            columns = {"body": json.dumps(body, ensure_ascii=False), "at": at}
            row = {**call, "task": f"{task}.{place}" if place else task, **columns}
            conn.insert("decisions", row, "replace")


_TABLES = ("step_rows", "step_kinds")
_SHARED = ("namespace", "mark", "workflow", "node", "keys", "route")
"""What the nodes of a kind have in common."""


class _Where(NamedTuple):
    task: str
    superstep: str
    mark: str


def write_step_rows(conn: Connection, steps: Iterable[StepRow], written_kinds: set[int]) -> None:
    """With the connection's next commit. `written_kinds`: those that it has written."""
    placed = ((place, step, _split_task_superstep_and_mark(step)) for place, step in enumerate(steps))
    for (_, root_step, task, superstep), group in groupby(placed, _row_group_key):
        alike = [(step, where.mark) for _, step, where in group]
        (first, _), began = alike[0], min(step.started for step, _ in alike)
        nodes = [
            _encode_node_and_insert_kind(conn, step, task, mark, began, written_kinds) for step, mark in alike
        ]
        row = {
            "run": first.run,
            "seq": first.seq,
            "task": task,
            "root_step": root_step,
            "superstep": superstep,
        }
        row |= {"started": began, "nodes": json.dumps(nodes, separators=(",", ":"))}
        conn.insert("step_rows", row)


def _row_group_key(placed: tuple[int, StepRow, _Where]) -> tuple[int, int, str, str]:
    """The same for steps that share a row: they have numbers in sequence."""
    place, step, where = placed
    return step.seq - place, step.root_step, where.task, where.superstep


def _encode_node_and_insert_kind(
    conn: Connection, step: StepRow, task: str, mark: str, began: float, written_kinds: set[int]
) -> Sequence[object]:
    namespace, own = _namespace_pattern(step.namespace, task)
    shared = (namespace, mark, step.workflow, step.node, step.keys, step.route or "")
    kind = _kind_digest(shared)
    if kind not in written_kinds:
        conn.insert("step_kinds", {"kind": kind, **dict(zip(_SHARED, shared, strict=True))}, "keep")
        written_kinds.add(kind)
    node = (kind, round((step.started - began) * 1e6), round(step.ms * 1e3), own, step.reason)
    return node if step.reason else node[: 3 + (own is not None)]


def _split_task_superstep_and_mark(step: StepRow) -> _Where:
    task, dot, mark = step.task.partition(".")
    if not step.superstep.endswith(dot + mark):  # as LangGraph names tasks, both end alike
        return _Where(step.task, step.superstep, "")
    return _Where(task, step.superstep.removesuffix(dot + mark), dot + mark)


@lru_cache(maxsize=64)
def _namespace_pattern(namespace: str, task: str) -> tuple[str, str | None]:
    """What the namespace has in common with those of other tasks; else, its own."""
    pattern = namespace.replace(task, "@") if task else namespace
    return ("", namespace) if "@" in namespace or _SHORT_ID.search(pattern) else (pattern, None)


@lru_cache(maxsize=256)
def _kind_digest(shared: tuple[str, ...]) -> int:
    """The same in every store."""
    return int.from_bytes(hashlib.sha256("\0".join(shared).encode(errors="replace")).digest()[:5])


def _note_to_json(note: _StepNote, prefix_length: int) -> dict[str, Any]:
    """`prefix_length`: length of the graph's namespace, which is removed."""
    within = [_note_to_json(done, prefix_length) for done in note.inside]
    return {**vars(note), "namespace": note.namespace[prefix_length:], "keys": [*note.keys], "inside": within}


def _note_from_json(note: Mapping[str, Any], prefix: str) -> _StepNote:
    within: Any = [_note_from_json(done, prefix) for done in note["inside"]]
    return _StepNote(**{**note, "namespace": prefix + note["namespace"], "inside": within})


@lru_cache(maxsize=64)  # a superstep's rows repeat the same few names
def _shorten_ids(name: str) -> str:
    return _ID.sub(r"\1", name)


def _read_last_seq_and_root_step(conn: Connection, run: str) -> tuple[int, int]:
    """A run's last row number and root step."""
    query = f"select max(seq) from steps where run = $1 and first = {_LAST}"
    (seq,) = conn.execute(query, (run,), tables=_TABLES).fetchone()
    # Not the steps' own maximum: a kill can fall between a root checkpoint and the first step after it.
    row = conn.execute("select step from runs where run = $1", (run,)).fetchone()
    return (-1 if seq is None else seq), (row[0] if row else 0)
