"""stdio: a server as a process under our supervisor, exchanging JSON-RPC messages as lines on stdin and stdout."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.services.mcp.spec import MOST, TOO_LONG
from interlock.services.process.stdio_program import StdioProgram, start_stdio_program
from interlock.state.text import clean_json, dict_or_empty, make_visible, to_one_line

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

_SHOWN = 300
"""Characters shown of an answer that can't be read."""


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

    @asynccontextmanager
    async def open_streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Open the SDK's transport: one stream of messages from the server, one to it. Raises `RunError`."""
        import anyio

        program = start_stdio_program(self._argv, cwd=self._cwd, env=self._env, most=self._most)
        read_in, read = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        write, write_out = anyio.create_memory_object_stream["SessionMessage"](0)
        try:
            async with read_in, read, write, write_out, anyio.create_task_group() as group:
                group.start_soon(program.collect_stderr_tail)
                group.start_soon(self._receive_messages, program, read_in)
                group.start_soon(_send_messages, program, write_out)
                yield read, write
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await program.close()

    async def _receive_messages(self, program: StdioProgram, message_stream: Any) -> None:
        """Parse lines into messages one at a time, so that a flooding server blocks on its own pipe."""
        line = bytearray()
        async with message_stream:
            while chunk := await program.read_chunk():
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
            self._lost(await program.describe_end())


async def _send_messages(program: StdioProgram, messages: Any) -> None:
    async for message in messages:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        with suppress(OSError):  # it closed its stdin; its exit is reported when stdout ends
            await program.write(f"{text}\n".encode())


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
