"""log: what the models service needs of the store. Implemented by the engine."""

from typing import Protocol

from interlock.state.messages import Message
from interlock.state.models import ModelCall, Reply, Usage


class Budget(Protocol):
    """What the whole run may use. Each call is reserved before it is made, and settled or lost after."""

    async def reserve(self, call: ModelCall, agent: str, model: str, tokens: int) -> None:
        """Raises `Stopped` where the call must not be made. `tokens`: estimated, of the request."""
        ...

    def settle(self, task: str) -> None:
        """Its use is known: it was answered, or refused by the provider."""
        ...

    def lose(self, task: str) -> None:
        """It was cut off: it counts at its estimate."""
        ...


class ModelLog(Protocol):
    """Replies of this run, by the task that asked and by (agent, role, ordinal) (`engine.md` 20)."""

    def recorded(self, task: str) -> Reply | None:
        """The reply that was recorded for this graph task before a crash."""
        ...

    def ordinal(self, agent: str, role: str) -> int:
        """Replies of this role recorded so far: the 0-based ordinal of the next one."""
        ...

    def record(
        self,
        call: ModelCall,
        agent: str,
        ordinal: int,
        message: Message,
        *,
        model: str,
        finish_reason: str | None,
        problem: str | None,
        usage: Usage,
        duration_ms: int,
        request_hash: str,
    ) -> Reply:
        """Append the reply to the chain after `call.head` and write its row, in one transaction."""
        ...
