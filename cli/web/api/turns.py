"""turns: drives that programs ask for wait until the limits over all workers let them go."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from interlock.engine.client import Options
from interlock.engine.client.served import Served
from interlock.engine.client.turns import Turn, leave_others
from interlock.state.errors import BusyError, InterlockError, StoreError

TURN_S = 1.0
"""Seconds between two looks whether there is room, or whether somebody cancelled a run."""


class Turns:
    """Only where the store has workers."""

    def __init__(self, options: Options) -> None:
        self._home, self._counts = options.home, options.submitted is not None

    def resume(self, runs: Collection[str]) -> None:
        """Give back what an earlier server left, but the turns of these runs."""
        if self._counts:
            leave_others(self._home, runs)

    async def taken(self, one: Served, run: str, graph: str, lasts: Callable[[], bool]) -> bool:
        """Wait until a drive's run may go; False: it no longer `lasts`.

        Raises `InterlockError` if the run was cancelled elsewhere.
        """
        whose = one.body.get("submitted")
        if not self._counts or whose is None:
            return True
        turn, model = Turn(self._home, run), one.body.get("model", "")
        if not await asyncio.to_thread(turn.line_up, graph, whose, one.body.get("after_s")):
            return True
        while lasts():
            waits: str | None = "The store doesn't answer."
            with suppress(BusyError, StoreError):
                waits = await asyncio.to_thread(turn.take, model)
            if waits is None:
                raise InterlockError("It was cancelled before it began.")
            if not waits:
                return True
            await asyncio.sleep(TURN_S)
        await self.leave(run)
        return False

    async def is_cancelled(self, run: str) -> bool:
        with suppress(BusyError, StoreError):  # the run goes on without the store for a while
            return self._counts and await asyncio.to_thread(Turn(self._home, run).is_stopped)
        return False

    async def leave(self, run: str) -> None:
        """Let whoever waits go on."""
        if self._counts:
            await asyncio.to_thread(Turn(self._home, run).leave)
