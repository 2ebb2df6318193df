"""editing: the input line's buffer and keys: Enter sends, pastes are folded, an editor takes longer texts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, Filter, emacs_mode, has_focus, vi_navigation_mode
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.controls import BufferControl, SearchBufferControl
from prompt_toolkit.layout.processors import HighlightIncrementalSearchProcessor, Processor
from prompt_toolkit.styles import Style

from interlock.cli.session.input_history import InputHistory, Pastes

if TYPE_CHECKING:
    from interlock.cli.session.session import Session

_SHIFT_ENTER = ("\x1b[13;2u", "\x1b[27;2;13~")
"""As terminals send it that tell it from Enter (kitty's protocol, xterm's modifyOtherKeys)."""


STYLE = Style.from_dict(
    {
        "dim": "fg:ansibrightblack",
        "model": "fg:ansicyan",
        "warning": "fg:ansiyellow",
        "plan": "fg:ansiblue",
        "auto_edit": "fg:ansimagenta",
        "yolo": "fg:ansired bold",
        "mark": "fg:ansicyan",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion.current": "bold fg:ansicyan bg:default noreverse",
        "completion-menu.meta.completion": "fg:ansibrightblack bg:default",
        "completion-menu.meta.completion.current": "fg:ansibrightblack bg:default",
        "search-toolbar": "fg:ansibrightblack",
    }
)
"""The sixteen colours that each terminal maps to what can be read on its own background."""


def input_buffer(
    send: Callable[[str], None], completer: Completer, history: InputHistory, pastes: Pastes
) -> Buffer:
    """`send` gets what was typed, with the pastes whole."""

    def accept(buffer: Buffer) -> bool:
        send(pastes.whole(buffer.text))
        return False  # cleared

    return Buffer(
        name="input",
        multiline=True,
        completer=ThreadedCompleter(completer),
        complete_while_typing=True,
        history=history,
        accept_handler=accept,
    )


def input_control(buffer: Buffer, search: SearchBufferControl) -> BufferControl:
    """What a search finds is seen while it is typed."""
    marked: list[Processor] = [HighlightIncrementalSearchProcessor()]
    return BufferControl(buffer, marked, search_buffer_control=search, preview_search=True)


def input_keys(
    session: "Session", buffer: Buffer, pastes: Pastes, next_mode: Callable[[], None]
) -> KeyBindings:
    """Of the input, besides those of emacs and vi. `next_mode`: of approval."""
    for sequence in _SHIFT_ENTER:
        ANSI_SEQUENCES[sequence] = Keys.ControlJ
    keys, typing = KeyBindings(), has_focus(buffer)
    offered = Condition(lambda: buffer.complete_state is not None)
    _add_sending(keys, typing, buffer)
    _add_pasting(keys, typing, buffer, pastes)
    _add_escape(keys, typing, session, buffer)

    @keys.add("s-tab", filter=typing & ~offered)
    def _next_mode(_: KeyPressEvent) -> None:
        next_mode()

    @keys.add("c-x", "c-e", filter=typing)
    @keys.add("c-g", filter=typing & ~offered)
    def _editor(event: KeyPressEvent) -> None:
        async def edit() -> None:
            text = await session.edit(pastes.whole(buffer.text), ".md")
            if text is not None:
                buffer.document = Document(pastes.fold(text.rstrip("\n")))

        event.app.create_background_task(edit())

    return keys


def _add_sending(keys: KeyBindings, typing: Filter, buffer: Buffer) -> None:
    @keys.add("enter", filter=typing)
    def _enter(_: KeyPressEvent) -> None:
        """What is marked in the menu stands in the line already; only a command's name is sent with the same Enter."""
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


def _add_pasting(keys: KeyBindings, typing: Filter, buffer: Buffer, pastes: Pastes) -> None:
    @keys.add(Keys.BracketedPaste, filter=typing)
    def _paste(event: KeyPressEvent) -> None:
        buffer.insert_text(pastes.fold(event.data))

    folded = Condition(lambda: bool(pastes.mark_before(buffer.document.text_before_cursor)))

    @keys.add("backspace", filter=typing & folded)
    def _remove(_: KeyPressEvent) -> None:
        buffer.delete_before_cursor(len(pastes.mark_before(buffer.document.text_before_cursor)))


def _add_escape(keys: KeyBindings, typing: Filter, session: "Session", buffer: Buffer) -> None:
    """Closes the menu; else stops the agent; twice clears the line, which the history keeps."""
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
