"""input_line: the input line: keys, history, folded pastes, and an editor for longer texts."""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import (
    Condition,
    Filter,
    emacs_mode,
    has_focus,
    vi_insert_mode,
    vi_navigation_mode,
)
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.controls import BufferControl, SearchBufferControl
from prompt_toolkit.layout.processors import AfterInput, HighlightIncrementalSearchProcessor, Processor
from prompt_toolkit.styles import Style

from interlock.cli.session.external_programs import find_pasted_image_file, save_clipboard_image
from interlock.cli.session.session import Session
from interlock.cli.terminal import enter_mode_in_foreground
from interlock.services.files.disk import make_private_directory
from interlock.services.files.filesystem import lock_folder, replace_private_file_holding_lock, sha256
from interlock.state.errors import InterlockError

_FOLDED_LINES, _FOLDED_CHARS = 10, 1_000
"""Lines and characters beyond which a paste is folded."""
_MARK = re.compile(r"\[pasted [\d,]+ (?:lines|characters) #(\d+)\]")
_IMAGE = re.compile(r"\[image #(\d+)\]")
_ENTRIES = 1_000
"""Entries kept for a workspace."""
_LARGEST = 100_000
"""Characters of an entry with its pastes; a larger one is kept only in its run."""
_FILE_SIZE = 4_000_000
"""Bytes beyond which the file is cut back to its newest entries."""


class Pastes:
    """Long pastes, each a short mark in the input, sent in full."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._images: list[Path] = []

    def register_image(self, file: Path) -> str:
        """Returns a mark for an image that is sent with the prompt."""
        if file not in self._images:
            self._images.append(file)
        return f"[image #{self._images.index(file) + 1}]"

    def images_in(self, text: str) -> list[Path]:
        numbers = [int(mark[1]) - 1 for mark in _IMAGE.finditer(text)]
        return [self._images[number] for number in numbers if 0 <= number < len(self._images)]

    def fold_long_paste(self, text: str) -> str:
        """Returns a mark for a long paste, a short one as it is; line ends become LF."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= _FOLDED_LINES and len(text) <= _FOLDED_CHARS:
            return text
        number = str(len(self._texts) + 1)
        self._texts[number] = text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted {size} #{number}]"

    def expand_paste_marks(self, text: str) -> str:
        """The text with each mark replaced by its paste."""
        return _MARK.sub(lambda mark: self._texts.get(mark[1], mark[0]), text)

    def trailing_paste_mark(self, text: str) -> str:
        """The mark that ends the text, or nothing."""
        found = re.search(rf"{_MARK.pattern}$", text)
        return found[0] if found and found[1] in self._texts else ""

    def pastes_in(self, text: str) -> list[str]:
        """The pastes behind the text's marks, in order."""
        return [self._texts[mark[1]] for mark in _MARK.finditer(text) if mark[1] in self._texts]

    def refold_pastes(self, text: str, pastes: Iterable[str]) -> str:
        """Fold an earlier session's pastes again, renumbering the text's marks."""
        left = iter(pastes)
        return _MARK.sub(
            lambda mark: self.fold_long_paste(part) if (part := next(left, None)) else mark[0], text
        )


