"""jobs: what the rules of the queue (`queue.py`) and of limits ask of a database. Each keeps its jobs in its own way.

A file keeps them in the table `wakes` (`wakes.py`), PostgreSQL as Procrastinate's jobs (`procrastinate_jobs.py`).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from interlock.state.errors import PASSING

WakeKind = Literal["run", "decision", "limit", "schedule"]
"""What wakes a run: it was left to workers, somebody decided, a limit has room, or a schedule's time has come."""
HELD = "held:"
"""Begins the queues that no worker serves (`rate_limits.py`)."""
LEVEL = 1_000_000
"""Places in the line of one priority."""
ASKED = "a.answer is null and a.superseded = 0 and a.interrupt is not null"
NOT_ASKED = f"not exists (select 1 from approvals a where a.run = r.run and {ASKED})"


def passes_sql(json_field: str) -> str:
    """Return the condition for a run `r` whose error passes by itself, or that has none.

    `json_field`: the database's `Dialect.json_field`.
    """
    return f"coalesce({json_field.format(column='r.error', field='type')}, 'died') in {PASSING}"


class Job(NamedTuple):
    run: str
    queue: str
    doing: bool
    driver: str
    """Host and process; empty: it waits."""
    deaths: int
    """Times that its process or worker died."""
    age_s: float
    user: str
    priority: int
    waits: str
    """For which limit; empty: for none."""


class PossiblyAbandonedRun(NamedTuple):
    """A run that a job drives, or that none does, with what changes while somebody really drives it."""

    run: str
    job: int | None
    queue: str
    worker: int | None
    """Who has the job."""
    stalled: bool
    """The job's worker gives no sign of life."""
    epoch: int
    beat: int
    held: int


class ServerTurn(NamedTuple):
    job: int
    queue: str
    user: str
    workflow: str
    is_taken: bool
    is_early: bool
    """Whether its time hasn't come."""


class Jobs(ABC):
    """The jobs of a store, in the open transaction of a connection. Of each key, one waits at most.

    `stalled_s`: seconds without a worker's sign of life after which it counts as gone.
    """

    @abstractmethod
    def is_set_up(self) -> bool:
        """Return whether the store has a queue."""

    @abstractmethod
    def read_database_time(self) -> datetime:
        """Return the time on the database's clock: those of hosts may differ."""

    @abstractmethod
    def enqueue_job_unless_waiting(
        self,
        kind: WakeKind,
        key: str,
        queue: str,
        args: Mapping[str, Any],
        priority: int = 0,
        at: datetime | None = None,
    ) -> None:
        """Put a job that is due `at` a time, or at once; nothing if one with this key waits: whoever takes that sees
        what changed.
        """

    @abstractmethod
    def has_unfinished_job(self, key: str) -> bool:
        """Return whether a job with this key waits or is being done."""

    @abstractmethod
    def find_waiting_job_due_time(self, key: str) -> datetime | None:
        """Return when the job with this key is taken; None: none waits."""

    @abstractmethod
    def remove_waiting_job(self, key: str) -> None:
        """Remove the job with this key that waits."""

    @abstractmethod
    def find_queue_priorities(
        self, run: str, user: str, queue: str, bottom: int, top: int
    ) -> tuple[int | None, int | None, int | None]:
        """Return priorities above `bottom`, up to `top`: of the run while it is driven, of the first in the queue's
        line, and of the last of this user.
        """

    @abstractmethod
    def cancel_jobs_of_run(self, run: str, *, only_server_turns: bool) -> bool | None:
        """Remove the run's job that waits, and ask whoever drives it to stop; returns whether one does.

        None: there was no job. `only_server_turns`: leave those of workers.
        """

    @abstractmethod
    def is_stop_requested(self, run: str) -> bool: ...

    @abstractmethod
    def requeue_or_end_running_job(self, job: int, run: str) -> None:
        """Let a worker take a job that is being done; end it if a newer one of the run waits."""

    @abstractmethod
    def list_possibly_abandoned_runs(self, stalled_s: float) -> list[PossiblyAbandonedRun]:
        """Return runs of workers that may be abandoned."""

    @abstractmethod
    def remove_abandoned_jobs(self, kind: WakeKind, stalled_s: float) -> list[dict[str, Any]]:
        """Remove the jobs of a kind whose worker is gone; returns the arguments of each."""

    @abstractmethod
    def read_worker_heartbeat_ages(self) -> dict[int, float]:
        """Return workers with the seconds since their last sign of life."""

    @abstractmethod
    def list_drive_jobs(self) -> list[Job]: ...

    @abstractmethod
    def list_queues_and_waits_of_unserved_runs(
        self, runs: Sequence[str], stalled_s: float
    ) -> list[tuple[str, float]]:
        """Return queue and seconds of waiting of each of these runs that could go on, if no worker gives a sign of
        life.
        """

    @abstractmethod
    def read_connection_count_and_limit(self) -> tuple[int, int] | None:
        """Return connections to the store's server, of everybody who uses it, and how many it takes; None: there is no
        server.
        """

    def count_due_jobs(self) -> int:
        """Return the number of jobs that are due, if no worker runs; 0 where a server's workers look for them."""
        return 0

    @abstractmethod
    def count_admitted_jobs(self, kind: str, name: str, except_job: int = 0) -> int:
        """Return the number of admitted jobs of a user, workflow or model, but this one."""

    @abstractmethod
    def mark_admitted(self, job: int) -> None:
        """Let a job count as driven."""

    @abstractmethod
    def unmark_admitted(self, job: int) -> bool:
        """Let a job count no more; returns whether it did."""

    @abstractmethod
    def move_to_held_queue(self, job: int, queue: str) -> None:
        """Move a job to a queue that no worker serves."""

    @abstractmethod
    def list_held_queues(self) -> list[str]:
        """Return queues that no worker serves, and in which jobs wait."""

    @abstractmethod
    def release_jobs_of_queue(self, held_queue: str, limit: int | None) -> list[str]:
        """Let the first jobs of a held queue be taken, at most `limit`; returns their runs."""

    @abstractmethod
    def make_limit_delayed_jobs_due(self) -> None:
        """Let every job that waits for a limit be taken now."""

    @abstractmethod
    def find_server_turn(self, run: str) -> ServerTurn | None:
        """Return the run's turn at a page's server; None: it has none."""

    @abstractmethod
    def mark_turn_taken(self, job: int) -> None:
        """Take a turn: it counts as driven, and no worker takes it."""

    @abstractmethod
    def remove_server_turn(self, run: str) -> bool:
        """Remove the run's turn; returns whether there was one."""

    @abstractmethod
    def list_runs_of_server(self, server: str) -> list[str]:
        """Return runs whose turns a server has or waits for."""


def awaited_limit(error: str | None) -> str:
    """Return the limit that a run with this error waits for; empty: none."""
    found: dict[str, str] = json.loads(error) if error else {}
    return found["of"] if found.get("type") == "limit" else ""
