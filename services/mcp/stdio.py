"""stdio: a server as a process under our supervisor, exchanging JSON-RPC messages as lines on stdin and stdout."""

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.services.mcp.exchanges import wait_at_most
from interlock.services.mcp.spec import MOST, TOO_LONG
from interlock.services.process.supervisor_client import GRACE_S, SupervisedCommand, wait_until_readable
from interlock.state.errors import RunError
from interlock.state.text import clean_json, dict_or_empty, make_visible, to_one_line

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

_CHUNK = 65_536
_LEAVE_S = 1.0
"""Seconds a server has to exit after its stdin is closed (the protocol's way to end it)."""
_SHOWN = 300
"""Characters shown of an answer that can't be read."""
_ERRORS = 4_000
"""Bytes kept from the end of its stderr, to explain why it exited."""


class StdioServer:
    """One server's process. `lost` is called once, when it has ended or become unintelligible."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        most: tuple[int, int],
        lost: Callable[[str], None],
    ) -> None:
        """`most`: processes and bytes of memory that it and its children may use."""
        self._argv, self._cwd, self._env, self._most, self._lost = argv, cwd, env, most, lost
        self._stderr_kept: deque[bytes] = deque()

    @asynccontextmanager
    async def open_streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Open the SDK's transport: one stream of messages from the server, one to it. Raises `RunError`."""
        import anyio

        child, ours = self._start_process()
        source, sink, errors = ours
        read_in, read = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        write, write_out = anyio.create_memory_object_stream["SessionMessage"](0)
        try:
            async with read_in, read, write, write_out, anyio.create_task_group() as group:
                group.start_soon(self._collect_stderr_tail, errors)
                group.start_soon(self._receive_messages, source, read_in, child)
                group.start_soon(self._send_messages, sink, write_out)
                yield read, write
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                for descriptor in (sink, source):
                    os.close(descriptor)
                await _end_process(child)
                os.close(errors)

    def _start_process(self) -> tuple[SupervisedCommand, tuple[int, int, int]]:
        """Start the process; returns it and our ends of its stdout, stdin and stderr."""
        (stdin, sink), (source, stdout), (errors, stderr) = os.pipe(), os.pipe(), os.pipe()
        ours, theirs = (source, sink, errors), (stdin, stdout, stderr)
        try:
            child = SupervisedCommand(
                self._argv,
                cwd=self._cwd,
                env=self._env,
                output=stdout,
                errors=stderr,
                mode="once",
                stdin=stdin,
                most=self._most,
            )
        except (OSError, ValueError) as error:
            for descriptor in ours:
                os.close(descriptor)
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise RunError(f"{self._argv[0]!r} can't be started in {str(self._cwd)!r}: {why}") from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        return child, ours

    async def _receive_messages(self, stdout: int, message_stream: Any, child: SupervisedCommand) -> None:
        """Parse lines into messages one at a time, so that a flooding server blocks on its own pipe."""
        line = bytearray()
        async with message_stream:
            while chunk := await _read_chunk(stdout):
                *whole, rest = chunk.split(b"\n")
                for part in whole:
                    line += part
                    if line.strip() and not await _parse_and_forward_line(bytes(line), message_stream):
                        return
                    line.clear()
                line += rest
                if len(line) > MOST:
                    self._lost(TOO_LONG)
                    return
            self._lost(await self._describe_process_end(child))

    async def _send_messages(self, stdin: int, messages: Any) -> None:
        async for message in messages:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            data = memoryview(f"{text}\n".encode())
            while data:
                try:
                    data = data[os.write(stdin, data) :]
                except BlockingIOError:
                    await _wait_until_writable(stdin)
                except OSError:  # it closed its stdin; its exit is reported when stdout ends
                    return

    async def _collect_stderr_tail(self, stderr: int) -> None:
        kept = 0
        while chunk := await _read_chunk(stderr):
            self._stderr_kept.append(chunk)
            kept += len(chunk)
            while len(self._stderr_kept) > 1 and kept - len(self._stderr_kept[0]) >= _ERRORS:
                kept -= len(self._stderr_kept.popleft())

    async def _describe_process_end(self, child: SupervisedCommand) -> str:
        """Describe how it ended, with its last line of stderr."""
        await wait_at_most(0.5, child.wait_until_finished())
        if child.error:
            return f"it can't be started: {child.error}"
        if child.limit:
            how = f"it was ended: it used {child.limit}"
        elif child.signal is not None:
            how = f"it was ended by signal {child.signal}"
        else:
            how = (
                "it closed its output" if child.exit_code is None else f"it ended with code {child.exit_code}"
            )
        text = b"".join(self._stderr_kept)[-_ERRORS:].decode(errors="replace").strip()
        return f"{how}: {text.splitlines()[-1]}" if text else how


async def _parse_and_forward_line(line: bytes, message_stream: Any) -> bool:
    """Forward a line; returns whether anyone is still listening."""
    from anyio import BrokenResourceError, ClosedResourceError

    try:
        await message_stream.send(_parse_message(line))
    except (BrokenResourceError, ClosedResourceError):
        return False
    return True


def _parse_message(line: bytes) -> "SessionMessage | Exception":
    """Parse a message; an error is returned rather than raised, as it must not end the session."""
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        mended = _repair_or_build_error_answer(line)
        return SessionMessage(jsonrpc_message_adapter.validate_python(mended)) if mended else error


def _repair_or_build_error_answer(line: bytes) -> dict[str, Any] | None:
    """The message with U+FFFD in place of what isn't Unicode, or an error answer in place of an answer that can't be
    read, so that its request ends; None: the line is neither.
    """
    from mcp.types import PARSE_ERROR, jsonrpc_message_adapter

    try:
        data = dict_or_empty(clean_json(json.loads(line.decode(errors="replace"))))
    except (ValueError, RecursionError):
        return None
    try:
        jsonrpc_message_adapter.validate_python(data, by_name=False)
        return data
    except ValueError:
        if "method" in data or not isinstance(id_ := data.get("id"), int | str):
            return None
        what = f"its answer can't be read: {to_one_line(make_visible(line.decode(errors='replace')), _SHOWN)}"
        return {"jsonrpc": "2.0", "id": id_, "error": {"code": PARSE_ERROR, "message": what}}


async def _read_chunk(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            await wait_until_readable(descriptor)


async def _wait_until_writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(descriptor, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


async def _end_process(child: SupervisedCommand) -> None:
    """Wait for the process to exit after its stdin was closed; then send SIGTERM, then SIGKILL."""
    try:
        async with asyncio.timeout(_LEAVE_S):
            await child.wait_until_finished()
    except TimeoutError:
        child.terminate()
        await wait_at_most(GRACE_S + 1, child.wait_until_finished())
    finally:
        child.kill_and_close()
