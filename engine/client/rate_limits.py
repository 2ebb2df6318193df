"""rate_limits: limits over all workers, for runs that a server drives itself."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.options import Options
from interlock.engine.store import Store, open_reader, rate_limits
from interlock.engine.store.queue import Submission, submitted
from interlock.engine.store.runs import set_run_error
from interlock.state.errors import InterlockError


class LimitedDrive(NamedTuple):
    """A drive that a limit stopped."""

    why: str
    seconds: float | None
    """Until the limit has room; None: it doesn't pass by itself."""
    model: str
    """Whose call had to wait."""


@dataclass(frozen=True)
class QueuedTurn:
    """The place in line of one run."""

    home: Path
    run: str

    def enqueue(self, workflow: str, whose: Mapping[str, Any], after_s: float | None) -> bool:
        """`whose`: `Options.submitted`. `after_s`: seconds until the limit that stopped it has room.

        False: the store has no queue, and so no limits.
        """
        by = Submission(whose["user"], whose["priority"], workflow, "")
        with Store(self.home).writing() as conn:
            return rate_limits.enqueue_turn(conn, self.run, by, after_s)

    def take(self, model: str = "") -> str | None:
        """What the run waits for; empty: it may be driven now; None: somebody cancelled it.

        `model`: whose limit stopped it before.
        """
        with Store(self.home).writing() as conn:
            return rate_limits.take_turn(conn, self.run, model)

    def stands(self) -> bool:
        """Whether it waits for its turn or for a worker, or is driven by whoever took it."""
        with open_reader(self.home) as conn:
            assert conn is not None
            return rate_limits.stands(conn, self.run)

    def leave(self) -> None:
        with Store(self.home).writing() as conn:
            rate_limits.leave_turn(conn, self.run)

    def is_stopped(self) -> bool:
        """Whether somebody asked for the run's end."""
        with open_reader(self.home) as conn:
            assert conn is not None
            return rate_limits.is_stopped(conn, self.run)


def leave_stale_turns(home: Path, runs: Collection[str]) -> None:
    """Give back the turns that an earlier server of this host left, but those of these runs."""
    with Store(home).writing() as conn:
        rate_limits.end_other_turns(conn, runs)


def with_fleet_limits(options: Options) -> Options:
    """Options of a drive whose model calls count for the limits over all workers."""
    from interlock.engine.store.rate_limits import FleetLimits

    return replace(options, limited=FleetLimits())


def read_limit_stop(options: Options, run: str) -> LimitedDrive | None:
    """What stopped a drive with `limited` options, if it was a limit; the run's row says so from now on.

    None, too, for a run of workers: they go on with it.
    """
    if options.limited is None or (wait := options.limited.wait) is None:
        return None
    with Store(options.home).writing() as conn:
        if (whose := submitted(conn, run)).queue:
            rate_limits.put_back(conn, run, whose, wait, model=options.limited.model)
            return None
        set_run_error(conn, run, wait.error)
    return LimitedDrive(wait.why, wait.seconds, options.limited.model)


def record_failure(home: Path, run: str, error: InterlockError) -> None:
    """Keep in the run's row why it can't be driven, for whoever looks at it."""
    with Store(home).writing() as conn:
        set_run_error(conn, run, {"type": error.kind, "message": str(error)})
