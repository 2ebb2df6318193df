"""view: what shows a run on a command line."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from interlock.engine.client import Decision, Outcome, Pending
from interlock.state.errors import InterlockError

if TYPE_CHECKING:
    from interlock.state.events import Event


class View(Protocol):
    """A command-line renderer: called with events on its own thread, then once with the outcome."""

    def __call__(self, event: "Event", /) -> None:
        """Show the event, or keep it for the end."""

    def flush(self) -> None:
        """Show the events so far."""

    def ask(self, outcome: Outcome, requests: Sequence[Pending]) -> list[Decision]:  # noqa: ARG002 - for views that can ask
        """A person's decisions on pending requests, made now; empty where nobody can be asked. Events may follow."""
        return []

    def finish(self, outcome: Outcome) -> None: ...

    def failed(self, error: InterlockError) -> None:
        """The run didn't start, or broke off. The error's line is written to stderr elsewhere."""
