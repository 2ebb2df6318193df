"""process_watch: waits for a command while its output streams; ends it on time-out, silence or a stop."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Literal

from interlock.services.process_output import ProcessOutput
from interlock.services.supervised import GRACE_S, Supervised, readable
from interlock.state.tooling import Ended

_CHUNK = 65_536
"""Bytes a read: what a pipe holds."""
_STOP_S = GRACE_S + 6.0
"""A supervisor that was asked to stop has ended by then, or what it supervises can't be killed."""
_DRAIN_S = 1.0
"""Only what escaped its supervisor (`escape_note`) can hold the output open for longer."""

Why = Literal["exited", "timeout", "inactivity"]


class Watch:
    """One run of one command."""

    def __init__(
        self, child: Supervised, read: int, output: ProcessOutput, on_output: Callable[[str], None] | None
    ) -> None:
        self._child = child
        self._read = read
        self._output = output
        self._on_output = on_output
        self._started = self._spoke = time.monotonic()
        os.set_blocking(read, False)

    async def until_end(self, timeout_s: float, inactivity_s: float) -> Ended:
        """Wait for the command, all its descendants and all of its output."""
        end = asyncio.ensure_future(self._child.finished())
        pump = asyncio.ensure_future(self._pump())
        try:
            try:
                why = await self._until(end, timeout_s, inactivity_s)
            except asyncio.CancelledError:
                await self._stopped(end)
                raise
            if why != "exited":
                await self._stopped(end)
            await asyncio.wait({pump}, timeout=_DRAIN_S)
            if pump.done():
                pump.result()
        finally:
            for task in (end, pump):
                task.cancel()
            await asyncio.gather(end, pump, return_exceptions=True)
        return await self._ended(why)

    async def _until(self, end: asyncio.Future[None], timeout_s: float, inactivity_s: float) -> Why:
        while True:
            now = time.monotonic()
            total, silent = self._started + timeout_s - now, self._spoke + inactivity_s - now
            await asyncio.wait({end}, timeout=max(0.0, min(total, silent)))
            now = time.monotonic()
            if end.done():
                end.result()
                return "exited"
            if now >= self._started + timeout_s:
                return "timeout"
            if now >= self._spoke + inactivity_s:
                return "inactivity"

    async def _stopped(self, end: asyncio.Future[None]) -> None:
        self._child.stop()
        await asyncio.wait({end}, timeout=_STOP_S)

    async def _pump(self) -> None:
        while True:
            await readable(self._read)
            chunk = os.read(self._read, _CHUNK)
            self._spoke = time.monotonic()
            self._show(self._output.feed(chunk) if chunk else self._output.end())
            if not chunk:
                return

    def _show(self, text: str) -> None:
        if text and self._on_output:
            self._on_output(text)

    async def _ended(self, why: Why) -> Ended:
        file = await asyncio.to_thread(self._output.save) if self._output.omitted else None
        child = self._child
        return Ended(
            how=self._how(why),
            exit_code=child.exit_code,
            signal=self._signal(),
            output=child.error or self._output.text(),
            omitted=self._output.omitted,
            full_output=file,
            duration_s=time.monotonic() - self._started,
            note=self._output.note,
            excess=child.limit or "",
        )

    def _how(self, why: Why) -> Literal[Why, "not_started", "limit", "lost"]:
        if self._child.error:
            return "not_started"
        if self._child.limit:
            return "limit"
        return "lost" if why == "exited" and self._child.lost else why

    def _signal(self) -> str | None:
        number = self._child.signal
        if number is None:
            return None
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"signal {number}"  # real-time signals have no name
