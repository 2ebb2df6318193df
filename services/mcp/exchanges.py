"""exchanges: what became of each request to a server: was it sent, did a message answer it, and if not, why.

The SDK reports a timeout, a lost connection or an HTTP status as if the server had answered with an error: same class,
same codes. What passes over the streams tells the two apart.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from interlock.services.packages import outdated_package_problem
from interlock.state.errors import SetupError
from interlock.state.text import make_visible

_SETTLE_S = 5.0


def import_mcp_sdk() -> None:
    """Import the SDK's client. Raises `SetupError` for an older SDK, which other packages may have asked for."""
    if why := outdated_package_problem("mcp"):
        raise SetupError(why)
    import_module("mcp.client.client")


async def wait_at_most(seconds: float, awaited: Awaitable[object]) -> None:
    """Wait for something, but for no more than so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await awaited


class LostError(Exception):
    """The request was sent but no answer will come: whether it had an effect is unknown.

    An empty text: the connection ended, for a reason that the connection knows.
    """


class NotRunError(LostError):
    """The server is known not to have dispatched the request: it may be repeated in a new session."""


class AnsweredError(Exception):
    """The server answered with an error. `error`: the protocol's error object."""

    def __init__(self, text: str, error: Any = None) -> None:
        super().__init__(text)
        self.error = error


@dataclass
class Exchange:
    """One request at a time, and what is known of it."""

    id: Any = None
    sent: bool = False
    earlier: bool = False
    """A request before it was sent: with that one, the call may have taken effect."""
    answered: bool = False
    """A message from the server answered it."""
    streamed: bool = False
    """Its answer comes as server-sent events."""
    status: int = 0
    """HTTP status of the answer."""
    problem: LostError | AnsweredError | None = None
    """What the transport found in place of an answer."""
    screen: Callable[[Any], None] | None = None
    """Looks through the server's result before the SDK does."""
    on_its_way: asyncio.Event | None = None
    """Set once the server has taken or refused a request that is answered elsewhere (SSE)."""

    def begin_request(self, request_id: Any) -> None:
        """Forget the request before: the SDK may make several for one call."""
        self.earlier = self.earlier or self.sent
        self.id, self.sent, self.answered, self.streamed = request_id, True, False, False
        self.status, self.problem, self.on_its_way = 0, None, None

    async def wait_until_request_accepted(self) -> None:
        """Wait until it is known whether the server took the request: its stream may end before that."""
        if self.on_its_way is not None and not self.answered:
            await wait_at_most(_SETTLE_S, self.on_its_way.wait())

    def to_lost_or_answered_error(self, error: Any, timeout_s: float) -> LostError | AnsweredError:
        """Tell what the SDK's error stands for. `timeout_s`: the time that the request had."""
        from mcp.types import REQUEST_TIMEOUT

        if self.answered:
            return AnsweredError(make_visible(f"{error.error.message} ({error.code})"), error.error)
        found = self.problem if self.sent or self.problem else NotRunError("the connection had ended")
        if isinstance(found, NotRunError) and self.earlier:
            return LostError(str(found))
        if found is not None:
            return found
        return LostError(f"it did not answer within {timeout_s:g} s" if error.code == REQUEST_TIMEOUT else "")


_CURRENT: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


@contextmanager
def track_exchange() -> Generator[Exchange]:
    """Watch the requests that this block makes, one after the other."""
    token = _CURRENT.set(one := Exchange())
    try:
        yield one
    finally:
        _CURRENT.reset(token)


def current_exchange() -> Exchange | None:
    """Return the exchange that this code serves. The SDK's transports send each message in its sender's context."""
    return _CURRENT.get()


@asynccontextmanager
async def track_transport(transport: Any) -> AsyncGenerator[tuple[Any, Any]]:
    """Open a transport whose streams note what they carry in the exchanges."""
    open_ = dict[str, Exchange]()
    async with transport as (read, write):
        yield _TrackedReadStream(read, open_), _TrackedWriteStream(write, open_)


class _TrackedStream:
    def __init__(self, inner: Any, open_: dict[str, Exchange]) -> None:
        self._inner, self._open = inner, open_

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._inner.__aexit__(*raised)


class _TrackedWriteStream(_TrackedStream):
    async def send(self, item: Any) -> None:
        from anyio import BrokenResourceError, ClosedResourceError
        from mcp.types import JSONRPCRequest

        one, message = _CURRENT.get(), item.message
        if one is None or not isinstance(message, JSONRPCRequest):
            token = _CURRENT.set(None)  # a notification's own fate says nothing of the request
            try:
                return await self._inner.send(item)
            finally:
                _CURRENT.reset(token)
        one.begin_request(message.id)
        self._open[str(message.id)] = one
        try:
            await self._inner.send(item)
        except (BrokenResourceError, ClosedResourceError):
            one.sent = False
            raise


class _TrackedReadStream(_TrackedStream):
    def __aiter__(self) -> "_TrackedReadStream":
        return self

    async def __anext__(self) -> Any:
        return self._record_answer_in_exchange(await self._inner.__anext__())

    async def receive(self) -> Any:
        return self._record_answer_in_exchange(await self._inner.receive())

    def _record_answer_in_exchange(self, item: Any) -> Any:
        from mcp.types import PARSE_ERROR, JSONRPCError, JSONRPCResponse

        message = getattr(item, "message", None)
        if not isinstance(message, JSONRPCError | JSONRPCResponse):
            return item
        one = self._open.pop(str(message.id), None)
        if one is None or one.id != message.id or one.problem is not None:
            return item
        if one.streamed and isinstance(message, JSONRPCError) and message.error.code == PARSE_ERROR:
            one.problem = LostError("its answer can't be read")  # the SDK says this of an event
        else:
            one.answered = True
            if one.screen and isinstance(message, JSONRPCResponse):
                one.screen(message.result)
        return item
