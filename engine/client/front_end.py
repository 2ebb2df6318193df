"""front_end: what a conversation needs of whoever shows it, and what it tells besides events."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from interlock.engine.options import Decision, Pending

if TYPE_CHECKING:
    from interlock.state.events import Asking, Event, Finished


RunInput = str | Mapping[str, Any]
"""What a run starts with: a prompt, or its whole input."""
UNFINISHED = ("cancelled", "timeout", "interrupted", "budget", "lost")
"""Statuses that leave a run unfinished."""


@dataclass
class TokenCounts:
    """The run's figures so far."""

    tokens: int = 0
    """All requests of this conversation."""
    context: int = 0
    """The last request: how much of the model's window is filled."""
    tools: int = 0
    """Of it, the declarations of tools, estimated."""
    window: int = 0
    """The model's window; 0: not known yet."""

    def asks(self, event: "Asking") -> None:
        self.tools, self.window, self.context = event.tools, event.window, event.tokens

    def counts(self, event: "Finished") -> None:
        used = event.usage.get("input", 0) + event.usage.get("output", 0)
        self.tokens += used
        if used and not event.agent:
            self.context = used


Kind = Literal[
    "problem",
    "unsent",
    "unfinished",
    "left",
    "elsewhere",
    "beginning",
    "unchanged",
    "new",
    "forked",
    "back",
    "chosen",
]


class Notice(NamedTuple):
    """Something to tell a person that is no event of a run; a front end may say it in words of its own."""

    kind: Kind
    text: str
    run: str = ""
    """The run that it names."""


class Front(Protocol):
    """Who shows a conversation, and asks the person."""

    def event(self, event: "Event", /) -> None:
        """An event of the run, on another thread while it is driven."""
        ...

    def notice(self, notice: Notice, /) -> None: ...

    def prompted(self, prompt: str, /) -> None:
        """The person's prompt is sent."""
        ...

    def moved(self) -> None:
        """A figure, the queue or the status is another."""
        ...

    def ended(self) -> None:
        """Nothing moves until the next event."""
        ...

    async def decide(self, run: str, requests: Sequence[Pending], /) -> Sequence[Decision]:
        """The person's decisions; a request without one is left for later."""
        ...

    def still_asked(self, waiting: Collection[str], /) -> None:
        """Requests that wait still, of those being asked; the others were decided elsewhere."""
        ...

    def take_back(self, texts: Sequence[str], /) -> None:
        """Prompts in the queue won't be sent: the person may change them."""
        ...
