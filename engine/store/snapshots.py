"""snapshots: which commits of a workspace's shadow repository stand before and after each call."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from interlock.engine.store.database import insertion
from interlock.engine.store.steps import StepLog
from interlock.services.sqlite import later
from interlock.state.calls import CallKey
from interlock.state.deps import to_its_end
from interlock.state.errors import RunError
from interlock.state.events import Emit, ErrorEvent

if TYPE_CHECKING:
    from interlock.services.snapshots.snapshots import WorkspaceSnapshots


@dataclass
class SqlSnapshots:
    """Implements `Snapshots`. What fails is told once, and nothing more is kept by this drive: the run goes on."""

    conn: sqlite3.Connection
    run: str
    steps: StepLog
    emit: Emit
    make: "Callable[[], WorkspaceSnapshots] | None"
    """None: settings want none."""
    _made: "WorkspaceSnapshots | None" = None
    _newest: tuple[str, str] = ("", "")
    """Round, and the commit after its newest call: nobody else had time to change anything since."""

    async def before(self, key: CallKey) -> None:
        place = self._place(key)
        if place in self._calls:  # a kill came after it: what was then is what counts
            return
        round_, commit = self._newest
        if round_ != key.message:
            commit = await self._taken()
        if commit and self._made:
            where = dict(zip(("run", "message", "idx", "attempt"), place, strict=True))
            order = {"seq": len(self._calls), "root_step": self.steps.root_step, "at": time.time()}
            later(
                self.conn,
                *insertion("snapshots", {**where, **order, "repository": self._made.name, "before": commit}),
            )
            self._calls[place] = False

    async def after(self, key: CallKey, changed: str = "") -> None:
        place = self._place(key)
        if self._calls.get(place) is False and (commit := await self._taken(changed)):
            self._calls[place], self._newest = True, (key.message, commit)
            set_ = "update snapshots set after = ? where run = ? and message = ? and idx = ? and attempt = ?"
            later(self.conn, set_, (commit, *place))

    @cached_property
    def _calls(self) -> dict[tuple[str, str, int, int], bool]:
        """Whether what was after a call is known."""
        rows = self.conn.execute(
            "select message, idx, attempt, after from snapshots where run = ?", (self.run,)
        )
        return {(self.run, *row[:3]): row[3] is not None for row in rows}

    def close(self) -> None:
        if self._made is None:
            return
        try:
            self._made.close()
        except (RunError, OSError) as error:  # what was kept stays
            self.emit(ErrorEvent(severity="warning", message=f"Snapshots couldn't be tidied up: {error}"))

    async def _taken(self, changed: str = "") -> str:
        """Empty: there is none."""
        if self.make is None:
            return ""
        try:
            self._made = self._made or self.make()
            return await to_its_end(asyncio.to_thread(self._made.take, f"refs/runs/{self.run}", changed))
        except (RunError, OSError) as error:
            self.make = None
            why = f"{str(error).rstrip('.')}. What this run changes from here on can't be taken back by rewind or undo."
            self.emit(ErrorEvent(severity="warning", message=f"No snapshots of files: {why}"))
            return ""

    def _place(self, key: CallKey) -> tuple[str, str, int, int]:
        return (self.run, key.message, key.index, key.attempt)
