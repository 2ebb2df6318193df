"""request: what every provider is asked, and the pieces it answers with."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from interlock.state.messages import Message
from interlock.state.models import ToolDeclaration, Usage


@dataclass(frozen=True)
class Request:
    """One connection attempt."""

    model: str
    """Resolved name."""
    messages: Sequence[Message]
    tools: Sequence[ToolDeclaration]
    schema: Mapping[str, Any] | None
    temperature: float
    agent: str
    role: str
    ordinal: int
    """Of the reply, per (agent, role)."""
    attempt: int = 0
    """0-based, within one call."""


@dataclass(frozen=True)
class CallPiece:
    """A complete tool call; `id` is the provider's own, if it gave one."""

    name: str
    args: dict[str, JsonValue]
    id: str | None = None
    signature: str | None = None


@dataclass(frozen=True)
class Chunk:
    """One piece of an answer; what is unset says nothing."""

    text: str = ""
    thought: str = ""
    calls: tuple[CallPiece, ...] = ()
    signature: str | None = None
    finish_reason: str | None = None
    problem: str | None = None
    usage: Usage | None = None
    """Adds to what earlier chunks said."""


class Provider(Protocol):
    """One way of reaching models. A stream makes one attempt: it never retries by itself."""

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The pieces, as they come. Whatever the client raises; `failure.explain` knows what it means."""
        ...

    async def aclose(self) -> None:
        """Close connections, on the loop that used them."""
        ...
