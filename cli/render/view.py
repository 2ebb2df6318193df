"""view: what a renderer of the command line is; it shows events while they come, and the outcome at the end."""

from typing import Protocol

from interlock.engine.options import Decision, Outcome
from interlock.state.errors import InterlockError
from interlock.state.events import Event


class View(Protocol):
    """Called with events on a thread of its own, then once with how it ended."""

    def __call__(self, event: Event, /) -> None: ...

    def ask(self, outcome: Outcome) -> list[Decision]:
        """What a person decides now of what waits; nothing where nobody can be asked. Events may follow."""
        ...

    def finish(self, outcome: Outcome) -> None: ...

    def failed(self, error: InterlockError) -> None:
        """The run did not start, or broke off. The one-line error itself goes to stderr elsewhere."""
        ...
