"""tables: every table of the store: whose rows it holds, its key, what a fork takes of it, and how its texts read.

Who adds a table names it here, and in `schema.sql`, which has its columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class Table:
    """A table with rows about runs."""

    name: str
    key: tuple[str, ...]
    forked: str | None = None
    """Condition for the rows of a run's history up to a step, which a fork at that step copies; None: it copies none.

    Parameters: `$1`, the run; `$2`, what `until` names.
    """
    until: Literal["step", "id", "made"] | None = None
    """The step, or its checkpoint's id or time (seconds)."""
    owner: str = "run"
    """The column that names the run."""
    waits: bool = False
    """Whether its rows may be written with a driver's next commit: nothing external depends on them."""
    kept: bool = False
    """Whether other runs may read its rows after the run is removed."""
    holds: Mapping[str, str] = field(default_factory=dict[str, str])
    """Column → what reads its values: `MODULE:NAME`. Of a name of a file, it reads the file."""


_DONE = "(state = 'done' and done_at <= $2)"
_REMEMBERED = "checkpoint_ns not like '%:%'"
"""The run's own checkpoints, and those of a graph inside that remembers between calls: others end with their task."""
_CHECKPOINT = ("thread_id", "checkpoint_ns", "checkpoint_id")
_PARSED = "interlock.engine.store.integrity"
_STATE = "interlock.state"
_RESULT = f"{_STATE}.calls:ToolResult"
_REPLY = "interlock.services.hooks.hook_replies:HookReply"

TABLES = (
    Table(
        "checkpoints",
        _CHECKPOINT,
        f"{_REMEMBERED} and checkpoint_id <= $2",
        "id",
        owner="thread_id",
        holds={
            "checkpoint": "interlock.engine.store.saver:decode_row_value",
            "metadata": f"{_PARSED}:parse_mapping",
        },
        waits=True,
    ),
    Table(
        "writes",
        (*_CHECKPOINT, "task_id", "idx"),
        "checkpoint_ns = '' and checkpoint_id < $2",
        "id",
        owner="thread_id",
        holds={"value": "interlock.engine.store.saver:decode_row_value"},
        waits=True,
    ),
    Table(
        "chain",
        ("id",),
        kept=True,
        holds={"body": f"{_PARSED}:check_chain_record", "file": f"{_PARSED}:check_chain_record"},
        waits=True,
    ),
    Table("named_files", ("name", "run"), "true", waits=True),
    Table("model_calls", ("run", "agent", "role", "ordinal"), "at <= $2", "made"),
    Table("reservations", ("run", "task", "epoch"), waits=True),
    Table(
        "journal",
        ("run", "message", "idx", "attempt"),
        f"{_DONE} or (state = 'scheduled' and (message, idx) in "
        f"(select message, idx from journal where run = $1 and {_DONE}))",
        "made",
        holds={
            "args": f"{_PARSED}:parse_mapping",
            "planned": f"{_STATE}.calls:Planned",
            "result": _RESULT,
            "result_file": _RESULT,
        },
        waits=True,
    ),
    Table(
        "effects",
        ("run", "task", "key"),
        "done_at <= $2",
        "made",
        holds={"value": "interlock.engine.store.saver:decode_row_value"},
    ),
    Table(
        "node_updates",
        ("run", "task", "node", "state"),
        "at <= $2",
        "made",
        holds={"wrote": "interlock.engine.store.saver:decode_row_value"},
        waits=True,
    ),
    Table(
        "decisions",
        ("run", "message", "idx", "task"),
        "at <= $2",
        "made",
        holds={"body": f"{_STATE}.journal:DecisionRecord"},
        waits=True,
    ),
    Table(
        "hook_calls",
        ("run", "event", "key", "hook"),
        "done_at <= $2",
        "made",
        holds={"reply": _REPLY, "reply_file": _REPLY},
    ),
    Table(
        "server_replies",
        ("run", "asked"),
        "at <= $2",
        "made",
        holds={"asked": f"{_PARSED}:check_json_list", "reply": f"{_PARSED}:parse_mapping"},
        waits=True,
    ),
    Table(
        "approvals",
        ("id",),
        "answered_at <= $2",
        "made",
        holds={
            "id": "interlock.engine.store.queries:parse_request_id",
            "request": f"{_STATE}.calls:ApprovalRequest",
            "answer": f"{_STATE}.calls:Answer",
            "rule": f"{_STATE}.calls:SessionRule",
        },
        waits=True,
    ),
    Table(
        "step_rows",
        ("run", "seq"),
        "root_step < $2",
        "step",
        holds={"nodes": f"{_PARSED}:check_json_list"},
        waits=True,
    ),
    Table("snapshots", ("run", "message", "idx", "attempt"), "root_step < $2", "step", waits=True),
    Table("undone", ("run", "seq"), "record is not null and at <= $2", "made", waits=True),
    Table("seen_files", ("run", "agent", "path", "seq"), "at <= $2", "made", waits=True),
    Table("sessions", ("session",), holds={"chosen": f"{_PARSED}:parse_mapping"}),
    Table("served", ("kind", "id"), holds={"body": f"{_PARSED}:parse_mapping"}),
    Table("traces", ("run",)),
    Table("lease", ("run",)),
    Table(
        "runs",
        ("run",),
        "true",
        holds={
            "options": f"{_PARSED}:parse_mapping",
            "input": f"{_PARSED}:parse_mapping",
            "error": f"{_PARSED}:format_stored_error",
        },
        waits=True,
    ),
)
"""A run is removed in this order: its own row last."""
OTHER_TABLES = (
    Table("step_kinds", ("kind",), waits=True),
    Table("audit", ("seq",)),
    Table("limits", ("kind", "name")),
    Table("limit_use", ("kind", "name", "period"), waits=True),
    Table("limit_seconds", ("kind", "name", "since"), waits=True),
    Table("schedules", ("name",)),
    Table("blobs", ("name", "part"), owner="owner", waits=True),
    # Of a store in a file.
    Table("wakes", ("id",)),
    # Of a store on a server.
    Table("store_version", ("version",)),
    # Of a replay's store: what it may know of the run, and which of that it has used.
    Table("recorded_hooks", ("run", "event", "key", "hook")),
    Table("recorded_servers", ("run", "asked")),
    Table("recorded_calls", ("run", "agent", "role", "ordinal")),
    Table("recorded_effects", ("run", "task", "key")),
    Table("recorded_updates", ("run", "task", "node", "state")),
    Table("taken_updates", ("run", "task", "node", "state")),
)
"""Tables whose rows aren't removed with a run."""
TABLE = {table.name: table for table in (*TABLES, *OTHER_TABLES)}
Row = Mapping[str, object]
"""Column → value. In a condition: None stands for null, and other comparisons than equality are a `Condition`."""
OnConflict = Literal["refuse", "replace", "keep"]
"""What becomes of a row with the same key: it is an error, it gets the new row's columns, or it stays as it is."""


