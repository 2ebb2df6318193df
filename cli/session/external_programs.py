"""external_programs: runs other programs for a session: commands, shell lines, clipboard, pager and difftool."""

import asyncio
import codecs
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from asyncio import to_thread
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from interlock.cli.catalog import execute_command
from interlock.cli.render.output import (
    format_duration,
    redact_secrets,
    redirect_output,
    result_paint,
    strip_codes_and_overwritten_text,
    to_one_line,
)
from interlock.cli.render.workflow_results import result_lines
from interlock.cli.session.session import Session
from interlock.cli.session.session_wording import reword_for_session
from interlock.engine.client.requests import Request, summarize_arguments
from interlock.services.files.disk import make_private_directory
from interlock.services.files.filesystem import replace_private_file_holding_lock, sha256
from interlock.state.errors import InterlockError, UserError
from interlock.state.events import ToolOutput, ToolStart
from interlock.state.text import find_truncated_diff_notice

_MOST_LINES = 400
"""Lines of a command's output to show; a pager suits longer output better."""


class _FakeTerminalPage(io.StringIO):
    """Pretends to be a terminal, so that output has its colours and width."""

    def isatty(self) -> bool:
        return True


class _RewordedRemarks(_FakeTerminalPage):
    """Writes to a page, in the session's words."""

    def __init__(self, page: _FakeTerminalPage) -> None:
        super().__init__()
        self.page = page

    def write(self, text: str) -> int:
        return self.page.write(reword_for_session(text))


def capture_interlock_command_output(name: str, arguments: list[str]) -> str:
    """What `interlock NAME ARGUMENTS` writes, with colours; nobody can be asked."""
    page = _FakeTerminalPage()
    with redirect_output(page, remarks := _RewordedRemarks(page)):
        try:
            execute_command(name, arguments)
        except InterlockError as error:
            remarks.write(redact_secrets(str(error)))
        except SystemExit:  # --help
            pass
    return page.getvalue().rstrip()


def render_workflow_result(workflow: str, output: Mapping[str, Any]) -> Text:
    """What `interlock run WORKFLOW` shows of its output on a terminal."""
    page = _FakeTerminalPage()
    with redirect_output(page, page):
        paint = result_paint()
        paint.print_lines(result_lines(workflow, output, paint), keep_newlines=True)
    return Text.from_ansi(page.getvalue().rstrip())


_ADVISES = frozenset({"auth", "doctor"})
"""Commands whose results say what to type next, as remarks and errors of all do."""


async def run_and_show_interlock_command(session: Session, name: str, arguments: Sequence[str]) -> None:
    text = await to_thread(lambda: capture_interlock_command_output(name, [*arguments]))
    text = reword_for_session(text) if name in _ADVISES else text
    lines = text.split("\n") if text else []
    shown = "\n".join(lines[:_MOST_LINES])
    if shown:
        session.screen.show_renderable(Text.from_ansi(shown))
    if len(lines) > _MOST_LINES:
        command = shlex.join(["interlock", name, *arguments])
        session.screen.show_note(f"… {len(lines) - _MOST_LINES:,} more lines: {command}")


def split_shell_words(text: str) -> list[str]:
    """Split as a shell does. Raises `UserError`."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text!r} can't be read: {error}. Close the quotes.") from None


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
class ProgramOutput:
    """The beginning and the end of a program's output."""

    head: str = ""
    tail: str = ""
    left_out: int = 0
    """In characters."""
    _decode: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def decode_and_append(self, data: bytes) -> str:
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