class InputHistory(History):
    """A JSON Lines file, readable by its owner only, with secrets redacted."""

    def __init__(self, home: Path, workspace: Path, pastes: Pastes, redact: Callable[[str], str]) -> None:
        """`home`: the state directory."""
        super().__init__()
        self.path = home / "input" / f"{sha256(os.fsencode(workspace))[:16]}.jsonl"
        self._pastes, self._redact = pastes, redact

    def load_history_strings(self) -> list[str]:
        """The newest first, without duplicates."""
        found = [
            self._pastes.refold_pastes(*entry)
            for line in reversed(self._read_newest_lines())
            if (entry := _parse_history_entry(line))
        ]
        return list(dict.fromkeys(found))

    def store_string(self, string: str) -> None:
        """Append an entry; best-effort, so a full disk only loses it."""
        entry = {"text": self._redact(string), "pasted": [*map(self._redact, self._pastes.pastes_in(string))]}
        if len(entry["text"]) + sum(map(len, entry["pasted"])) > _LARGEST:
            return
        line = json.dumps({k: v for k, v in entry.items() if v}, ensure_ascii=True) + "\n"
        try:
            make_private_directory(self.path.parent)
            with lock_folder(self.path.parent):
                if self.path.exists() and self.path.stat().st_size > _FILE_SIZE:
                    replace_private_file_holding_lock(
                        self.path, "".join(f"{kept}\n" for kept in self._read_newest_lines()).encode()
                    )
                handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(line)
        except OSError:
            pass

    def _read_newest_lines(self) -> list[str]:
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return text.splitlines()[-_ENTRIES:]


def _parse_history_entry(line: str) -> tuple[str, list[str]] | None:
    """None if the line is incomplete: its writer was killed."""
    try:
        read: object = json.loads(line)
    except ValueError:
        return None
    if not isinstance(read, dict) or not isinstance(text := cast("dict[str, Any]", read).get("text"), str):
        return None
    pasted = cast("dict[str, list[Any]]", read).get("pasted", [])
    return (text, [*map(str, pasted)]) if text else None


_KITTY, _XTERM = "\x1b[13;2u", "\x1b[27;2;13~"
"""Shift-Enter, from terminals that report it. prompt_toolkit takes xterm's for Enter, and kitty's for seven keys."""


class SessionInput(Vt100Input):
    """The terminal's keys, with Ctrl-J for Shift-Enter."""

    def raw_mode(self) -> AbstractContextManager[None]:
        return enter_mode_in_foreground(super().raw_mode())

    def cooked_mode(self) -> AbstractContextManager[None]:
        return enter_mode_in_foreground(super().cooked_mode())

    def read_keys(self) -> list[KeyPress]:
        found = list[KeyPress]()
        for key in super().read_keys():
            found.append(KeyPress(Keys.ControlJ, _XTERM) if key.data == _XTERM else key)
            if "".join(one.data for one in found[-len(_KITTY) :]) == _KITTY:
                found[-len(_KITTY) :] = [KeyPress(Keys.ControlJ, _KITTY)]
        return found


STYLE = Style.from_dict(
    {
        "dim": "fg:ansibrightblack",
        "model": "fg:ansicyan",
        "warning": "fg:ansiyellow",
        "running": "fg:ansigreen",
        "plan": "fg:ansiblue",
        "auto_edit": "fg:ansimagenta",
        "yolo": "fg:ansired bold",
        "mark": "fg:ansicyan",
        "asks": "fg:ansiyellow bold",
        "bad": "fg:ansired",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion.current": "bold fg:ansicyan bg:default noreverse",
        "completion-menu.meta.completion": "fg:ansibrightblack bg:default",
        "completion-menu.meta.completion.current": "fg:ansibrightblack bg:default",
        "search-toolbar": "fg:ansibrightblack",
    }
)
"""The sixteen colours that every terminal maps to something readable on its background."""


def build_input_buffer(
    send: Callable[[str], None], completer: Completer, history: InputHistory, pastes: Pastes
) -> Buffer:
    """`send` gets the typed text with its pastes in full."""

    def accept(buffer: Buffer) -> bool:
        send(pastes.expand_paste_marks(buffer.text))
        return False  # clear the buffer

    return Buffer(
        name="input",
        multiline=True,
        completer=ThreadedCompleter(completer),
        complete_while_typing=True,
        history=history,
        accept_handler=accept,
    )