class Condition(NamedTuple):
    """A comparison of a column."""

    operator: str
    value: object = None


NOT_NULL = Condition("is not null")


class Plus(NamedTuple):
    """A column's new value: its old one and a number."""

    by: int


class Write(NamedTuple):
    """A write of a table's rows."""

    tables: tuple[str, ...]
    sql: str
    values: tuple[object, ...]
    kind: Literal["insert", "update", "delete", "statement"]
    row: Row = MappingProxyType({})
    """What is inserted, or set."""
    where: Row = MappingProxyType({})
    """Which rows: those that are changed, deleted, or may be there already."""
    on_conflict: OnConflict = "refuse"

    @property
    def replacement_key(self) -> object:
        """Equal for a later write after which this one makes no difference."""
        if self.kind not in ("insert", "update") or (self.kind == "insert" and self.on_conflict != "replace"):
            return object()
        key = tuple(self.where.values())
        names_one_row = tuple(self.where) == TABLE[self.tables[0]].key
        if not names_one_row or any(isinstance(value, Condition) for value in key):
            return object()
        return self.sql, key


def build_insert(table: str, row: Row, on_conflict: OnConflict = "refuse") -> Write:
    """Insert a row."""
    parameters = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    sql, where = f"insert into {table} ({', '.join(row)}) values ({parameters})", {}
    if on_conflict != "refuse":
        where = {name: row[name] for name in TABLE[table].key}
        changed = ", ".join(f"{name} = excluded.{name}" for name in row if name not in where)
        act = f"update set {changed}" if on_conflict == "replace" else "nothing"
        sql += f" on conflict ({', '.join(where)}) do {act}"
    return Write((table,), sql, tuple(row.values()), "insert", row, where, on_conflict)


def build_update(table: str, row: Row, where: Row) -> Write:
    """Change the rows that meet every condition."""
    changes = ", ".join(
        f"{name} = {name} + ${number}" if isinstance(value, Plus) else f"{name} = ${number}"
        for number, (name, value) in enumerate(row.items(), 1)
    )
    values = (value.by if isinstance(value, Plus) else value for value in row.values())
    which, given = where_sql(where, len(row) + 1)
    return Write(
        (table,), f"update {table} set {changes} where {which}", (*values, *given), "update", row, where
    )


def build_delete(table: str, where: Row) -> Write:
    """Delete the rows that meet every condition."""
    which, given = where_sql(where)
    return Write((table,), f"delete from {table} where {which}", given, "delete", {}, where)


def where_sql(where: Row, first: int = 1) -> tuple[str, tuple[object, ...]]:
    """Return the SQL of conditions, and its parameters. `first`: number of their first parameter."""
    parts: list[str] = []
    values: list[object] = []
    for name, value in where.items():
        operator, compared = value if isinstance(value, Condition) else ("=", value)
        if value is None or operator == NOT_NULL.operator:
            parts.append(f"{name} {operator if value else 'is null'}")
        else:
            parts.append(f"{name} {operator} ${first + len(values)}")
            values.append(compared)
    return " and ".join(parts), tuple(values)
