"""jobs: what a store's queue keeps, in words that the queue of any database speaks.

A job has a lock: the run that it drives, or the schedule whose run it starts. It waits until a worker takes it, and is
gone when that is done. A turn is the job of a run that a server drives itself (`admission.py`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol


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


class Unsure(NamedTuple):
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


class Turn(NamedTuple):
    job: int
    queue: str
    user: str
    workflow: str
    is_taken: bool
    is_early: bool
    """Whether its time hasn't come."""


class Jobs(Protocol):
    """The jobs of a store, in the open transaction of a connection. `stalled_s`: seconds without a worker's sign."""

    def exist(self) -> bool:
        """Whether the store has a queue."""
        ...

    def now(self) -> datetime:
        """The time on the database's clock: those of hosts may differ."""
        ...

    def put(
        self,
        task: str,
        lock: str,
        queue: str,
        args: Mapping[str, Any],
        priority: int = 0,
        at: datetime | None = None,
    ) -> None:
        """Put a job that is due `at` a time, or at once; nothing if one with this lock waits: whoever takes that sees
        what changed.
        """
        ...

    def has(self, lock: str) -> bool:
        """Whether a job with this lock waits or is being done."""
        ...

    def due(self, lock: str) -> datetime | None:
        """When the job with this lock is taken; None: none waits."""
        ...

    def remove(self, lock: str) -> None:
        """Remove the job with this lock that waits."""
        ...

    def places(
        self, run: str, user: str, queue: str, bottom: int, top: int
    ) -> tuple[int | None, int | None, int | None]:
        """Priorities above `bottom`, up to `top`: of the run while it is driven, of the first in the queue's line, and
        of the last of this user.
        """
        ...

    def stop(self, run: str, *, only_turns: bool) -> bool | None:
        """Remove the run's job that waits, and ask whoever drives it to stop; returns whether one does.

        None: there was no job. `only_turns`: leave those of workers.
        """
        ...

    def is_asked_to_stop(self, run: str) -> bool: ...

    def put_back(self, job: int, run: str) -> None:
        """Let another worker take a job that is being done; end it if a newer one of the run waits."""
        ...

    def unsure(self, stalled_s: float) -> list[Unsure]:
        """Runs of workers that may be abandoned."""
        ...

    def take_abandoned(self, task: str, stalled_s: float) -> list[dict[str, Any]]:
        """Remove the jobs of a task whose worker is gone; returns the arguments of each."""
        ...

    def workers(self) -> dict[int, float]:
        """Workers with the seconds since their last sign of life."""
        ...

    def all_jobs(self) -> list[Job]: ...

    def unserved(self, runs: Sequence[str], stalled_s: float) -> list[tuple[str, float]]:
        """Queue and seconds of waiting of each of these runs that could go on, if no worker gives a sign of life."""
        ...

    def connections(self) -> tuple[int, int]:
        """Connections to the store's server, of everybody who uses it, and how many it takes."""
        ...

    def count_driven(self, kind: str, name: str, but: int = 0) -> int:
        """The number of admitted jobs of a user, workflow or model, but this one."""
        ...

    def admit(self, job: int) -> None:
        """Let a job count as driven."""
        ...

    def end_admitted(self, job: int) -> bool:
        """Let a job count no more; returns whether it did."""
        ...

    def hold(self, job: int, queue: str) -> None:
        """Move a job to a queue that no worker serves."""
        ...

    def held_queues(self) -> list[str]:
        """Queues that no worker serves, and in which jobs wait."""
        ...

    def release(self, held: str, room: int | None) -> list[str]:
        """Let the first jobs of a held queue be taken, at most `room`; returns their runs."""
        ...

    def hurry(self) -> None:
        """Let every job that waits for a limit be taken now."""
        ...

    def turn(self, run: str) -> Turn | None: ...

    def take_turn(self, job: int) -> None:
        """Take a turn: it counts as driven, and no worker takes it."""
        ...

    def end_turn(self, run: str) -> bool:
        """Remove the run's turn; returns whether there was one."""
        ...

    def runs_of_server(self, server: str) -> list[str]:
        """Runs whose turns a server has or waits for."""
        ...
