"""tables: every table of the store: whose rows it holds, its key, what a fork takes of it, and how its texts read.

Who adds a table names it here, and in `schema.sql`, which has its columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A table with rows about runs."""

    name: str
    key: tuple[str, ...]
    forked: str | None = None
    """Condition for the rows of a run's history up to a step, which a fork at that step copies; None: it copies none.

    Parameters: `:run`, `:step`, `:id` (of the step's checkpoint), `:made` (its time, seconds).
    """
    owner: str = "run"
    """The column that names the run."""
    kept: bool = False
    """Whether other runs may read its rows after the run is removed."""
    holds: Mapping[str, str] = field(default_factory=dict[str, str])
    """Column → what reads its values: `MODULE:NAME`. Of a name of a file, it reads the file."""


_DONE = "(state = 'done' and done_at <= :made)"
_REMEMBERED = "checkpoint_ns not like '%:%'"
"""The run's own checkpoints, and those of a graph inside that remembers between calls: others end with their task."""
_CHECKPOINT = ("thread_id", "checkpoint_ns", "checkpoint_id")
_PARSED = "interlock.engine.store.damage"
_STATE = "interlock.state"
_RESULT = f"{_STATE}.calls:ToolResult"
_REPLY = "interlock.services.hooks.reply:Reply"

TABLES = (
    Table(
        "checkpoints",
        _CHECKPOINT,
        f"{_REMEMBERED} and checkpoint_id <= :id",
        owner="thread_id",
        holds={"checkpoint": "interlock.engine.store.saver:typed", "metadata": f"{_PARSED}:mapping"},
    ),
    Table(
        "writes",
        (*_CHECKPOINT, "task_id", "idx"),
        "checkpoint_ns = '' and checkpoint_id < :id",
        owner="thread_id",
        holds={"value": "interlock.engine.store.saver:typed"},
    ),
    Table("chain", ("id",), kept=True, holds={"body": f"{_PARSED}:record", "file": f"{_PARSED}:record"}),
    Table("named_files", ("name", "run"), "true"),
    Table("model_calls", ("run", "agent", "role", "ordinal"), "at <= :made"),
    Table("reservations", ("run", "task", "epoch")),
    Table(
        "journal",
        ("run", "message", "idx", "attempt"),
        f"{_DONE} or (state = 'scheduled' and (message, idx) in "
        f"(select message, idx from journal where run = :run and {_DONE}))",
        holds={
            "args": f"{_PARSED}:mapping",
            "planned": f"{_STATE}.calls:Planned",
            "result": _RESULT,
            "result_file": _RESULT,
        },
    ),
    Table(
        "effects",
        ("run", "task", "key"),
        "done_at <= :made",
        holds={"value": "interlock.engine.store.saver:typed"},
    ),
    Table(
        "node_updates",
        ("run", "task", "node", "state"),
        "at <= :made",
        holds={"wrote": "interlock.engine.store.saver:typed"},
    ),
    Table(
        "decisions",
        ("run", "message", "idx", "task"),
        "at <= :made",
        holds={"body": f"{_STATE}.journal:DecisionRecord"},
    ),
    Table(
        "hook_calls",
        ("run", "event", "key", "hook"),
        "done_at <= :made",
        holds={"reply": _REPLY, "reply_file": _REPLY},
    ),
    Table(
        "server_replies",
        ("run", "asked"),
        "at <= :made",
        holds={"asked": f"{_PARSED}:sequence", "reply": f"{_PARSED}:mapping"},
    ),
    Table(
        "approvals",
        ("id",),
        "answered_at <= :made",
        holds={
            "id": "interlock.engine.store.request_ids:place_of",
            "request": f"{_STATE}.calls:ApprovalRequest",
            "answer": f"{_STATE}.calls:Answer",
            "rule": f"{_STATE}.calls:SessionRule",
        },
    ),
    Table("step_rows", ("run", "seq"), "root_step < :step", holds={"nodes": f"{_PARSED}:sequence"}),
    Table("snapshots", ("run", "message", "idx", "attempt"), "root_step < :step"),
    Table("undone", ("run", "seq"), "record is not null and at <= :made"),
    Table("sessions", ("session",), holds={"chosen": f"{_PARSED}:mapping"}),
    Table("served", ("kind", "id"), holds={"body": f"{_PARSED}:mapping"}),
    Table("traces", ("run",)),
    Table("lease", ("run",)),
    Table(
        "runs",
        ("run",),
        "true",
        holds={
            "options": f"{_PARSED}:mapping",
            "input": f"{_PARSED}:mapping",
            "error": f"{_PARSED}:error_of",
        },
    ),
)
"""A run is removed in this order: its own row last."""
TABLE = {table.name: table for table in TABLES}
