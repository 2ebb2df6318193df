"""menu_keys: the keys of a question's menu: one decides only when it is pressed alone."""

import asyncio
import time
from collections.abc import Callable

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.key_binding import KeyPressEvent

from interlock.cli.session.deciding import Panel
from interlock.state.errors import InterlockError

_QUIET_S = 0.4
"""Seconds without a key before a question accepts keys: what was being typed is no answer to it."""
_ALONE_S = 0.15
"""Seconds without another key before and after one that decides: a typed word may contain a `y`, too."""


class MenuKeys:
    """Tells keys that decide from keys that write."""

    def __init__(
        self,
        buffer: Buffer,
        panel: Callable[[], Panel],
        failed: Callable[[InterlockError], None],
        paint: Callable[[], None],
    ) -> None:
        self._buffer, self._panel, self._failed, self._paint = buffer, panel, failed, paint
        self._before, self._at = 0.0, 0.0
        self._held = ""
        """A key that decides unless another follows: then both are text."""

    def pressed(self) -> float:
        """Note a key. Returns when it came, in seconds of the monotonic clock."""
        self._before, self._at = self._at, time.monotonic()
        return self._at

    async def quiet(self) -> None:
        """Wait until nobody types."""
        while time.monotonic() - self._at < _QUIET_S:
            await asyncio.sleep(0.05)

    def forget(self) -> None:
        self._held = ""

    def move(self, by: int) -> None:
        self._panel().move(by)
        self._at = -_ALONE_S  # an arrow is no part of a word

    def back(self) -> None:
        """Drop what is typed, else leave the menu."""
        if self._buffer.text:
            self._buffer.append_to_history()
            self._buffer.reset()
        else:
            self._panel().back()

    def decide(self, event: KeyPressEvent) -> None:
        """A key of the menu decides if it comes alone; anything else is text for the input line."""
        panel, key, pressed_at = self._panel(), event.data, self._at
        alone = pressed_at - self._before > _ALONE_S
        held, self._held = self._held, ""
        if held or not alone or not (key == "\r" or panel.takes(key.lower())):
            self._buffer.insert_text("".join(char for char in held + key if char.isprintable()))
            return
        self._held = key

        async def unless_typing() -> None:
            await asyncio.sleep(_ALONE_S)
            if self._held and self._at == pressed_at and not panel.decided.done():
                self._held = ""
                try:
                    await panel.press(panel.marked if key == "\r" else key.lower())
                except InterlockError as error:
                    self._failed(error)
                self._paint()

        event.app.create_background_task(unless_typing())
