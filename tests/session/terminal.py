"""terminal: a real `interlock` process on a real terminal, and its screen as a person sees it."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyte
from patience import HANG_S, until
from scripted import says, shell, tools
from warm import Warm

ENTRY = Path(sys.executable).with_name("interlock")
FROM_NOTHING = (str(ENTRY),)
"""For tests of what happens before the imports."""
WAIT_S = float(os.environ.get("WAIT_S", HANG_S))
"""Seconds. A wait ends at once when the text appears; only a failure lasts this long."""
KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "s-tab": "\x1b[Z",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "backspace": "\x7f",
    "a-enter": "\x1b\r",
}


class Terminal:
    """`with Terminal(folder, "-m", "script:replies.yaml") as terminal: …`; with a `command`, nothing is preloaded."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        command: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.arguments, self.command = folder, arguments, command
        self._pyte = pyte.HistoryScreen(columns, rows, history=20_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._pyte)
        self._drawn: dict[int, str] = {}
        self.written = bytearray()
        """Everything that the process wrote."""
        self._told = 0
        self._news = threading.Condition()
        self._reading = True
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder.parent),
            "INTERLOCK_HOME": str(folder.parent / "state"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            **(env or {}),
        }

    def __enter__(self) -> "Terminal":
        self._own, their = pty.openpty()
        self._set_size(self._own)
        self.process = self._started(their)
        os.close(their)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _started(self, terminal: int) -> "Warm | subprocess.Popen[bytes]":
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        if not self.command:
            return Warm(self.arguments, cwd=self.folder, env=self.env, terminal=True, **streams)
        return subprocess.Popen(
            [*self.command, *self.arguments],
            cwd=self.folder,
            env=self.env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            **streams,
        )

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self._reader.join(WAIT_S)
        os.close(self._own)

    def _read(self) -> None:
        while data := self._more():
            with self._news:
                self.written += data
                self._stream.feed(data)
                self._news.notify_all()
        with self._news:
            self._reading = False
            self._news.notify_all()

    def _more(self) -> bytes:
        try:
            return os.read(self._own, 65_536)
        except OSError:
            return b""

    @property
    def screen(self) -> list[str]:
        """The visible lines. Only those that changed are put together again: waits look at each piece of output."""
        with self._news:
            for row in self._pyte.dirty:
                self._drawn[row] = self._text_of(self._pyte.buffer[row])
            self._pyte.dirty.clear()
            return [self._drawn[row] for row in range(self._pyte.lines)]

    def _text_of(self, line: Mapping[int, Any]) -> str:
        return "".join(line[x].data for x in range(self._pyte.columns)).rstrip()

    def looks_of(self, text: str) -> list[tuple[str, str, bool]]:
        """Foreground, background and boldness of each character of the first visible line with this text."""
        with self._news:
            row, line = next((n, line) for n, line in enumerate(self._pyte.display) if text in line)
            at = line.index(text)
            cells = [self._pyte.buffer[row][at + n] for n in range(len(text))]
        return [(cell.fg, cell.bg, cell.bold or cell.underscore or cell.reverse) for cell in cells]

    @property
    def scrollback(self) -> list[str]:
        """The lines scrolled off the top, then the visible ones."""
        with self._news:
            return [self._text_of(line) for line in self._pyte.history.top] + self.screen

    def type(self, text: str, then: str = "") -> None:
        """Type, and wait `then` for a text, once more if it stands there already; so do `press` and `say`."""
        before = self._count(then)
        os.write(self._own, text.encode())
        if then:
            assert self._comes(lambda: self._count(then) > before), "\n".join(
                (f"{then!r} never came, or not again", *self.scrollback[-80:])
            )

    def paste(self, text: str) -> None:
        """Paste as terminals do: between bracketed-paste marks."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def press(self, *keys: str, then: str = "") -> None:
        """`enter`, `c-c`, `s-tab`, `up`, … or a character; several arrive together, however busy the machine."""
        controls = ((key, re.fullmatch("c-(.)", key)) for key in keys)
        self.type("".join(chr(ord(c[1]) & 0x1F) if c else KEYS.get(key, key) for key, c in controls), then)

    def say(self, prompt: str, then: str = "") -> None:
        self.waits_for("›")
        self.type(prompt, then=prompt[-20:])
        self.press("enter", then=then)

    def sends(self, line: str, *shown: str) -> None:
        """Send the line, and wait for what it shows."""
        self.type(line)
        self.waits_for(line[-20:])
        self.press("enter")
        for text in shown:
            self.waits_for(text)

    def types_ahead(self, text: str) -> None:
        """Type before anything is shown, as soon as echo is off."""
        until(lambda: not self.echoes, "the keyboard's hold")
        self.type(text)

    def waits_for(self, text: str, *, gone: bool = False, anywhere: bool = False) -> None:
        """Wait until the text is on the screen (`anywhere`: or has scrolled away), or is `gone`."""

        def holds() -> bool:
            return (text in "\n".join(self.scrollback if anywhere else self.screen)) is not gone

        what = f"{text!r} {'stayed' if gone else 'never came'}"
        assert self._comes(holds), "\n".join((what, *self.scrollback[-80:]))

    def _count(self, text: str) -> int:
        return "\n".join(self.screen).count(text) if text else 0

    def waits_for_line(self, pattern: str) -> None:
        """Wait until a visible line begins with the pattern: no other text tells that it has been drawn."""
        assert self._comes(lambda: any(re.match(pattern, line) for line in self.screen)), self.screen

    def _comes(self, holds: Callable[[], bool]) -> bool:
        """Whether it holds now, or after some of what the process still writes."""
        with self._news:
            self._news.wait_for(lambda: holds() or not self._reading, WAIT_S)
            return holds()

    @property
    def text(self) -> str:
        """Everything that was written, without what colours it and moves the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.written.decode(errors="replace")).replace(
            "\r\n", "\n"
        )

    def until(self, text: str) -> str:
        """Wait for the text behind what earlier calls returned; returns what was written up to it."""
        assert self._comes(lambda: text in self.text[self._told :]), f"{text!r} in\n{self.text}"
        end = self.text.index(text, self._told) + len(text)
        shown, self._told = self.text[self._told : end], end
        return shown

    def ends(self) -> int:
        """Wait until the process has ended; returns its exit code."""
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    @property
    def echoes(self) -> bool:
        """Whether the terminal echoes what is typed."""
        return bool(termios.tcgetattr(self._own)[3] & termios.ECHO)

    @property
    def restored(self) -> bool:
        """The terminal is as before: it echoes, reads whole lines, marks no pastes and shows its cursor."""
        modes = termios.tcgetattr(self._own)[3]
        written = self.written.decode(errors="replace")
        pastes, cursor = (re.findall(rf"\x1b\[\?{number}([hl])", written) for number in (2004, 25))
        canonical = self.echoes and modes & termios.ICANON and termios.tcgetattr(self._own)[0] & termios.ICRNL
        return bool(canonical) and pastes[-1:] == ["l"] and cursor[-1:] in ([], ["h"])

    def resize(self, columns: int, rows: int) -> None:
        with self._news:
            self._pyte.resize(rows, columns)
        self._set_size(self._own)
        self.process.send_signal(signal.SIGWINCH)

    def hang_up(self) -> None:
        """Close the terminal's window."""
        os.close(self._own)
        self._own = os.open(os.devnull, os.O_RDONLY)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(WAIT_S)

    def _set_size(self, terminal: int) -> None:
        size = struct.pack("HHHH", self._pyte.lines, self._pyte.columns, 0, 0)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


Replies = list[dict[str, Any]]
Opens = Callable[..., Terminal]


HELD: dict[str, Any] = tools(shell("touch began; until [ -e go ]; do sleep 0.05; done"))
"""A reply that keeps the agent busy, from when `began` exists in its folder until `go` does."""


LATE: dict[str, Any] = {"text": "too late", "delay_s": 60}
ASKED = "is reading"
"""Shown while a reply is awaited: by then the run exists and has the prompt."""


def edit(text: str = "new\n", file: str = "notes.txt") -> dict[str, Any]:
    """A reply that asks to write a file."""
    return says("write_file", file_path=file, content=text)
