"""programs: shows other programs' output in the session: `interlock NAME …`, and the user's `!command`."""

import asyncio
import codecs
import io
import os
import shlex
import signal
from asyncio import to_thread
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.text import Text

from interlock.cli.catalog import execute
from interlock.cli.render.output import elapsed, one_line, plain, redacted, written_to
from interlock.cli.session.wording import in_session
from interlock.state.errors import InterlockError, UserError

if TYPE_CHECKING:
    from interlock.cli.session.session import Session

_MOST_LINES = 400
"""Lines of a command's output to show; a pager suits longer output better."""


class _Page(io.StringIO):
    """Pretends to be a terminal, so that output has its colours and width."""

    def isatty(self) -> bool:
        return True


def printed(name: str, arguments: list[str]) -> str:
    """What `interlock NAME ARGUMENTS` writes, with colours; nobody can be asked."""
    page = _Page()
    with written_to(page):
        try:
            execute(name, arguments)
        except InterlockError as error:
            page.write(redacted(str(error)))
        except SystemExit:  # --help
            pass
    return page.getvalue().rstrip()


_ADVISES = frozenset({"auth", "doctor"})
"""Commands whose output says what to type next."""


async def show_printed(session: "Session", name: str, arguments: Sequence[str]) -> None:
    """Show what `interlock NAME ARGUMENTS` writes."""
    text = await to_thread(lambda: printed(name, [*arguments]))
    text = in_session(text) if name in _ADVISES else text
    lines = text.split("\n") if text else []
    shown = "\n".join(lines[:_MOST_LINES])
    if shown:
        session.screen.show(Text.from_ansi(shown))
    if len(lines) > _MOST_LINES:
        command = shlex.join(["interlock", name, *arguments])
        session.screen.note(f"… {len(lines) - _MOST_LINES:,} more lines: {command}")


def words(rest: str) -> list[str]:
    """Split as a shell does. Raises `UserError`."""
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise UserError(f"{rest!r} can't be read: {error}. Close the quotes.") from None


_HEAD, _TAIL = 60, 40
"""Lines shown from the output's start and end."""
_KEPT = 200_000
"""Characters kept for the model from each of its two ends."""
_CHUNK = 65_536
_LOOK_S = 0.1
"""Seconds of silence before checking whether the line is over."""
_GRACE_S = 2.0
"""Seconds from Ctrl-C until it is killed."""


@dataclass
class Output:
    """The beginning and the end of a program's output."""

    head: str = ""
    tail: str = ""
    left_out: int = 0
    """In characters."""
    _decode: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def feed(self, data: bytes) -> str:
        text = self._decode.decode(data, final=not data)
        room = _KEPT - len(self.head)
        self.head += text[:room]
        self.tail += text[room:]
        if len(self.tail) > 2 * _KEPT:
            self.left_out += len(self.tail) - _KEPT
            self.tail = self.tail[-_KEPT:]
        return text

    @property
    def text(self) -> str:
        between = f"\n… {self.left_out:,} characters …\n" if self.left_out else ""
        return self.head + between + self.tail


async def run_shell_line(session: "Session", line: str) -> None:
    """Run the line to its end, or until the session's `cancel`. Background processes it leaves keep running."""
    from interlock.state.events import ToolOutput, ToolStart

    loop, output = asyncio.get_running_loop(), Output()
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        process = await asyncio.create_subprocess_exec(
            *(shell, "-c", line),
            cwd=session.workspace,
            env=dict(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        session.screen.note(f"Can't start {shell!r}: {error.strerror}. Set SHELL.", "bad")
        return
    began = loop.time()
    session.stop = lambda: _stop(process, loop)
    session.screen(ToolStart(tool_name="run_shell_command", tool_id="!", summary=f"! {one_line(line)}"))
    assert process.stdout is not None
    while data := await _next(process.stdout, process):
        session.screen(ToolOutput(tool_id="!", text=output.feed(data)))
    output.feed(b"")
    code = await process.wait() if process.returncode is None else process.returncode
    session.aside(_drained(process.stdout))
    session.screen.end()
    facts = [_exit_of(code), elapsed(loop.time() - began)]
    _show_output(session, line, output.text, " · ".join(filter(None, facts)))
    note = f"$ {line}\n{output.text.rstrip()}\n[{_exit_of(code) or 'exit 0'}]\n"
    session.note_for_model("a shell line that the user ran, and its output", note)


async def _next(stream: asyncio.StreamReader, process: asyncio.subprocess.Process) -> bytes:
    """The next output; empty once the line is over, even if a background process holds the pipe open."""
    reading = asyncio.ensure_future(stream.read(_CHUNK))
    while not (await asyncio.wait({reading}, timeout=_LOOK_S))[0]:
        if process.returncode is not None:
            reading.cancel()
            return b""
    return reading.result()


async def _drained(stream: asyncio.StreamReader) -> None:
    while await stream.read(_CHUNK):
        pass


def _stop(process: asyncio.subprocess.Process, loop: asyncio.AbstractEventLoop) -> None:
    def send(number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    send(signal.SIGINT)
    loop.call_later(_GRACE_S, lambda: send(signal.SIGKILL) if process.returncode is None else None)


def _exit_of(code: int) -> str:
    if code >= 0:
        return f"exit {code}" if code else ""
    return signal.Signals(-code).name


def _show_output(session: "Session", line: str, text: str, facts: str) -> None:
    lines = [plain(part) for part in text.rstrip("\n").split("\n")] if text else []
    cut = len(lines) - _HEAD - _TAIL
    shown = Text.assemble(("! ", "prompt"), (one_line(line), "strong"), (f" · {facts}", "dim"))
    for part in lines if cut <= 0 else [*lines[:_HEAD], f"… {cut:,} lines …", *lines[-_TAIL:]]:
        shown.append(f"\n  {part}", "")
    session.screen.show(shown)
