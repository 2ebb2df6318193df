"""processes: runs commands under a supervisor, so that none outlives the run, and captures their output in
bounded memory.

Rule: `docs/internals.md#supervised-processes`.
"""

import asyncio
import codecs
import hashlib
import os
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import Any, Literal, TypeVar

from interlock.services.process.stdio_program import ProgramPipes, StdioProgram
from interlock.services.process.supervisor_client import (
    GIVEN,
    GRACE_S,
    Mode,
    SupervisedCommand,
    freeze_commands,
    wait_until_readable,
)
from interlock.services.sandbox.mounts import ATTEMPTS, WorkspaceChangedError
from interlock.services.sandbox.sandbox import CommandSandbox, Sandbox
from interlock.services.secrets.redaction import SHAPES, RedactingStream, Redactor, redact_or_remove_file
from interlock.state.errors import InterlockError, RunError
from interlock.state.text import replace_surrogates
from interlock.state.tooling import Outputs, ProcessEnd
from interlock.tools.screen_text import ScreenText


@dataclass(frozen=True)
class _BackgroundCommand:
    """A command that runs on in the background."""

    child: SupervisedCommand
    label: str
    output_file: Path


class SupervisedProcesses:
    """Implements `Processes`. `env`: see `tool_environment`; `most`: see `SupervisedCommand`."""

    def __init__(
        self,
        *,
        outputs: Outputs,
        env: Mapping[str, str],
        redact: Redactor = SHAPES,
        most: tuple[int, int] = (0, 0),
        sandbox: Sandbox | None = None,
    ) -> None:
        self._most = most
        self._outputs = outputs
        self._env = dict(env)
        self._redact = redact
        self._background: list[_BackgroundCommand] = []
        self._sandbox = sandbox
        self._held = ExitStack()
        """Resources of background commands' sandboxes."""
        self._live: set[SupervisedCommand] = set()
        """Commands in sandboxes."""
        self._making = asyncio.Lock()

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        inactivity_s: float = 0,
        limit_chars: int = 40_000,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        on_output: Callable[[str], None] | None = None,
        on_errors: Callable[[bytes], None] | None = None,
        trusted_helper: bool = False,
    ) -> ProcessEnd:
        """See `Processes.run`; a failure possibly caused by the sandbox has a `hint`."""

        async def attempt(stack: ExitStack, last: bool) -> ProcessEnd:
            # Output of our programs and hooks is parsed and not redacted: a mark could become an argument.
            output = ProcessOutput(
                limit_chars,
                self._outputs,
                self._redact if on_output else None,
                on_screen=on_output is not None,
            )
            watch = CommandWatch(output, on_output)
            async with self._freeze_other_commands(trusted_helper):
                inside = None if trusted_helper else await self._enter_sandbox(stack, cwd)
                with ExitStack() as theirs:  # the command's ends of the pipes
                    write = watch.open_pipe(stack, theirs, watch.receive_output)
                    stderr = watch.open_pipe(stack, theirs, on_errors) if on_errors else None
                    child = self._start_supervised(
                        "once", argv, inside, env, cwd=cwd, output=write, errors=stderr, stdin=stdin
                    )
                stack.callback(child.kill_and_close)
                stack.callback(output.discard_spool)
                await self._release_sandboxed_command(stack, child, inside, last)
            ended = await watch.wait_for_end(child, timeout_s, inactivity_s or float("inf"))
            return (
                replace(ended, hint=await asyncio.to_thread(inside.quarantine_and_hint, ended))
                if inside
                else ended
            )

        try:
            return await _retry_if_workspace_changed(attempt)
        except (OSError, ValueError) as error:
            return ProcessEnd("not_started", None, None, _describe_start_error(error), 0, None, 0.0)

    async def start_in_background(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        label: str,
        env: Mapping[str, str] | None = None,
        trusted_helper: bool = False,
    ) -> int:
        """Start a command in the background and return its pid. Output goes to a file in `outputs/`.

        Raises `RunError` if it can't be started.
        """

        async def attempt(stack: ExitStack, last: bool) -> int:
            failed = stack.enter_context(ExitStack())
            async with self._freeze_other_commands(trusted_helper):
                inside = (
                    None if trusted_helper else await self._enter_sandbox(stack, cwd, die_with_parent=False)
                )
                path = self._outputs.create_spool_file()
                failed.callback(path.unlink, missing_ok=True)
                with path.open("wb") as file:
                    child = self._start_supervised(
                        "background", argv, inside, env, cwd=cwd, output=file.fileno()
                    )
                failed.callback(child.kill_and_close)
                await self._release_sandboxed_command(stack, child, inside, last)
            await child.wait_until_started()
            if child.pid is None:
                raise ValueError(child.error or "its supervisor ended")
            failed.pop_all()
            self._background.append(_BackgroundCommand(child, label, path))
            self._held.push(stack.pop_all())
            return child.pid

        try:
            return await _retry_if_workspace_changed(attempt)
        except (OSError, ValueError) as error:
            raise RunError(
                f"Command {label!r} could not be started: {_describe_start_error(error)}."
            ) from error

    async def start_with_pipes(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> StdioProgram:
        """Start a program that reads and writes messages, in the sandbox if there is one. Raises `RunError`."""

        async def attempt(stack: ExitStack, last: bool) -> StdioProgram:
            pipes = ProgramPipes()
            with ExitStack() as failed, ExitStack() as theirs:
                failed.callback(pipes.close_our_ends)
                theirs.callback(pipes.close_child_ends)
                async with self._freeze_other_commands(False):
                    inside = await self._enter_sandbox(stack, cwd)
                    child = self._start_supervised(
                        "once",
                        argv,
                        inside,
                        env,
                        cwd=cwd,
                        output=pipes.stdout,
                        errors=pipes.stderr,
                        stdin=pipes.stdin,
                    )
                    failed.callback(child.kill_and_close)
                    theirs.close()
                    await self._release_sandboxed_command(stack, child, inside, last)
                failed.pop_all()
            return StdioProgram(child, pipes, stack.pop_all())

        try:
            return await _retry_if_workspace_changed(attempt)
        except (OSError, ValueError) as error:
            raise RunError(f"{argv[0]!r} can't be started: {_describe_start_error(error)}") from error

    def list_background_processes(self) -> Sequence[Mapping[str, Any]]:
        """Background processes of this drive: {pid, label, running, exit_code, output_file}.

        `exit_code` is negative for a signal. A command's children may still run when it is no longer `running` itself.
        """
        for one in self._background:
            one.child.apply_pending_messages()
        return [
            {
                "pid": one.child.pid,
                "label": one.label,
                "running": not one.child.has_ended,
                "exit_code": one.child.exit_code if one.child.signal is None else -one.child.signal,
                "output_file": str(one.output_file),
            }
            for one in self._background
        ]

    def close(self) -> None:
        """End all background processes; otherwise they end with this process."""
        for one in self._background:
            one.child.kill()
        for one in self._background:
            one.child.kill_and_close()
            redact_or_remove_file(one.output_file, self._redact)
            self._outputs.mark_spool_finished(one.output_file)
        self._held.close()

    def _start_supervised(
        self,
        mode: Mode,
        argv: Sequence[str],
        sandbox: CommandSandbox | None,
        env: Mapping[str, str] | None,
        **options: Any,
    ) -> SupervisedCommand:
        """Start a command, in the sandbox if there is one. `options`: as `SupervisedCommand` takes it."""
        make = partial(SupervisedCommand, env={**self._env, **(env or {})}, most=self._most, **options)
        if sandbox is None:
            return make(argv, mode=mode)
        made = make(
            sandbox.wrap_command(argv, GIVEN, GIVEN + 1),
            mode="once-sandboxed" if mode == "once" else "background-sandboxed",
            given=(sandbox.gate.info, sandbox.gate.wait),
        )
        sandbox.gate.close_child_ends()
        return made

    @asynccontextmanager
    async def _freeze_other_commands(self, is_trusted_helper: bool) -> AsyncGenerator[None]:
        """While a sandbox is made no other command of the run moves anything, and no other sandbox is made."""
        if is_trusted_helper or self._sandbox is None:
            yield
            return
        async with self._making:
            for child in self._live:
                child.apply_pending_messages()
            sessions = [c.session for c in self._live if c.session is not None and not c.over]
            with ExitStack() as stack:
                await _run_in_thread_despite_cancellation(
                    partial(stack.enter_context, freeze_commands(sessions))
                )
                yield

    async def _release_sandboxed_command(
        self,
        stack: ExitStack,
        child: SupervisedCommand,
        sandbox: CommandSandbox | None,
        is_last_attempt: bool,
    ) -> None:
        """Let the command start in its sandbox. Raises `WorkspaceChangedError`, `ValueError`."""
        if sandbox is None:
            return
        self._live.add(child)
        stack.callback(self._live.discard, child)
        try:
            if (
                not await _run_in_thread_despite_cancellation(sandbox.gate.verify_and_start_command)
                and not is_last_attempt
            ):
                raise WorkspaceChangedError(
                    "Bubblewrap ended."
                )  # its output says why; what was moved may be back
        except WorkspaceChangedError:
            raise
        except (OSError, InterlockError) as error:
            raise ValueError(_describe_sandbox_failure(error)) from error

    async def _enter_sandbox(
        self, stack: ExitStack, cwd: Path, *, die_with_parent: bool = True
    ) -> CommandSandbox | None:
        """Return what runs a command in the sandbox, if any, while `stack` is open. Raises `ValueError`."""
        if self._sandbox is None:
            return None
        try:
            return await _run_in_thread_despite_cancellation(
                partial(
                    stack.enter_context, self._sandbox.enter_for_command(cwd, die_with_parent=die_with_parent)
                )
            )
        except (OSError, InterlockError) as error:
            raise ValueError(_describe_sandbox_failure(error)) from error


T = TypeVar("T")


async def _retry_if_workspace_changed(attempt: Callable[[ExitStack, bool], Awaitable[T]]) -> T:
    """Start a command, once more if the workspace changed while its sandbox was made. Raises `ValueError`."""
    for left in reversed(range(ATTEMPTS)):
        with ExitStack() as stack:
            try:
                return await attempt(stack, not left)
            except WorkspaceChangedError as error:
                if not left:
                    raise ValueError(_describe_sandbox_failure(error)) from error
    raise AssertionError("the last attempt returns or raises")


async def _run_in_thread_despite_cancellation(work: Callable[[], T]) -> T:
    """Run in a thread, to its end also if the caller is cancelled: what it took would be given back by nobody."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _describe_sandbox_failure(error: Exception) -> str:
    return f"its sandbox could not be made ({error})".replace(".)", ")")


def _describe_start_error(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {str(error.filename)!r}" if error.filename else error.strerror
    return str(error)


_HEAD_SHARE = 0.2
"""Share of the limit; the rest is for the tail, where commands report their result.

`docs/internals.md#long-texts`.
"""
SPOOL_BYTES = 2**30
"""Keeps an endless command from filling the disk: later bytes are dropped, and the omission is noted."""


_MOST_RAW = 1 << 20
"""Bytes of output kept in memory, besides those of the characters shown."""


class ProcessOutput:
    """Decodes output incrementally. Nothing is written to disk while it fits in `limit` characters."""

    def __init__(
        self, limit: int, outputs: Outputs, redact: Redactor | None = None, *, on_screen: bool = False
    ) -> None:
        """`on_screen`: the text is what a terminal would show of the output."""
        self._limit, self._head_limit = limit, int(limit * _HEAD_SHARE)
        self._tail_limit = limit - self._head_limit
        self._outputs = outputs
        self._redacting = RedactingStream(redact.for_latin1_bytes()) if redact else None
        self._screen = ScreenText() if on_screen else None
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape" if on_screen else "replace")
        self._raw = bytearray()
        self._head = ""
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._total = 0
        self._spool: BufferedWriter | None = None
        self._spooled = 0
        self._digest = hashlib.sha256()
        self.note = ""
        """Why the file is incomplete or missing."""

    def feed_bytes(self, chunk: bytes) -> str:
        """Add bytes and return the text they complete."""
        if self._redacting:  # before anything is cut, stored or decoded
            chunk = self._redacting.feed(chunk.decode("latin-1")).encode("latin-1")
        return self._decode_and_buffer_chunk(chunk)

    def _decode_and_buffer_chunk(self, chunk: bytes) -> str:
        text = self._decoder.decode(chunk)
        self._buffer_text(self._screen.feed(text) if self._screen else text)
        self._buffer_bytes(chunk)
        return replace_surrogates(text)

    def finish_decoding(self) -> str:
        """Finish; returns any remaining text, with a replacement for a truncated character."""
        rest = self._redacting.flush().encode("latin-1") if self._redacting else b""
        last = self._decode_and_buffer_chunk(rest)
        text = self._decoder.decode(b"", final=True)
        self._buffer_text(self._screen.feed(text) + self._screen.finish() if self._screen else text)
        return last + replace_surrogates(text)

    @property
    def omitted_characters(self) -> int:
        """Number of characters left out of `text()`."""
        return max(0, self._total - self._limit)

    def truncated_text(self) -> str:
        """Return all of it, or the first 20 % and last 80 % of the limit around a line stating what is missing."""
        tail = "".join(self._tail)
        if not self.omitted_characters:
            return self._head + tail
        return f"{self._head}\n[… {self.omitted_characters:,} characters left out …]\n{tail[-self._tail_limit :]}"

    def save_full_output(self) -> Path | None:
        """Make the full output durable (may be slow), content-addressed; None if nothing was left out or on failure."""
        if self._spool is None:
            return None
        try:
            self._spool.flush()
            os.fsync(self._spool.fileno())
            named = self._outputs.rename_spool_to_digest(Path(self._spool.name), self._digest.hexdigest())
        except OSError as error:
            self._stop_saving(error)
            return None
        self._spool.close()
        self._spool = None
        return named

    def discard_spool(self) -> None:
        """Close and remove the file unless it was saved."""
        if self._spool is not None:
            spool, self._spool = self._spool, None
            spool.raw.close()  # not `close`, which would retry a write refused by a full disk
            Path(spool.name).unlink(missing_ok=True)

    def _buffer_text(self, text: str) -> None:
        self._total += len(text)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head, text = self._head + text[:room], text[room:]
        if text:
            self._tail.append(text)
            self._tail_chars += len(text)
        while self._tail_chars - len(self._tail[0] if self._tail else "") > self._tail_limit:
            self._tail_chars -= len(self._tail.popleft())

    def _buffer_bytes(self, chunk: bytes) -> None:
        if self.note:
            return
        try:
            if self._spool is None:
                self._raw += chunk
                # A screen that is drawn again and again shows little of what was written.
                if not self.omitted_characters and len(self._raw) < _MOST_RAW + 4 * self._limit:
                    return
                self._spool = self._outputs.create_spool_file().open("wb")
                chunk, self._raw = bytes(self._raw), bytearray()
            self._write_spool(self._spool, chunk)
        except OSError as error:
            self._stop_saving(error)

    def _write_spool(self, spool: BufferedWriter, chunk: bytes) -> None:
        kept = chunk[: SPOOL_BYTES - self._spooled]
        spool.write(kept)
        self._digest.update(kept)
        self._spooled += len(kept)
        if len(kept) < len(chunk):
            self.note = f"only the first {SPOOL_BYTES:,} bytes were kept"

    def _stop_saving(self, error: OSError) -> None:
        self.note = f"the full output could not be kept: {error.strerror or error}"
        self._raw = bytearray()
        self.discard_spool()


_CHUNK = 65_536
"""Bytes per read: a pipe's capacity."""
_STOP_S = GRACE_S + 6.0
"""By then a stopped supervisor has exited, or its processes can't be killed."""
_DRAIN_S = 1.0
"""Only processes that escaped their supervisor (`describe_possible_process_escapes`) can keep the output open for
longer."""

_EndReason = Literal["exited", "timeout", "inactivity"]


class CommandWatch:
    """One run of one command."""

    def __init__(self, output: ProcessOutput, on_output: Callable[[str], None] | None) -> None:
        self._output, self._on_output = output, on_output
        self._sources: dict[int, Callable[[bytes], None]] = {}

    def open_pipe(
        self, our_ends: ExitStack, command_ends: ExitStack, on_bytes: Callable[[bytes], None]
    ) -> int:
        """Return the command's end of a pipe; `on_bytes` gets what comes out of ours, and nothing at its end."""
        read, write = os.pipe()
        our_ends.callback(os.close, read)
        command_ends.callback(os.close, write)
        os.set_blocking(read, False)
        self._sources[read] = on_bytes
        return write

    async def wait_for_end(
        self, child: SupervisedCommand, timeout_s: float, inactivity_s: float
    ) -> ProcessEnd:
        """Wait for the command, all its descendants and all that they write."""
        self._child = child
        self._started, self._spoke = child.asked_at, time.monotonic()
        end = asyncio.ensure_future(self._child.wait_until_finished())
        pumps = [asyncio.ensure_future(self._pump_pipe(*source)) for source in self._sources.items()]
        try:
            try:
                why = await self._wait_until_end_or_timeout(end, timeout_s, inactivity_s)
            except asyncio.CancelledError:
                await self._terminate_and_wait(end)
                raise
            if why != "exited":
                await self._terminate_and_wait(end)
            done, _ = await asyncio.wait(pumps, timeout=_DRAIN_S)
            for pump in done:
                pump.result()
        finally:
            for task in (end, *pumps):
                task.cancel()
            await asyncio.gather(end, *pumps, return_exceptions=True)
        return await self._build_process_end(why)

    async def _wait_until_end_or_timeout(
        self, end: asyncio.Future[None], timeout_s: float, inactivity_s: float
    ) -> _EndReason:
        while not end.done():
            now, over, silent = time.monotonic(), self._started + timeout_s, self._spoke + inactivity_s
            if now >= over:
                return "timeout"
            if now >= silent:
                return "inactivity"
            await asyncio.wait({end}, timeout=min(over, silent) - now)
        end.result()
        return "exited"

    async def _terminate_and_wait(self, end: asyncio.Future[None]) -> None:
        self._child.terminate()
        await asyncio.wait({end}, timeout=_STOP_S)

    async def _pump_pipe(self, source: int, on_bytes: Callable[[bytes], None]) -> None:
        while True:
            await wait_until_readable(source)
            chunk = os.read(source, _CHUNK)
            self._spoke = time.monotonic()
            on_bytes(chunk)
            if not chunk:
                return

    def receive_output(self, chunk: bytes) -> None:
        text = self._output.feed_bytes(chunk) if chunk else self._output.finish_decoding()
        if text and self._on_output:
            self._on_output(text)

    async def _build_process_end(self, end_reason: _EndReason) -> ProcessEnd:
        file = (
            await asyncio.to_thread(self._output.save_full_output)
            if self._output.omitted_characters
            else None
        )
        child, how = self._child, end_reason
        if end_reason == "exited" and child.has_unknown_outcome:
            how = "lost"
        return ProcessEnd(
            how="not_started" if child.error else "limit" if child.limit else how,
            exit_code=child.exit_code,
            signal=_signal_name(child.signal),
            output=child.error or self._output.truncated_text(),
            omitted=self._output.omitted_characters,
            full_output=file,
            duration_s=time.monotonic() - self._started,
            note=self._output.note,
            excess=child.limit or "",
            left_running=child.left_running if end_reason == "exited" else "",
        )


def _signal_name(number: int | None) -> str | None:
    try:
        return None if number is None else signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # real-time signals have no name
