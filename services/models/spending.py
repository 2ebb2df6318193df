"""spending: a call within the run's budget: how large it is, and what becomes of its reservation."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from interlock.services.models.log import Budget
from interlock.services.models.memo import PerMessage
from interlock.services.models.request import Request
from interlock.state.errors import ModelError
from interlock.state.messages import estimate_message
from interlock.state.models import ModelCall, ModelItem, Reply
from interlock.state.text import estimate_tokens


class Unlimited:
    """Implements `Budget` where nothing is counted."""

    async def reserve(self, call: ModelCall, agent: str, model: str, tokens: int) -> None:
        """Nothing is limited."""

    def settle(self, task: str) -> None:
        """Nothing was reserved."""

    def lose(self, task: str) -> None:
        """Nothing was reserved."""


class Size:
    """Estimated tokens of a request, tools included."""

    def __init__(self) -> None:
        self._messages = PerMessage(estimate_message)

    def __call__(self, request: Request) -> int:
        tools = sum(estimate_tokens(f"{t.name}{t.description}{t.parameters}") for t in request.tools)
        return sum(self._messages(request.messages)) + tools


async def counted(
    budget: Budget, task: str, items: AsyncGenerator[ModelItem, None]
) -> AsyncGenerator[ModelItem, None]:
    """The items. A provider's refusal settles the reservation, a reply did so; whatever else ends it loses it."""
    settled = False
    try:
        async with aclosing(items):
            async for item in items:
                settled = settled or isinstance(item, Reply)
                yield item
    except ModelError:
        settled = True
        budget.settle(task)
        raise
    finally:
        if not settled:
            budget.lose(task)