async def run_shell_line_and_attach_output(session: Session, line: str) -> None:
    """Run the line to its end, or until the session's `cancel`. Background processes it leaves keep running."""
    loop, output = asyncio.get_running_loop(), ProgramOutput()
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
        session.screen.show_note(f"Can't start {shell!r}: {error.strerror}. Set SHELL.", "bad")
        return
    began = loop.time()
    session.stop = lambda: _interrupt_then_kill_process(process, loop)
    session.screen(ToolStart(tool_name="run_shell_command", tool_id="!", summary=f"! {to_one_line(line)}"))
    assert process.stdout is not None
    while data := await _read_next_output(process.stdout, process):
        session.screen(ToolOutput(tool_id="!", text=output.decode_and_append(data)))
    output.decode_and_append(b"")
    code = await process.wait() if process.returncode is None else process.returncode
    session.run_in_background(_drain_stream(process.stdout))
    session.screen.end_drive()
    facts = [_format_exit_code(code), format_duration(loop.time() - began)]
    _show_shell_output(session, line, output.text, " · ".join(filter(None, facts)))
    note = f"$ {line}\n{output.text.rstrip()}\n[{_format_exit_code(code) or 'exit 0'}]\n"
    session.attach_note("a shell line that the user ran, and its output", note)


async def _read_next_output(stream: asyncio.StreamReader, process: asyncio.subprocess.Process) -> bytes:
    """The next output; empty once the line is over, even if a background process holds the pipe open."""
    reading = asyncio.ensure_future(stream.read(_CHUNK))
    while not (await asyncio.wait({reading}, timeout=_LOOK_S))[0]:
        if process.returncode is not None:
            reading.cancel()
            return b""
    return reading.result()


async def _drain_stream(stream: asyncio.StreamReader) -> None:
    while await stream.read(_CHUNK):
        pass


