"""rate_limits: drives of this server wait until the limits over all workers let them go."""

import asyncio
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from interlock.cli.warm.fork_client import Child
from interlock.engine.client import Options
from interlock.engine.client.api_rows import ApiRow
from interlock.engine.client.fleet import DriveSlot, release_stale_slots
from interlock.state.errors import BusyError, InterlockError, StoreError
from interlock.web.drive_process import AdoptedProcess

LOOK_S = 0.02
"""Seconds between two looks at a process."""
_TURN_S = 1.0
"""Seconds between two looks whether there is room, or whether somebody cancelled a run."""


class RateLimits:
    """Only where the store has workers."""

    def __init__(self, options: Options) -> None:
        self._home, self._counts = options.home, options.submitted is not None

    def release_slots_except(self, kept_runs: Collection[str]) -> None:
        """Give back what an earlier server left, but the turns of these runs."""
        if self._counts:
            release_stale_slots(self._home, kept_runs)

    async def wait_for_slot(
        self,
        row: ApiRow,
        run: str,
        workflow: str,
        is_wanted: Callable[[], bool] = lambda: True,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> bool:
        """Wait until a drive's run may go; False: it no longer `is_wanted`. `on_wait` is given each reason to wait.

        Raises `InterlockError` if the run was cancelled elsewhere.
        """
        whose = row.body.get("submitted")
        if not self._counts or whose is None:
            return True
        turn, model = DriveSlot(self._home, run), row.body.get("model", "")
        if not await asyncio.to_thread(
            turn.enqueue_if_queue_exists, workflow, whose, row.body.get("after_s")
        ):
            return True
        while is_wanted():
            why: str | None = "The store doesn't answer."
            with suppress(BusyError, StoreError):
                why = await asyncio.to_thread(turn.acquire_or_explain_wait_unless_cancelled, model)
            if why is None:
                raise InterlockError("It was cancelled before it began.")
            if not why:
                return True
            on_wait(why)
            await asyncio.sleep(_TURN_S)
        await self.release_slot(run)
        return False

    async def wait_for_exit_and_forward_cancel(self, run: str, process: "Child | AdoptedProcess") -> None:
        """Wait for the end of a drive's process, and stop it if somebody cancels the run elsewhere."""
        looked = time.monotonic()
        while process.poll() is None:
            await asyncio.sleep(LOOK_S)
            if time.monotonic() - looked > _TURN_S:
                looked = time.monotonic()
                if await self._is_run_cancelled_elsewhere(run):
                    process.send_signal(signal.SIGINT)

    async def _is_run_cancelled_elsewhere(self, run: str) -> bool:
        with suppress(BusyError, StoreError):  # the run goes on without the store for a while
            return self._counts and await asyncio.to_thread(DriveSlot(self._home, run).is_stop_requested)
        return False

    def is_holding_or_awaiting_slot(self, run: str) -> bool:
        """Return whether the run waits for its turn or for a worker, or is driven by whoever took it."""
        return self._counts and DriveSlot(self._home, run).is_waiting_or_driven()

    async def release_slot(self, run: str) -> None:
        """Let whoever waits go on."""
        if self._counts:
            await asyncio.to_thread(DriveSlot(self._home, run).release)