def build_input_control(
    buffer: Buffer, search: SearchBufferControl, placeholder: Callable[[], str]
) -> BufferControl:
    """The input's control; shows a search's match while it is typed, and `placeholder` while nothing is."""

    def placeholder_cells() -> StyleAndTextTuples:
        return [("class:dim", "" if buffer.text else placeholder())]

    marked: list[Processor] = [HighlightIncrementalSearchProcessor(), AfterInput(placeholder_cells)]
    return BufferControl(buffer, marked, search_buffer_control=search, preview_search=True)


def build_input_key_bindings(
    session: Session, buffer: Buffer, pastes: Pastes, switch_mode: Callable[[], None]
) -> KeyBindings:
    """The input's keys, besides those of emacs and vi. `switch_mode` switches the approval mode."""
    keys, typing = KeyBindings(), has_focus(buffer)
    offered = Condition(lambda: buffer.complete_state is not None)
    _bind_enter_keys(keys, typing, buffer)
    _bind_paste_keys(keys, typing, session, buffer, pastes)
    _bind_escape_keys(keys, typing, session, buffer)

    @keys.add("s-tab", filter=typing & ~offered)
    def _next_mode(_: KeyPressEvent) -> None:
        switch_mode()

    @keys.add("c-x", "c-e", filter=typing)
    @keys.add("c-g", filter=typing & ~offered)
    def _editor(event: KeyPressEvent) -> None:
        async def edit() -> None:
            text = await session.edit_text_in_editor(pastes.expand_paste_marks(buffer.text), ".md")
            if text is not None:
                buffer.document = Document(pastes.fold_long_paste(text.rstrip("\n")))

        event.app.create_background_task(edit())

    return keys


def _bind_enter_keys(keys: KeyBindings, typing: Filter, buffer: Buffer) -> None:
    @keys.add("enter", filter=typing)
    def _enter(_: KeyPressEvent) -> None:
        """Send, or accept the marked completion, already in the line; only a command's name is sent as well."""
        marked = buffer.complete_state and buffer.complete_state.current_completion
        buffer.complete_state = None
        if marked and not marked.text.startswith("/"):
            return
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=typing)
    @keys.add("c-j", filter=typing)
    def _newline(_: KeyPressEvent) -> None:
        buffer.insert_text("\n")


def _bind_paste_keys(
    keys: KeyBindings, typing: Filter, session: Session, buffer: Buffer, pastes: Pastes
) -> None:
    @keys.add(Keys.BracketedPaste, filter=typing)
    def _paste(event: KeyPressEvent) -> None:
        image = find_pasted_image_file(event.data)
        buffer.insert_text(pastes.register_image(image) if image else pastes.fold_long_paste(event.data))

    @keys.add("c-v", filter=typing & (emacs_mode | vi_insert_mode))
    def _image(event: KeyPressEvent) -> None:
        async def paste() -> None:
            try:
                found = await asyncio.to_thread(save_clipboard_image, session.home / "input" / "images")
            except InterlockError as error:
                session.report_error(error)
            else:
                buffer.insert_text(pastes.register_image(found))

        event.app.create_background_task(paste())

    folded = Condition(lambda: bool(pastes.trailing_paste_mark(buffer.document.text_before_cursor)))

    @keys.add("backspace", filter=typing & folded)
    def _remove(_: KeyPressEvent) -> None:
        buffer.delete_before_cursor(len(pastes.trailing_paste_mark(buffer.document.text_before_cursor)))


def _bind_escape_keys(keys: KeyBindings, typing: Filter, session: Session, buffer: Buffer) -> None:
    """Escape closes the menu, else stops the agent; twice clears the line, which the history keeps."""
    plain = emacs_mode | vi_navigation_mode

    @keys.add("escape", filter=typing & plain)
    def _escape(_: KeyPressEvent) -> None:
        if buffer.complete_state is not None:
            buffer.cancel_completion()
        elif session.busy:
            session.cancel()

    @keys.add("escape", "escape", filter=typing & plain)
    def _clear(_: KeyPressEvent) -> None:
        if buffer.text:
            buffer.append_to_history()
            buffer.reset()
