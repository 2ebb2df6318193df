"""tables: every table of the store: whose rows it holds, and what a fork takes of them.

Who adds a table names it here, and in `schema.sql`; its readers stand in `damage.py`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    name: str
    forked: str | None = None
    """Condition for the rows of a run's history up to a step, which a fork at that step copies; None: it copies none.

    Parameters: `:run`, `:step`, `:id` (of the step's checkpoint), `:made` (its time, seconds).
    """
    owner: str = "run"
    """The column that names the run."""
    driven: bool = True
    """Whether only the run's driver writes it, apart from people's decisions; its lease then fences it."""
    kept: bool = False
    """Whether other runs may read its rows after the run is removed."""


_DONE = "(state = 'done' and done_at <= :made)"

TABLES = (
    Table("checkpoints", "checkpoint_ns = '' and checkpoint_id <= :id", owner="thread_id"),
    Table("writes", "checkpoint_ns = '' and checkpoint_id < :id", owner="thread_id"),
    Table("chain", kept=True),
    Table("model_calls", "at <= :made"),
    Table("reservations"),
    Table(
        "journal",
        f"{_DONE} or (state = 'scheduled' and (message, idx) in "
        f"(select message, idx from journal where run = :run and {_DONE}))",
    ),
    Table("decisions", "at <= :made"),
    Table("hook_calls", "done_at <= :made"),
    Table("server_replies", "at <= :made"),
    Table("approvals", "answered_at <= :made"),
    Table("steps", "root_step < :step"),
    Table("snapshots", "root_step < :step"),
    Table("lease", driven=False),
    Table("runs", "1"),
)
"""A run is removed in this order: its own row last."""
