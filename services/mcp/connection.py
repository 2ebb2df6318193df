"""connection: one server during a drive: started on first use, reconnected when lost, and closed.

In a replay it has the state recorded by the run: nothing is started or called.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter

from interlock.services.mcp.client import (
    Listing,
    NotStreamableError,
    ServerSession,
    open_session,
    unwrap_exception_group,
)
from interlock.services.mcp.exchanges import AnsweredError, LostError, import_mcp_sdk, wait_at_most
from interlock.services.mcp.spec import ServerSpec
from interlock.state.errors import InterlockError
from interlock.state.mcp import ServerStatus, ServerView
from interlock.state.text import make_visible

CONNECT_S = 30.0
"""Seconds that a call or a check waits for a server that starts, unless it has a `timeout` in settings."""
_TELLS_S = 5.0
"""Seconds after the limit of a start by which its failure is known: its process ends first, on a busy machine late."""
READY_S = 10.0
"""Seconds that a run waits for a server without a `timeout` (Roo: 10); slower ones join at a later turn."""
_RETRIES = 5
_FIRST_DELAY_S = 0.5
"""Delay before the first reconnect; doubles each time."""
_STABLE_S = 30.0
"""A session that lasted this long resets the retry count."""
_SETTLE_S = 0.05
"""Servers often send several change notifications in a row."""
_CLOSE_S = 8.0
_REASON = 500


CONNECTION_ENDED = "the connection ended before it answered"


class UnavailableError(Exception):
    """There is no session, and nothing was sent."""


class ServerConnection:
    """One server. Its session lives in its own task, as the SDK requires."""

    def __init__(
        self,
        spec: ServerSpec,
        transport: Callable[[ServerSpec, Callable[[str], None]], Any],
        workspace: Path,
        connect_s: float | None = None,
    ) -> None:
        """`transport` creates a fresh one; its second argument is called with the reason when the server is lost.

        `connect_s`: seconds for one attempt to connect; None: the server's `timeout`. Its process is kept that long,
        because it may have to download a package first.
        """
        self.spec = spec
        self.problem = spec.problem
        self.listing = Listing()
        self._transport, self._workspace = transport, workspace
        self._connect_s = connect_s or spec.timeout_s
        self._session: ServerSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        """Set once it is connected and its listing is known, or it has failed."""
        self._since = 0.0
        """Monotonic time since which it has been starting, lost or refreshing."""
        self._wake, self._asked = asyncio.Event(), asyncio.Event()
        self._tried = asyncio.Event()
        """Set once there is a session, or the last attempt has failed."""
        self._lost = ""
        self._changed = self._closing = self._refuses_http = False
        self._instructions = self._version = ""

    @property
    def loss_reason(self) -> str:
        """Why there is no longer a session."""
        return make_visible(self._lost)[:_REASON]

    @property
    def is_enabled_and_valid(self) -> bool:
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

    def to_view(self) -> ServerView:
        known, status = self.listing, self.status
        return ServerView(
            name=make_visible(self.spec.name),
            status=status,
            transport=self.spec.transport,
            error=None if status == "connected" else self.problem or None,
            warnings=known.refused,
            version=self._version,
            trust=self.spec.trust,
            instructions=self._instructions,
            resources=known.resources,
            templates=known.templates,
            prompts=known.prompts,
        )

    async def start_and_wait_briefly(self) -> None:
        """Start the server if that was never tried, and wait for it, but only once for a slow one."""
        if not self.is_enabled_and_valid:
            return
        if self._task is None:
            self._start_session_task()
        # A try that ends at its own limit has a moment to say so: otherwise it is told to be starting still, too.
        wait_s = self.spec.start_wait_s + _TELLS_S if self.spec.start_wait_s else READY_S
        await wait_at_most(max(0.0, self._since + wait_s - time.monotonic()), self._settled.wait())

    async def require_session(self) -> ServerSession:
        """Return a session, retrying after a failure. Raises `UnavailableError`."""
        if not self.is_enabled_and_valid:
            raise UnavailableError(self.problem or "it is disabled in settings")
        if self._task is None or self._task.done():
            self._start_session_task()
        elif self._session is None:
            self._tried.clear()
            self._asked.set()
        wait_s = self.spec.start_wait_s or CONNECT_S
        try:
            async with asyncio.timeout(wait_s):
                await self._tried.wait()
        except TimeoutError:
            raise UnavailableError(
                f"it has not answered within {wait_s:g} s and is still starting; `timeout` in its settings, in "
                "milliseconds, waits longer"
            ) from None
        if self._session is None:
            raise UnavailableError(self.problem)
        return self._session

    async def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._asked.set()
        if self._task is None:
            return
        if not self._session and not self._task.done():
            self._task.cancel()
        _, late = await asyncio.wait({self._task}, timeout=_CLOSE_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CLOSE_S)

    def _start_session_task(self) -> None:
        self.problem = ""
        self._tried.clear()
        self._reset_readiness()
        self._task = asyncio.create_task(self._keep_connected(), name=f"MCP server {self.spec.name}")

    def _reset_readiness(self) -> None:
        self._since = time.monotonic()
        self._settled.clear()

    async def _keep_connected(self) -> None:
        """Reconnect a server that was connected before when it is lost; at once if a session is requested."""
        known, retries = False, 0
        while not self._closing:
            self._asked.clear()
            self._tried.clear()
            began = time.monotonic()
            connected = await self._run_session_with_sse_fallback()
            known = known or connected
            if not connected:
                self._tried.set()
            if time.monotonic() - began > _STABLE_S:
                retries = 0
            if self._closing or not known or retries == _RETRIES:
                break
            await wait_at_most(_FIRST_DELAY_S * 2**retries, self._asked.wait())
            retries += 1
        self._settled.set()
        self._tried.set()

    async def _run_session_with_sse_fallback(self) -> bool:
        """Run one session from start to end; returns whether it connected."""
        connected = await self._run_session_with_spec(self.spec)
        if not connected and self._refuses_http and self.spec.or_sse:
            connected = await self._run_session_with_spec(replace(self.spec, transport="sse", or_sse=False))
        self.problem = self.loss_reason
        return connected

    async def _run_session_with_spec(self, spec: ServerSpec) -> bool:
        self._lost, self._changed, self._refuses_http, connected = "", False, False, False
        try:
            async with AsyncExitStack() as stack:
                # Half a second of CPU: a thread keeps Ctrl-C and other servers responsive.
                await asyncio.to_thread(import_mcp_sdk)
                async with asyncio.timeout(self._connect_s):
                    transport = partial(self._transport, spec, self._retire_session)
                    made = open_session(spec, transport, self._workspace, self._schedule_listing_refresh)
                    live = await stack.enter_async_context(made)
                    self.listing = await live.list_offerings()
                self._instructions, self._version, self.spec = live.instructions, live.version, spec
                self._session, self.problem, connected = live, "", True
                await self._refresh_listing_until_lost(live)
        except Exception as error:  # any error of a server or the SDK ends only this session
            self._refuses_http = isinstance(unwrap_exception_group(error), NotStreamableError)
            self._retire_session(_describe_cause(error, spec.timeout_s, self._connect_s))
        return connected

    async def _refresh_listing_until_lost(self, session: ServerSession) -> None:
        while not self._lost and not self._closing:
            self._wake.clear()
            if self._changed:
                await asyncio.sleep(_SETTLE_S)
                self._changed = False
                self.listing = await session.list_offerings()
            else:
                self._settled.set()
                self._tried.set()
                await self._wake.wait()

    def _retire_session(self, why: str) -> None:
        """Retire the session."""
        self._lost = self._lost or why
        self._session = None
        self._reset_readiness()
        self._tried.clear()
        self._wake.set()

    def _schedule_listing_refresh(self) -> None:
        self._changed = True
        self._reset_readiness()
        self._wake.set()

    def record_loss(self, error: LostError, session: ServerSession) -> None:
        """Record that a request found the session lost."""
        if self._session is session:
            self._retire_session(str(error) or CONNECTION_ENDED)


def _describe_cause(error: BaseException, server_timeout_s: float, connect_s: float) -> str:
    """Describe the first cause in one line. `server_timeout_s`: the server's limit; `connect_s`: that of its start."""
    error = unwrap_exception_group(error)
    if isinstance(error, InterlockError | LostError | AnsweredError | NotStreamableError):
        return str(error)

    from mcp.shared.exceptions import MCPError
    from mcp.types import REQUEST_TIMEOUT

    if isinstance(error, TimeoutError) and connect_s != server_timeout_s:
        return f"it did not answer within {connect_s:g} s"
    if isinstance(error, TimeoutError) or (isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT):
        return f"it did not answer within {server_timeout_s * 1000:g} ms, its `timeout`"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_WHY = "The run didn't ask it that, so a replay has no answer of it"


