"""memo: a value worked out once for each message, not once for each message and request."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from interlock.services.models.request import Request
from interlock.state.messages import Message

T = TypeVar("T")
_SLACK = 512


class PerMessage(Generic[T]):
    """Remembers by the identity of the record, which is immutable and which the transcript reads only once."""

    def __init__(self, make: Callable[[Message], T]) -> None:
        self._make = make
        self._known: dict[int, tuple[Message, T]] = {}

    def __call__(self, messages: Sequence[Message]) -> list[T]:
        known = self._known
        found: list[T] = []
        for message in messages:
            entry = known.get(id(message))
            if entry is None:
                entry = known[id(message)] = (message, self._make(message))
            found.append(entry[1])
        if len(known) > 2 * len(messages) + _SLACK:
            self._known = {id(m): known[id(m)] for m in messages}
        return found


def _digest(message: Message) -> bytes:
    return hashlib.sha256(message.model_dump_json(exclude_defaults=True).encode()).digest()


class RequestHash:
    """sha256 over everything that decides an answer: model, messages, tools, schema, temperature."""

    def __init__(self) -> None:
        self._digests = PerMessage(_digest)

    def __call__(self, request: Request) -> str:
        total = hashlib.sha256(f"{request.model}\n{request.temperature!r}\n{request.schema!r}\n".encode())
        for tool in request.tools:
            total.update(tool.model_dump_json().encode())
        for digest in self._digests(request.messages):
            total.update(digest)
        return total.hexdigest()
