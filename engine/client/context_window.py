"""context_window: what fills a conversation's context window, by source."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from interlock.state.context import MEMORY
from interlock.state.messages import Message, TextPart, estimate_message_tokens
from interlock.state.text import estimate_tokens

if TYPE_CHECKING:
    from interlock.engine.client.conversation import Conversation
    from interlock.state.settings import Settings

_SECTIONS = {
    "environment": "workspace",
    "directory": "workspace",
    "memory": "memory files",
    "ide": "editor",
    "files": "files you named",
    "attached": "files you attached",
}
_ORIGINS = {"snapshot": "summary of the earlier conversation", "person": "your prompts", None: "your prompts"}


class ContextWindow(NamedTuple):
    """Estimated tokens."""

    model: str
    size: int
    """0: unknown."""
    sources: list[tuple[str, int]]
    """Largest first."""

    @property
    def used_tokens(self) -> int:
        return sum(tokens for _, tokens in self.sources)


def measure_context_window(conversation: "Conversation") -> ContextWindow:
    """What the next request carries. Raises `UserError` before anything has run."""
    from interlock.services.models.names import configured_context_window, resolve_model

    run, settings = conversation.required_run, conversation.client.settings(conversation.workspace)
    model = conversation.answering or conversation.model
    found = Counter({"tools": conversation.used.tools})
    for message in conversation.client.read_messages(run, conversation.client.unmasked_state(run)):
        for source, tokens in _tokens_by_source(message):
            found[source] += tokens
    sources = [(source, tokens) for source, tokens in found.most_common() if tokens]
    size = conversation.used.window or (
        configured_context_window(settings, resolve_model(settings, model)) if model else 0
    )
    return ContextWindow(model, size, sources)


def known_context_window(settings: "Settings", model: str) -> int:
    """Return a model's window in tokens, as far as it is known without asking a server."""
    from interlock.services.models.facts import ModelFacts
    from interlock.services.models.names import resolve_model

    return ModelFacts(settings, os.environ, ask=False).context_window_tokens(resolve_model(settings, model))


def _tokens_by_source(message: Message) -> Iterator[tuple[str, int]]:
    if message.role == "user" and message.origin == "context" and not isinstance(message.content, str):
        section = ""
        for part in message.content:  # a heading belongs to the section after it
            section = (part.section if isinstance(part, TextPart) else None) or section
        for part in message.content:
            text = part.text if isinstance(part, TextPart) else part.data or ""
            name = (part.section if isinstance(part, TextPart) else None) or section
            yield (
                "memory files" if name.startswith(MEMORY) else _SECTIONS.get(name, "notes"),
                estimate_tokens(text),
            )
    elif message.role == "tool":
        yield f"results of {message.name or 'tools'}", estimate_message_tokens(message)
    else:
        others = {"system": "system prompt", "assistant": "answers and calls"}
        yield (
            others.get(message.role) or _ORIGINS.get(message.origin, "notes"),
            estimate_message_tokens(message),
        )