@dataclass(frozen=True)
class _Recorded:
    status: ServerStatus = "not started"
    problem: str = ""
    version: str = ""
    instructions: str = ""
    listing: Listing = field(default_factory=Listing)


_RECORDED = TypeAdapter(_Recorded)


def dump_connection_record(connection: ServerConnection) -> dict[str, Any]:
    """Return a server's state as JSON-like data, recorded for replays."""
    view = connection.to_view()
    record = _Recorded(
        connection.status, connection.problem, view.version, view.instructions, connection.listing
    )
    return _RECORDED.dump_python(record, mode="json", exclude_defaults=True)


class RecordedConnection(ServerConnection):
    """A server of a finished run."""

    def __init__(self, spec: ServerSpec, record: str, workspace: Path) -> None:
        """`record`: JSON of what `dump_connection_record` returned; empty if the run never asked."""
        super().__init__(spec, _refuse_transport, workspace)
        self._was = _RECORDED.validate_json(record or "{}")
        self.listing, self.problem = self._was.listing, self._was.problem or spec.problem
        self._version, self._instructions = self._was.version, self._was.instructions

    @property
    def status(self) -> ServerStatus:
        return "disabled" if self.spec.disabled else self._was.status

    async def start_and_wait_briefly(self) -> None:
        """Nothing to wait for."""

    async def require_session(self) -> ServerSession:
        raise UnavailableError(_WHY)


def _refuse_transport(*_: object) -> NoReturn:
    raise AssertionError("a replay starts no server")
