"""stdio_program: a program that runs on, and exchanges messages with us on its stdin and stdout."""

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from interlock.services.process.supervisor_client import GRACE_S, SupervisedCommand, wait_until_readable
from interlock.state.errors import RunError

_CHUNK = 65_536
_LEAVE_S = 1.0
"""Seconds a program has to exit after its stdin is closed (MCP's way to end a server)."""
_ERRORS = 4_000
"""Bytes kept from the end of its stderr, to explain why it exited."""


class ProgramPipes:
    """Pipes for one program: our ends, and those that it inherits."""

    def __init__(self) -> None:
        (self.stdin, self.sink), (self.source, self.stdout), (self.errors, self.stderr) = (
            os.pipe(),
            os.pipe(),
            os.pipe(),
        )
        for descriptor in (self.sink, self.source, self.errors):
            os.set_blocking(descriptor, False)

    def close_child_ends(self) -> None:
        """Close what the program inherits: it has its own by now, or never will."""
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)

    def close_our_ends(self) -> None:
        for descriptor in (self.sink, self.source, self.errors):
            os.close(descriptor)


class StdioProgram:
    """A running program. `close` or `kill` must be called once; each ends the program with all of its descendants."""

    def __init__(self, child: SupervisedCommand, pipes: ProgramPipes, held: ExitStack | None = None) -> None:
        """`held`: closed with the program; a sandbox, for example."""
        self._child, self._pipes, self._held = child, pipes, held or ExitStack()
        self._stderr_kept: deque[bytes] = deque()

    async def read_chunk(self) -> bytes:
        """Return some bytes of its stdout; none: it has closed it."""
        return await _read_chunk(self._pipes.source)

    async def write(self, data: bytes) -> None:
        """Write to its stdin, as fast as it reads. Raises `OSError` if it has closed its stdin."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._pipes.sink, rest) :]
            except BlockingIOError:
                await _wait_until_writable(self._pipes.sink)

    async def collect_stderr_tail(self) -> None:
        """Read its stderr to the end, and keep what `describe_end` needs."""
        kept = 0
        while chunk := await _read_chunk(self._pipes.errors):
            self._stderr_kept.append(chunk)
            kept += len(chunk)
            while len(self._stderr_kept) > 1 and kept - len(self._stderr_kept[0]) >= _ERRORS:
                kept -= len(self._stderr_kept.popleft())

    async def describe_end(self) -> str:
        """Describe how it ended, with its last line of stderr."""
        await _wait_at_most(0.5, self._child)
        if self._child.error:
            return f"it can't be started: {self._child.error}"
        if self._child.limit:
            how = f"it was ended: it used {self._child.limit}"
        elif self._child.signal is not None:
            how = f"it was ended by signal {self._child.signal}"
        else:
            code = self._child.exit_code
            how = "it closed its output" if code is None else f"it ended with code {code}"
        with suppress(BlockingIOError):  # what `collect_stderr_tail` hasn't had its turn to read
            while chunk := os.read(self._pipes.errors, _CHUNK):
                self._stderr_kept.append(chunk)
        text = b"".join(self._stderr_kept)[-_ERRORS:].decode(errors="replace").strip()
        return f"{how}: {text.splitlines()[-1]}" if text else how

    async def close(self) -> None:
        """Close its stdin and wait for its exit; then send SIGTERM, then SIGKILL."""
        os.close(self._pipes.sink)
        os.close(self._pipes.source)
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._child.wait_until_finished()
        except TimeoutError:
            self._child.terminate()
            await _wait_at_most(GRACE_S + 1, self._child)
        finally:
            self._child.kill_and_close()
            os.close(self._pipes.errors)
            self._held.close()

    def kill(self) -> None:
        """End it at once, which takes milliseconds. Nothing may be reading or writing."""
        self._child.kill_and_close()
        self._pipes.close_our_ends()
        self._held.close()


def start_stdio_program(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], most: tuple[int, int]
) -> StdioProgram:
    """Start a program outside of any sandbox. Raises `RunError`.

    `most`: processes and bytes of memory that it and its children may use.
    """
    pipes = ProgramPipes()
    try:
        child = SupervisedCommand(
            argv,
            cwd=cwd,
            env=env,
            output=pipes.stdout,
            errors=pipes.stderr,
            mode="once",
            stdin=pipes.stdin,
            most=most,
        )
    except (OSError, ValueError) as error:
        pipes.close_our_ends()
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise RunError(f"{argv[0]!r} can't be started in {str(cwd)!r}: {why}") from error
    finally:
        pipes.close_child_ends()
    return StdioProgram(child, pipes)


async def _wait_at_most(seconds: float, child: SupervisedCommand) -> None:
    try:
        async with asyncio.timeout(seconds):
            await child.wait_until_finished()
    except TimeoutError:
        return


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
