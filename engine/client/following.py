"""following: a run's events from its record and then live, whichever process drives it.

What the record holds comes from the record alone, each event once, with the place behind it, from which a follower goes
on after a lost connection. What only a live drive has (text in pieces, output, progress) comes in between while this
process drives, and has no place.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from interlock.engine.client.record import Cursor, read_conversation_events, read_record_version
from interlock.engine.read import find_run, list_waiting_requests
from interlock.engine.store import make_change_detector as changes
from interlock.state.events import Event, Init, MessageEvent, ToolResultEvent, ToolUse

if TYPE_CHECKING:
    from interlock.engine.driver.stop import Stop

_LOOK_S = 0.1
"""Seconds between two looks at what other processes committed."""
_ALIVE_S = 1.0
"""Seconds between two looks at the driver, which dies without a commit."""


class RunStatus(NamedTuple):
    """How a run stands, as `show` says it, and what of it waits for a person."""

    status: str
    waiting: tuple[str, ...]
    owner: str | None


class FollowedEvent(NamedTuple):
    """One thing that happened."""

    event: Event | RunStatus
    cursor: str
    """The place in the record behind it; empty: it isn't in the record."""


class LiveDrive:
    """One drive of this process: a renderer that passes its events to followers, and what stops it."""

    def __init__(self, stop: "Stop", drives: "LiveDriveRegistry") -> None:
        self.stop, self._drives = stop, drives
        self.run = ""
        self._loop = asyncio.get_running_loop()

    def __call__(self, event: Event, /) -> None:  # on its own thread
        if isinstance(event, Init):
            self.run = event.session_id
        self._drives.publish_event(self.run, event)

    def request_stop(self) -> None:
        """Stop it cleanly. Callable from any thread."""
        self._loop.call_soon_threadsafe(self.stop)

    def request_drain(self) -> None:
        """Let what it has begun end, and nothing more begin. Callable from any thread."""
        self._loop.call_soon_threadsafe(self.stop.request_drain, "cancelled")


class LiveDriveRegistry:
    """The drives of this process that one client began."""

    def __init__(self) -> None:
        self.open: list[LiveDrive] = []
        self._lock = threading.Lock()
        self._queues: list[tuple[str, asyncio.AbstractEventLoop, asyncio.Queue[Event]]] = []

    @contextmanager
    def register_drive(self, stop: "Stop") -> Generator[LiveDrive]:
        made = LiveDrive(stop, self)
        self.open.append(made)
        try:
            yield made
        finally:
            self.open.remove(made)

    def is_driving(self, run: str) -> bool:
        return any(drive.run == run for drive in [*self.open])

    def publish_event(self, run: str, event: Event) -> None:
        with self._lock:
            for wanted, loop, queue in self._queues:
                if wanted == run:
                    loop.call_soon_threadsafe(queue.put_nowait, event)

    @contextmanager
    def subscribe_to_events(self, run: str) -> "Generator[asyncio.Queue[Event]]":
        entry = (run, asyncio.get_running_loop(), asyncio.Queue[Event]())
        with self._lock:
            self._queues.append(entry)
        try:
            yield entry[2]
        finally:
            with self._lock:
                self._queues.remove(entry)


async def follow_events(
    home: Path, run: str, cursor: str, drives: LiveDriveRegistry
) -> AsyncGenerator[FollowedEvent]:
    """A run's events from a place on, and each change of how it stands; ends when its reader closes it."""
    place, changed = Cursor.parse(cursor), changes(home)
    stood: RunStatus | None = None
    read: tuple[object, ...] = ()
    looked = 0.0
    with drives.subscribe_to_events(run) as pieces:
        try:
            while True:
                driven = drives.is_driving(
                    run
                )  # before the pieces: a drive that has ended has told its last one
                for event in await _wait_briefly_for_live_events(pieces) if stood else []:
                    if not _is_in_record(event):
                        yield FollowedEvent(event, "")
                if not (changed() or time.monotonic() - looked > _ALIVE_S):
                    continue
                stands = read_run_status(home, run)  # before the record, which may keep growing
                if driven and stands.status != "running" and stood:
                    looked = 0.0  # its drive is about to end: how it ended comes behind its last piece
                    continue
                looked = time.monotonic()
                if (
                    now := read_record_version(home, run)
                ) != read:  # else another run's commit, which are most
                    read = now
                    for event in place.read_new_events(
                        await asyncio.to_thread(read_conversation_events, home, run)
                    ):
                        yield FollowedEvent(event, str(place))
                if stands != stood:
                    stood = stands
                    yield FollowedEvent(stands, str(place))
        finally:
            changed.close()


async def poll_store_for_changes(home: Path) -> AsyncGenerator[bool]:
    """At each look whether some process wrote to the store since the last; never ends."""
    look = changes(home)
    try:
        while True:
            yield look()
            await asyncio.sleep(_LOOK_S)
    finally:
        look.close()


def read_run_status(home: Path, run: str) -> RunStatus:
    row = find_run(home, run)
    waiting = tuple(request.id for request in list_waiting_requests(home, run)) if row.waiting else ()
    return RunStatus(row.status, waiting, row.owner)


async def _wait_briefly_for_live_events(pieces: "asyncio.Queue[Event]") -> list[Event]:
    """What came since the last look; waits a moment for the first."""
    await asyncio.sleep(0)  # what another thread told already arrives
    try:
        async with asyncio.timeout(_LOOK_S):  # `wait_for` forgets a cancellation that comes with a piece
            found = [await pieces.get()]
    except TimeoutError:
        return []
    while not pieces.empty():
        found.append(pieces.get_nowait())
    return found


def _is_in_record(event: Event) -> bool:
    """Whether the record brings it, too: what is said whole, and calls."""
    return isinstance(event, ToolUse | ToolResultEvent) or (
        isinstance(event, MessageEvent) and not event.delta and not event.agent
    )
