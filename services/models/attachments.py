"""attachments: pictures and documents of a conversation that a model's server refused: left out from then on."""

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence

from interlock.state.errors import ModelAuthError, ModelError
from interlock.state.messages import DataPart, Message, TextPart

_NAMED = re.compile(
    r"image|picture|document|pdf|media|mime|attachment|inline.?data|base64|\bfile\b|vision|multimodal", re.I
)
"""Words with which servers refuse what was attached."""
_REFUSALS = (400, 413, 415, 422, None)


def is_attachment_refusal(error: ModelError) -> bool:
    """Return whether a server may have refused an attachment: by its status and its words."""
    about_request = error.status in _REFUSALS and not (error.retryable or error.overflow or error.terminal)
    return about_request and not isinstance(error, ModelAuthError) and names_attachment(str(error))


def names_attachment(text: str) -> bool:
    """Return whether a server's words may be about what was attached."""
    return bool(_NAMED.search(text))


def attachment_digest(part: DataPart) -> str:
    """Return a short name of what is attached."""
    return hashlib.sha256(f"{part.mime_type}\0{part.data or part.path}".encode()).hexdigest()[:16]


def newest_attachment_digests(messages: Sequence[Message], known: Collection[str]) -> list[str]:
    """Return the digests of the newest message that has attachments which aren't `known` to be refused."""
    for message in reversed(messages):
        if found := [
            name for part in _iterate_attachments(message) if (name := attachment_digest(part)) not in known
        ]:
            return found
    return []


def replace_refused_attachments(message: Message, refused: Collection[str]) -> Message:
    """Return the message with a line in place of each attachment that was refused."""
    if not any(attachment_digest(part) in refused for part in _iterate_attachments(message)):
        return message
    parts = tuple(
        TextPart(text=_left_out_line(p)) if isinstance(p, DataPart) and attachment_digest(p) in refused else p
        for p in message.content
        if not isinstance(p, str)
    )
    return message.model_copy(update={"content": parts})


def _iterate_attachments(message: Message) -> Iterator[DataPart]:
    return (part for part in message.content if isinstance(part, DataPart))


def _left_out_line(part: DataPart) -> str:
    return f"[Left out: the model's server refused this {part.type} ({part.mime_type}).]"
