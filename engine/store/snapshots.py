"""snapshots: commits of the workspace's files before and after each call that changes something."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from interlock.engine.store import put, select
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import related as related_runs
from interlock.engine.store.steps import StepLog
from interlock.state.calls import CallKey
from interlock.state.clock import unix_time
from interlock.state.deps import to_its_end
from interlock.state.errors import RunError
from interlock.state.events import Emit, ErrorEvent

if TYPE_CHECKING:
    from interlock.services.snapshots.snapshots import Repository, WorkspaceSnapshots


@dataclass
class SqlSnapshots:
    """Implements `Snapshots`. On a failure, warns once and takes no more snapshots in this drive; the run goes on."""

    conn: Connection
    run: str
    steps: StepLog
    emit: Emit
    make: "Callable[[], WorkspaceSnapshots] | None"
    """None: disabled in settings."""
    needed: bool = False
    """A failure ends the drive: other hosts know the run's files from its snapshots."""
    _made: "WorkspaceSnapshots | None" = None
    _newest: tuple[str, str] = ("", "")
    """Message, and the commit after its latest call: nothing else can have changed files since."""

    async def before(self, key: CallKey) -> None:
        place = self._place(key)
        if place in self._calls:  # repeated after a kill: the first snapshot counts
            return
        round_, commit = self._newest
        if round_ != key.message:
            commit = await self._taken()
        if commit and self._made:
            where = dict(zip(("run", "message", "idx", "attempt"), place, strict=True))
            order = {"seq": len(self._calls), "root_step": self.steps.root_step, "at": unix_time()}
            row = {**where, **order, "repository": self._made.name, "before": commit}
            put(self.conn, "snapshots", row, later=True)
            self._calls[place] = False

    async def after(self, key: CallKey, changed: str = "") -> None:
        place = self._place(key)
        if self._calls.get(place) is False and (commit := await self._taken(changed)):
            self._calls[place], self._newest = True, (key.message, commit)
            set_ = "update snapshots set after = ? where run = ? and message = ? and idx = ? and attempt = ?"
            self.conn.later("snapshots", set_, (commit, *place))

    @cached_property
    def _calls(self) -> dict[tuple[str, str, int, int], bool]:
        """Whether the state after each call is recorded."""
        rows = self.conn.execute(
            "select message, idx, attempt, after from snapshots where run = ?", (self.run,)
        )
        return {(self.run, *row[:3]): row[3] is not None for row in rows}

    def close(self) -> None:
        if self._made is None:
            return
        try:
            self._made.close()
        except (RunError, OSError) as error:  # snapshots taken so far stay
            self.emit(ErrorEvent(severity="warning", message=f"Snapshots couldn't be tidied up: {error}"))

    async def since_start(self) -> "tuple[Repository, str, str] | None":
        """Return the snapshots of the workspace when the run began, or a run that it belongs to, and of now.

        None: nothing has been changed since. Raises `RunError` if that can't be told.
        """
        related = [self.run, *related_runs(self.conn, self.run)]
        marks = ", ".join("?" for _ in related)
        unseen = (
            f"select count(*) from journal j where run in ({marks}) and planned is not null and state = 'done' and not "
            "exists (select 1 from snapshots s where (s.run, s.message, s.idx, s.attempt) = "
            "(j.run, j.message, j.idx, j.attempt))"
        )
        if self.conn.execute(unseen, related).fetchone()[0]:
            raise RunError("Files were changed before there was a snapshot of them.")
        begun = f"select repository, before from snapshots where run in ({marks}) order by at, seq"
        rows = self.conn.execute(begun, related).fetchall()
        if not rows and self.make is not None:
            return None
        commit = await self._taken()
        first = next((before for name, before in rows if self._made and name == self._made.name), None)
        if first is None or not commit or self._made is None:
            raise RunError("There is no snapshot of the files that it began with.")
        repository = self._made.repository
        if self.conn.blobs:
            from interlock.engine.store.blobs import bring_commit

            bring_commit(self.conn, repository, first)
        if repository.lacking([first]):
            raise RunError("The snapshot of the files that it began with is gone.")
        return repository, first, commit

    async def _taken(self, changed: str = "") -> str:
        """The commit; empty: none was taken."""
        if self.make is None:
            return ""
        try:
            self._made = made = self._made or self.make()
            commit = await to_its_end(asyncio.to_thread(made.take, f"refs/runs/{self.run}", changed))
            if self.conn.blobs:
                await self._keep(made.repository, commit)
            return commit
        except (RunError, OSError) as error:
            if self.needed:
                raise RunError(
                    f"No snapshots of files: {str(error).rstrip('.')}. Nothing was run."
                ) from error
            self.make = None
            why = f"{str(error).rstrip('.')}. What this run changes from here on can't be taken back by rewind or undo."
            self.emit(ErrorEvent(severity="warning", message=f"No snapshots of files: {why}"))
            return ""

    async def _keep(self, repository: "Repository", commit: str) -> None:
        """As `keep_commit`, with git in another thread: parallel tasks use the connection in this one."""
        from interlock.engine.store.blobs import newest_stored, put_commit

        if newest_stored(self.conn, [commit]):
            return
        earlier = await to_its_end(asyncio.to_thread(repository.ancestors, commit))
        base = newest_stored(self.conn, earlier)
        pack = await to_its_end(asyncio.to_thread(repository.pack_of, commit, base))
        put_commit(self.conn, repository, commit, base, pack)

    def _place(self, key: CallKey) -> tuple[str, str, int, int]:
        return (self.run, key.message, key.index, key.attempt)


class Snapshot(NamedTuple):
    message: str
    idx: int
    attempt: int
    root_step: int
    repository: str
    before: str
    after: str
    """Empty: cut off by a kill."""
    inherited: bool

    @property
    def key(self) -> str:
        """Same as `Call.key`."""
        return f"{self.message}.{self.idx}.{self.attempt}"


def snapshots(home: Path, run: str) -> list[Snapshot]:
    """Snapshots in call order. If a kill cut off the one after a call, the one before the next call replaces it."""
    rows = select(
        home,
        "select message, idx, attempt, root_step, repository, before, coalesce(after, '') as after, inherited "
        "from snapshots where run = ? order by inherited desc, seq",
        run,
    )
    found = [Snapshot(*row) for row in rows]
    nexts = [*(later.before for later in found), ""][1:]
    return [s if s.after else s._replace(after=then) for s, then in zip(found, nexts, strict=True)]


def planned_paths(home: Path, run: str) -> list[tuple[str, str]]:
    """Key and path of each call that planned to write a file."""
    sql = "select message, idx, attempt, planned from journal where run = ? and planned is not null"
    return [
        (f"{message}.{idx}.{attempt}", json.loads(planned)["path"])
        for message, idx, attempt, planned in select(home, sql, run)
    ]
