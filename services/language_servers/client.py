"""client: JSON-RPC with a language server through pygls. What a server sends is limited, and never trusted.

Importing pygls takes half a second, so this module is imported when the first server starts.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cattrs import Converter
from lsprotocol import types
from lsprotocol.converters import get_converter
from pygls.client import JsonRPCClient
from pygls.io_ import run_async
from pygls.protocol.json_rpc import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
)

from interlock.services.language_servers.lost import ServerLostError
from interlock.services.process.stdio_program import StdioProgram
from interlock.state.text import dict_or_empty, list_or_empty

_MOST_BYTES = 32 << 20
"""Bytes of all that a server may send about one edit."""
_MOST_MESSAGES = 20_000
"""Messages that it may send about one edit: each takes some 50 µs of the run's time."""
_MOST_UNREAD = 32 << 20
"""Bytes that may wait for a server that doesn't read."""
_LONGEST_HEADER = 65_536

logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)  # it would write to the terminal


class LimitedReader:
    """What a server writes, as pygls reads it. Raises `ServerLostError` for what is too much."""

    def __init__(self, program: StdioProgram) -> None:
        self._program, self._buffer = program, bytearray()
        self._left_bytes, self._left_messages = _MOST_BYTES, _MOST_MESSAGES

    def allow_more(self) -> None:
        """Let the server send as much as at first: another edit is being checked."""
        self._left_bytes, self._left_messages = _MOST_BYTES, _MOST_MESSAGES

    async def readline(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _LONGEST_HEADER:
                raise ServerLostError("it doesn't speak the Language Server Protocol")
            if not await self._read_more():
                return b""
        return self._take(end + 1)

    async def readexactly(self, n: int) -> bytes:
        self._left_messages -= 1
        if n > _MOST_BYTES or self._left_messages < 0:
            raise ServerLostError("it sent too much")
        while len(self._buffer) < n:
            if not await self._read_more():
                return b""
        return self._take(n)

    async def _read_more(self) -> bool:
        chunk = await self._program.read_chunk()
        self._left_bytes -= len(chunk)
        if self._left_bytes < 0:
            raise ServerLostError("it sent too much")
        self._buffer += chunk
        return bool(chunk)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


class QueuedWriter:
    """What pygls writes goes to the server one message after the other, as fast as it reads."""

    def __init__(self, program: StdioProgram) -> None:
        self._program = program
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = 0

    def write(self, data: bytes) -> None:
        self._waiting += len(data)
        if self._waiting <= _MOST_UNREAD:  # else the server hangs, and is given up for not answering
            self._queue.put_nowait(data)

    def close(self) -> None: ...

    async def send_all(self) -> None:
        with suppress(OSError):  # it closed its stdin; its end is reported when its stdout ends
            while True:
                data = await self._queue.get()
                await self._program.write(data)
                self._waiting -= len(data)


class RpcClient:
    """Requests and notifications to one server, and our answers to its own."""

    def __init__(
        self, program: StdioProgram, settings: Mapping[str, Any], folders: list[types.WorkspaceFolder]
    ) -> None:
        self._program, self._settings = program, settings
        self._client = JsonRPCClient(converter_factory=_make_converter)
        self._reader, self._writer = LimitedReader(program), QueuedWriter(program)
        self._client.protocol.set_writer(self._writer)
        self._tasks: list[asyncio.Task[Any]] = []
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the server can't be used any more."""
        answers: dict[str, Callable[[Any], Any]] = {
            "workspace/configuration": self._answer_configuration,
            "workspace/workspaceFolders": lambda _: folders,
            "workspace/applyEdit": lambda _: {
                "applied": False,
                "failureReason": "only the person and the model edit",
            },
            "window/showDocument": lambda _: {"success": False},
            "window/workDoneProgress/create": lambda _: None,
            "window/showMessageRequest": lambda _: None,
            "client/unregisterCapability": lambda _: None,
            "workspace/diagnostic/refresh": lambda _: None,
        }
        for method, answer in answers.items():
            self.on(method, answer)

    def on(self, method: str, handle: Callable[[Any], Any]) -> None:
        """Call `handle` with the parameters, as JSON, of such a request or notification; it returns the answer."""

        def answer(params: Any) -> Any:  # a function of its own: pygls marks what it gets
            return handle(params)

        self._client.feature(method)(answer)

    def start(self) -> None:
        """Begin to read and write."""
        for work in (self._receive_all(), self._writer.send_all(), self._program.collect_stderr_tail()):
            self._tasks.append(asyncio.create_task(work))

    def allow_more(self) -> None:
        self._reader.allow_more()

    def notify(self, method: str, params: Any) -> None:
        self._client.protocol.notify(method, params)

    async def request(self, method: str, params: Any) -> Any:
        """Return the result, as JSON. Raises `ServerLostError`, and pygls's `JsonRpcException` for an error."""
        answer = self._client.protocol.send_request_async(method, params)
        await asyncio.wait({answer, self.lost}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            raise ServerLostError(self.lost.result())
        return answer.result()

    async def close(self) -> None:
        """End the server, at once: it has nothing to save."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._program.kill)

    async def _receive_all(self) -> None:
        protocol, stop = self._client.protocol, threading.Event()
        try:
            await run_async(stop_event=stop, reader=self._reader, protocol=protocol)
            why = await self._program.describe_end()
        except ServerLostError as error:
            why = str(error)
        if not self.lost.done():
            self.lost.set_result(why)

    def _answer_configuration(self, params: Any) -> list[Any]:
        items = map(dict_or_empty, list_or_empty(dict_or_empty(params).get("items")))
        return [self._find_setting(str(item.get("section") or "")) for item in items]

    def _find_setting(self, section: str) -> Any:
        found: Any = self._settings
        for part in section.split(".") if section else ():
            found = dict_or_empty(found).get(part)
        return found


def _make_converter() -> Converter:
    """Return lsprotocol's converter for what we send. What comes in stays JSON: servers send all kinds of it."""
    converter = get_converter()

    def keep_json(keys: tuple[str, ...]) -> Callable[[Any, Any], Any]:
        return lambda data, kind: kind(**{key: data.get(key) for key in keys})

    for kind, keys in (
        (JsonRPCRequestMessage, ("id", "method", "jsonrpc", "params")),
        (JsonRPCResponseMessage, ("id", "jsonrpc", "result")),
        (JsonRPCNotification, ("method", "jsonrpc", "params")),
    ):
        converter.register_structure_hook(kind, keep_json(keys))
    return converter
