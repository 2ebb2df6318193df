"""_sizes: what a conversation costs, estimated, and whether that is a lot."""

from collections.abc import Iterable
from typing import NamedTuple

from typing_extensions import TypedDict

from interlock.state.compress import GROWTH
from interlock.state.deps import Deps
from interlock.state.messages import Message, estimate_message


class Size(NamedTuple):
    """A conversation in a model's window, tokens."""

    tokens: int
    limit: int

    def reaches(self, threshold: float) -> bool:
        """`threshold`: share of the limit."""
        return self.tokens >= threshold * self.limit


def tokens_of(messages: Iterable[Message]) -> int:
    return sum(map(estimate_message, messages))


class SizedIn(TypedDict, total=False):
    """What a conversation's size is taken from."""

    head: str
    model: str
    sticky_model: str
    last_prompt_tokens: int


def size(deps: Deps, state: SizedIn) -> Size:
    """As the provider counted the last request, else estimated; in the window of the model that would answer."""
    tokens = state.get("last_prompt_tokens") or tokens_of(deps.transcript.read(state["head"]))
    return Size(tokens, deps.models.limit(state.get("sticky_model") or deps.models.resolve(state["model"])))


class AttemptIn(TypedDict, total=False):
    """What decides whether a snapshot is tried."""

    tokens: int
    force: bool
    compress_failed_at: int


def is_attempt(state: AttemptIn) -> bool:
    """Not again after a failed one, until the conversation has grown by a tenth; unless it is forced."""
    failed_at = state.get("compress_failed_at") or 0
    return bool(state.get("force")) or not failed_at or state["tokens"] >= failed_at * GROWTH
