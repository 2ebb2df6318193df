"""view: what a renderer of the command line is, and what it knows of a run before its first event."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from interlock.engine.options import Decision, Outcome
from interlock.state.errors import InterlockError

if TYPE_CHECKING:
    from interlock.state.events import Event


class ResumedRun(NamedTuple):
    """For a run that goes on, what earlier drives of it asked and got."""

    title: str = ""
    decided: tuple[str, ...] = ()
    """Requests that were decided now."""


NOTHING = ResumedRun()
"""A run that starts now."""


class View(Protocol):
    """Called with events on a thread of its own, then once with how it ended."""

    def __call__(self, event: "Event", /) -> None: ...

    def ask(self, outcome: Outcome) -> list[Decision]:
        """What a person decides now of what waits; nothing where nobody can be asked. Events may follow."""
        ...

    def finish(self, outcome: Outcome) -> None: ...

    def failed(self, error: InterlockError) -> None:
        """The run did not start, or broke off. The one-line error itself goes to stderr elsewhere."""
        ...
