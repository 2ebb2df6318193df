"""_sizes: what a conversation costs, estimated."""

from collections.abc import Iterable

from interlock.state.messages import Message, estimate_message


def tokens_of(messages: Iterable[Message]) -> int:
    return sum(map(estimate_message, messages))
