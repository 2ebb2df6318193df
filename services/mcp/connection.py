"""connection: one server over the life of a drive: started when first asked for, reconnected when lost, ended."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from interlock.services.mcp.client import Listing, LostError, Session, session
from interlock.services.mcp.spec import ServerSpec
from interlock.state.errors import RunError
from interlock.state.mcp import ServerStatus, ServerView
from interlock.state.text import visible

CONNECT_S = 30.0
"""Seconds until a server that says nothing counts as failed; a package may have to be fetched first."""
READY_S = 10.0
"""Seconds that a run waits for its servers (Roo: 10); one that takes longer joins at a later turn."""
_RETRIES = 5
_FIRST_DELAY_S = 0.5
"""Before a lost server is connected to again; doubles each time."""
_SETTLE_S = 0.05
"""A server that changes tells so several times in a row."""
_CLOSE_S = 8.0
_REASON = 500


class UnavailableError(Exception):
    """There is no session, and nothing was sent."""


class Connection:
    """One server. Its session lives in a task of its own, as the SDK wants it."""

    def __init__(
        self, spec: ServerSpec, transport: Callable[[Callable[[str], None]], Any], workspace: Path
    ) -> None:
        """`transport`: makes a fresh one; is given whom to tell when the server is lost."""
        self.spec = spec
        self.problem = spec.problem
        self.listing = Listing()
        self._transport, self._workspace = transport, workspace
        self._session: Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        """It is connected, or has failed."""
        self._wake = asyncio.Event()
        self._lost = ""
        self._changed = self._closing = False
        self._instructions = self._version = ""

    @property
    def usable(self) -> bool:
        return not self.spec.problem and not self.spec.disabled

    @property
    def status(self) -> ServerStatus:
        if self.spec.disabled:
            return "disabled"
        if self._session is not None:
            return "connected"
        if self.problem and (self._task is None or self._task.done()):
            return "failed"
        return "not started" if self._task is None else "connecting"

    def view(self) -> ServerView:
        known = self.listing
        return (
            ServerView(
                name=visible(self.spec.name),
                status=self.status,
                transport=self.spec.transport,
                error=self.problem if self.status != "connected" else None,
                warnings=known.refused,
                version=self._version,
                trust=self.spec.trust,
                instructions=self._instructions,
                resources=known.resources,
                templates=known.templates,
                prompts=known.prompts,
            )
            if self.usable
            else ServerView(
                name=visible(self.spec.name),
                status=self.status,
                transport=self.spec.transport,
                error=self.problem or None,
                trust=self.spec.trust,
            )
        )

    async def ready(self) -> None:
        """Start it, if that was never tried, and wait a while."""
        if not self.usable:
            return
        if self._task is None:
            self._start()
        if not self._settled.is_set():
            await asyncio.wait({asyncio.ensure_future(self._settled.wait())}, timeout=READY_S)

    async def live(self) -> Session:
        """A session, with another try where it had failed. Raises `UnavailableError`."""
        if not self.usable:
            raise UnavailableError(self.problem or "it is disabled in settings")
        if self._task is None or self._task.done():
            self._start()
        await self._settled.wait()
        if self._session is None:
            raise UnavailableError(self.problem)
        return self._session

    async def close(self) -> None:
        """End the session and its process."""
        self._closing = True
        self._wake.set()
        if self._task is None:
            return
        _, late = await asyncio.wait({self._task}, timeout=_CLOSE_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CLOSE_S)

    def _start(self) -> None:
        self._settled.clear()
        self.problem = ""
        self._task = asyncio.create_task(self._serve(), name=f"MCP server {self.spec.name}")

    async def _serve(self) -> None:
        left, delay = 0, _FIRST_DELAY_S
        while not self._closing:
            was_connected = await self._connected()
            self._session = None
            if was_connected:
                left, delay = _RETRIES, _FIRST_DELAY_S
            if self._closing or not left:
                break
            self._settled.clear()
            await self._pause(delay)
            left, delay = left - 1, delay * 2
        self._settled.set()

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        await asyncio.wait({asyncio.ensure_future(self._wake.wait())}, timeout=seconds)

    async def _connected(self) -> bool:
        """One session from its beginning to its end; whether there was one."""
        self._lost, self._changed = "", False
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(CONNECT_S):
                    made = session(self.spec, self._made, self._workspace, self._on_change)
                    live = await stack.enter_async_context(made)
                    self.listing = await live.listing()
                self._instructions, self._version = live.instructions, live.version
                self._session, self.problem = live, ""
                self._settled.set()
                await self._until_lost(live)
        except Exception as error:  # whatever a server or the SDK meets ends this one session
            self._lost = self._lost or _reason(error)
        connected, self._session = self._session is not None, None
        self.problem = visible(self._lost)[:_REASON]
        return connected

    def _made(self) -> Any:
        return self._transport(self._on_lost)

    async def _until_lost(self, live: Session) -> None:
        while not self._lost and not self._closing:
            self._wake.clear()
            if self._changed:
                await asyncio.sleep(_SETTLE_S)
                self._changed = False
                self.listing = await live.listing()
                continue
            await self._wake.wait()

    def _on_lost(self, why: str) -> None:
        self._lost = self._lost or why
        self._wake.set()

    def _on_change(self) -> None:
        self._changed = True
        self._wake.set()

    def gone(self, why: LostError, session: Session) -> None:
        """A request found out that the session is over."""
        if self._session is session:
            self._session = None
            self._settled.clear()
            self._on_lost(str(why))


def _reason(error: BaseException) -> str:
    """The first cause, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it did not answer within {CONNECT_S:g} s"
    if isinstance(error, RunError | LostError):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