def _interrupt_then_kill_process(
    process: asyncio.subprocess.Process, loop: asyncio.AbstractEventLoop
) -> None:
    def send_signal(number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    send_signal(signal.SIGINT)
    loop.call_later(_GRACE_S, lambda: send_signal(signal.SIGKILL) if process.returncode is None else None)


def _format_exit_code(code: int) -> str:
    if code >= 0:
        return f"exit {code}" if code else ""
    return signal.Signals(-code).name


def _show_shell_output(session: Session, line: str, text: str, facts: str) -> None:
    lines = [strip_codes_and_overwritten_text(part) for part in text.rstrip("\n").split("\n")] if text else []
    cut = len(lines) - _HEAD - _TAIL
    shown = Text.assemble(("! ", "prompt"), (to_one_line(line), "strong"), (f" · {facts}", "dim"))
    for part in lines if cut <= 0 else [*lines[:_HEAD], f"… {cut:,} lines …", *lines[-_TAIL:]]:
        shown.append(f"\n  {part}", "")
    session.screen.show_renderable(shown)


_READERS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_APPLE = (
    "write (the clipboard as «class PNGf») to (open for access POSIX file {file!r} with write permission)"
)
_WINDOWS = (
    "Add-Type -AssemblyName System.Windows.Forms; $i = [Windows.Forms.Clipboard]::GetImage(); if ($i) { "
    "$m = New-Object IO.MemoryStream; $i.Save($m, [Drawing.Imaging.ImageFormat]::Png); "
    "$o = [Console]::OpenStandardOutput(); $o.Write($m.ToArray(), 0, $m.Length) }"
)
_PNG = b"\x89PNG"
_WAIT_S = 5.0
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def save_clipboard_image(folder: Path) -> Path:
    """Save the clipboard's image in `folder`, under a name made of its content. Raises `UserError`."""
    data, names = b"", [reader[0] for reader in _READERS]
    for command in [*_READERS, ("powershell.exe", "-NoProfile", "-Command", _WINDOWS)]:
        if shutil.which(command[0]) and (data := _run_clipboard_reader(command)).startswith(_PNG):
            return _save_image(data, folder)
    if sys.platform == "darwin" and (data := _read_apple_clipboard(folder)):
        return _save_image(data, folder)
    if not any(map(shutil.which, [*names, "powershell.exe"])) and sys.platform != "darwin":
        raise UserError(
            f"No program reads the clipboard here. Install one of {', '.join(names)}; or name a file: @PATH"
        )
    raise UserError("The clipboard holds no image. Copy one, or name a file: @PATH")


def find_pasted_image_file(text: str) -> Path | None:
    """The image file that a pasted text names, as terminals paste a file dropped on them."""
    name = text.strip().strip("'\"").replace("\\ ", " ").removeprefix("file://")
    if "\n" in name or not name.startswith("/") or not name.lower().endswith(IMAGES):
        return None
    return file if (file := Path(name)).is_file() else None


def _run_clipboard_reader(command: tuple[str, ...]) -> bytes:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_WAIT_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return b""


def _read_apple_clipboard(folder: Path) -> bytes:
    make_private_directory(folder)
    file = folder / "clipboard.png"
    _run_clipboard_reader(("osascript", "-e", _APPLE.format(file=str(file))))
    data = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    return data


def _save_image(data: bytes, folder: Path) -> Path:
    make_private_directory(folder)
    replace_private_file_holding_lock(file := folder / f"{sha256(data)[:16]}.png", data)
    return file


_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def show_in_pager(text: str) -> bool:
    """Show coloured lines in $PAGER, by default less; False: there is none."""
    pager = os.environ.get("PAGER") or next((name for name in ("less", "more") if shutil.which(name)), "")
    if not pager:
        return False
    env = {"LESS": "-R", **os.environ}
    try:
        subprocess.run(shlex.split(pager), input=text.encode(), env=env, check=False)
    except (OSError, ValueError) as error:
        raise UserError(f"Can't start the pager {pager!r}: {error}. Set PAGER.") from error
    return True


def open_difftool(requests: Sequence[Request], workspace: Path) -> None:
    """Open each edit in `git difftool`, which the person's own git settings name. Raises `UserError`."""
    with tempfile.TemporaryDirectory(prefix="interlock-diff-") as folder:
        for number, request in enumerate(requests, 1):
            name = Path(summarize_arguments(request["args"])).name or "file"
            files = [Path(folder, side, str(number), name) for side in ("before", "after")]
            for file, text in zip(
                files,
                texts_before_and_after_diff(request["preview"], _read_file_before_edit(request, workspace)),
                strict=True,
            ):
                file.parent.mkdir(parents=True)
                file.write_text(text, encoding="utf-8")
            # Not in the workspace: settings of a repository may name any program.
            command = ["git", "difftool", "--no-index", "--no-prompt", *map(str, files)]
            try:
                done = subprocess.run(command, cwd=folder, check=False)
            except OSError as error:
                raise UserError(f"Can't start git difftool: {error.strerror}. Install git.") from error
            if done.returncode > 1:
                raise UserError("git difftool failed. Name a tool: git config --global diff.tool vimdiff")


def _read_file_before_edit(request: Request, workspace: Path) -> str:
    try:
        return (workspace / summarize_arguments(request["args"])).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def texts_before_and_after_diff(diff: str, current: str) -> tuple[str, str]:
    """The text before and after a diff: whole where it fits `current`, else its hunks alone, as when it is cut."""
    if cut := find_truncated_diff_notice(diff):
        was, becomes = _hunk_texts_before_and_after(diff)
        return was + cut, becomes + cut
    before: list[str] = []
    after: list[str] = []
    lines, at = current.splitlines(keepends=True), 0
    for start, old, new in _parse_hunks(diff):
        if lines[start : start + len(old)] != old:
            return _hunk_texts_before_and_after(diff)
        before += [*lines[at:start], *old]
        after += [*lines[at:start], *new]
        at = start + len(old)
    return "".join([*before, *lines[at:]]), "".join([*after, *lines[at:]])


def _hunk_texts_before_and_after(diff: str) -> tuple[str, str]:
    found = [*_parse_hunks(diff)]
    return "".join(x for _, old, _ in found for x in old), "".join(x for _, _, new in found for x in new)


def _parse_hunks(diff: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """Each hunk's place in the old text, from 0, with its lines before and after."""
    found: list[tuple[int, list[str], list[str]]] = []
    last: list[list[str]] = []
    for line in diff.splitlines(keepends=True):
        if head := _HUNK.match(line):
            found.append((max(int(head[1]) - (head[2] != "0"), 0), [], []))
        elif found and line[:1] in (" ", "-", "+"):
            _, old, new = found[-1]
            last = {" ": [old, new], "-": [old], "+": [new]}[line[0]]
            for side in last:
                side.append(line[1:].rstrip("\n") + "\n")
        elif line.startswith("\\"):  # the line before it has no line end
            for side in last:
                side[-1] = side[-1].rstrip("\n")
    yield from found
