"""wire: JSON-RPC 2.0, one frame a line, on a pair of streams that nothing else of this process writes to."""

import asyncio
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from interlock.state.text import dict_or_empty

Frame = dict[str, Any]
PARSE, INVALID, NO_METHOD, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
NO_LOGIN, NOT_FOUND = -32000, -32002
"""The protocol's own: sign in first; no such session or file."""
LONGEST = 64 * 1024 * 1024
"""Maximum bytes of a frame; a longer one is an error, and the next line is read as usual."""
_HELD = 8_000_000
"""Bytes waiting for a slow client from which on pieces that arrive whole later are dropped."""


class RpcError(Exception):
    """What a request is answered with, or was answered with by the client."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data

    @property
    def fields(self) -> Frame:
        more = {} if self.data is None else {"data": self.data}
        return {"code": self.code, "message": str(self), **more}


class JsonRpcConnection:
    """Reads and writes on threads of their own: a slow client delays neither the event loop nor a run."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._out: deque[bytes] = deque()
        self._unwritten_bytes = 0
        self._changed = threading.Condition()
        self._pending_requests: dict[int, asyncio.Future[Any]] = {}
        self._last_request_id = 0

    @classmethod
    def take_over_stdio(cls) -> "JsonRpcConnection":
        """Take this process's stdin and stdout. Other readers find stdin empty; what else prints lands on stderr."""
        read, write = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)
        sys.stdout = sys.stderr
        return cls(read, write)

    def start(self, handle_frame: Callable[[Frame], None], on_client_gone: Callable[[], None]) -> None:
        """Start reading and writing.

        `handle_frame`: called in this event loop with each request and notification; `on_client_gone`: at the end.
        """
        self._loop = asyncio.get_running_loop()
        self._handle_frame, self._on_client_gone = handle_frame, on_client_gone
        for work in (self._read_and_dispatch_frames, self._write_queued_frames):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    def queue_frame(self, frame: Frame, *, droppable: bool = False) -> None:
        """Queue a frame. Never blocks; callable from any thread."""
        line = json.dumps({"jsonrpc": "2.0", **frame}, ensure_ascii=False).encode(errors="replace") + b"\n"
        with self._changed:
            if droppable and self._unwritten_bytes > _HELD:
                return
            self._out.append(line)
            self._unwritten_bytes += len(line)
            self._changed.notify()

    def send_notification(self, method: str, params: Mapping[str, Any], *, droppable: bool = False) -> None:
        self.queue_frame({"method": method, "params": params}, droppable=droppable)

    async def send_request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and wait for the client's answer. Cancelled, it withdraws the request. Raises `RpcError`."""
        self._last_request_id += 1
        number, answer = self._last_request_id, self._loop.create_future()
        self._pending_requests[number] = answer
        self.queue_frame({"id": number, "method": method, "params": params})
        try:
            return await answer
        except asyncio.CancelledError:
            self.send_notification("$/cancel_request", {"requestId": number})
            raise
        finally:
            del self._pending_requests[number]

    def flush(self, timeout_s: float) -> None:
        """Wait until everything is written, or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unwritten_bytes, timeout_s)

    def _read_and_dispatch_frames(self) -> None:
        with os.fdopen(self._read, "rb", buffering=1 << 16) as stream:
            while line := stream.readline(LONGEST):
                if line.endswith(b"\n") or len(line) < LONGEST:
                    self._parse_and_dispatch_frame(line)
                    continue
                while line and not line.endswith(b"\n"):
                    line = stream.readline(LONGEST)
                self._send_error(PARSE, f"The frame is longer than {LONGEST} bytes.")
        self._loop.call_soon_threadsafe(self._on_client_gone)

    def _parse_and_dispatch_frame(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            frame = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            return self._send_error(PARSE, f"The frame isn't JSON in UTF-8: {error}.")
        if problem := _frame_problem(frame):
            return self._send_error(INVALID, problem, _request_id_of_frame(frame))
        self._loop.call_soon_threadsafe(self._dispatch_frame, frame)
        return None

    def _send_error(self, code: int, message: str, request_id: str | int | None = None) -> None:
        self.queue_frame({"id": request_id, "error": {"code": code, "message": message}})

    def _dispatch_frame(self, frame: Frame) -> None:
        if "method" in frame:
            self._handle_frame(frame)
            return
        answer = self._pending_requests.get(frame["id"])
        if answer is None or answer.done():  # withdrawn meanwhile, or never asked
            return
        if "error" in frame:
            fields = dict_or_empty(error := frame["error"])
            code = fields.get("code")
            text = str(fields.get("message") or error)
            answer.set_exception(RpcError(code if isinstance(code, int) else INTERNAL, text))
        else:
            answer.set_result(frame.get("result"))

    def _write_queued_frames(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._out)
                lines = b"".join(self._out)
                self._out.clear()
            try:
                view = memoryview(lines)
                while view:
                    view = view[os.write(self._write, view) :]
            except OSError:
                self._loop.call_soon_threadsafe(self._on_client_gone)
                return
            with self._changed:
                self._unwritten_bytes -= len(lines)
                self._changed.notify_all()


def _request_id_of_frame(frame: object) -> str | int | None:
    name = dict_or_empty(frame).get("id")
    return name if isinstance(name, str | int) else None


def _frame_problem(frame: object) -> str:
    """Return what is wrong with a decoded frame; empty: nothing."""
    if not isinstance(frame, dict):
        return "A frame is one JSON object; batches aren't supported."
    fields = cast(Frame, frame)
    if fields.get("jsonrpc") != "2.0":
        return f"'jsonrpc' is {fields.get('jsonrpc')!r}, expected '2.0'."
    if "method" in fields:
        if not isinstance(fields["method"], str):
            return "'method' isn't a text."
        ok = "id" not in fields or (
            isinstance(fields["id"], str | int) and not isinstance(fields["id"], bool)
        )
        return "" if ok else "'id' must be a string or an integer."
    if not isinstance(fields.get("id"), str | int):
        return "The frame needs a method or the id of a request."
    return (
        "" if ("result" in fields) != ("error" in fields) else "A response needs either a result or an error."
    )
