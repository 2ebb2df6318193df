"""terminal: what a session asks of the terminal that it runs in (`app.py`, `plain.py`)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlock.engine.options import Decision

if TYPE_CHECKING:
    from interlock.cli.session.asking import Row
    from interlock.state.events import NotificationEvent

T = TypeVar("T")


class Terminal(Protocol):
    """What a session asks of the terminal that it runs in: `App`, or `Lines` where the cursor cannot be moved."""

    def paint(self) -> None:
        """Soon, from any thread."""
        ...

    def exit(self) -> None: ...

    def ring(self, event: "NotificationEvent") -> None:
        """From any thread."""
        ...

    async def decide(self, run: str, requests: Sequence[Mapping[str, Any]]) -> list[Decision]:
        """What the person says to them now; what isn't among the answers is left for later."""
        ...

    def still_asked(self, waiting: Collection[str]) -> None:
        """A request that no longer waits was decided elsewhere: nothing is asked of it any more."""
        ...

    async def handed_over(self, work: Callable[[], T]) -> T:
        """Do something that needs the whole terminal, such as an editor, in a thread of its own."""
        ...

    async def pick(self, title: str, rows: "Sequence[Row]", at: int = 0) -> "Row | None": ...

    def suggest(self, text: str) -> None:
        """Into the input line, where nothing is typed."""
        ...

    def take_back(self, texts: Sequence[str]) -> None:
        """Into the input line, before what is typed."""
        ...

    async def confirm(self, question: str) -> bool: ...
