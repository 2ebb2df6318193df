"""sent_messages: a conversation as a model's server takes it: attachments where it takes them, none that it refused.

What a model can't take is replaced by a line that says so, to the model and once to the person. Control characters are
spelled out as on the screen: some servers refuse them, and with them every later request of the conversation."""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from interlock.services.models.model_table import Abilities
from interlock.state.errors import ModelAuthError, ModelError
from interlock.state.messages import DataPart, Message, TextPart, ToolDeclaration
from interlock.state.text import escape_control_characters

_ONLY_PICTURES = (
    *("ChatGroq", "ChatMistralAI", "ChatXAI", "ChatTogether", "ChatFireworks", "ChatDeepSeek", "ChatOllama"),
)
"""Client classes whose protocol has no place for documents."""
_NAMES = {"images": "pictures", "PDFs": "PDF files", "audio": "audio"}


class AttachmentPlacer:
    """Places what a conversation holds besides text, for one model. Results are cached: messages are immutable."""

    def __init__(self, model: str, cls: str, able: Abilities, *, tools: bool) -> None:
        """`cls`: the name of the client's class. `tools`: whether requests declare any."""
        self._model, self._cls, self._able = model, cls, able
        # Bedrock's client makes texts of results where no tools are declared.
        self._structured = cls == "ChatAnthropic" or (cls == "ChatBedrockConverse" and tools)
        self._placed: dict[int, tuple[Message, Message, Message | None]] = {}
        self._unsaid: list[str] = []
        self._said = set[str]()

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages as the model can take them; the same where nothing changes."""
        if not any(map(_list_attachments, messages)):
            return messages
        placed: list[Message] = []
        waiting: list[Message] = []
        for message in messages:
            if message.role != "tool":
                placed += waiting
                waiting = []
            if not _list_attachments(message):
                placed.append(message)
                continue
            own, following = self._adapt_message_cached(message)
            placed.append(own)
            waiting += [following] if following else []
        return [*placed, *waiting]

    def take_warnings(self) -> list[str]:
        """Return what the person wasn't told yet: kinds that the model takes none of."""
        told, self._unsaid = self._unsaid, []
        return told

    def _adapt_message_cached(self, message: Message) -> tuple[Message, Message | None]:
        known = self._placed.get(id(message))
        if known is None:
            own, following = self._move_or_replace_attachments(message)
            known = self._placed[id(message)] = (message, own, following)
        return known[1], known[2]

    def _move_or_replace_attachments(self, message: Message) -> tuple[Message, Message | None]:
        """Return the message as it is sent, and a user message with what doesn't fit into a tool's result."""
        stays: list[TextPart | DataPart] = []
        moved: list[DataPart] = []
        for part in message.content:
            if isinstance(part, DataPart) and not self._is_accepted_part(part):
                stays.append(self._replace_with_notice_and_warn(part))
            elif (
                isinstance(part, DataPart)
                and message.role == "tool"
                and not self._can_be_in_tool_result(part)
            ):
                moved.append(part)
                stays.append(TextPart(text=f"\n[The {part.type} ({part.mime_type}) is in the next message.]"))
            elif not isinstance(part, str):
                stays.append(part)
        own = message.model_copy(update={"content": tuple(stays)})
        if not moved:
            return own, None
        text = TextPart(text=f"This belongs to the result of {message.name or 'the tool'} above:")
        return own, Message(role="user", origin="context", content=(text, *moved))

    def _is_accepted_part(self, part: DataPart) -> bool:
        kind = _media_kind(part)
        if kind == "PDFs" and self._cls in _ONLY_PICTURES:
            return False
        return kind not in self._able.refuses

    def _can_be_in_tool_result(self, part: DataPart) -> bool:
        return self._structured and (not self._able.is_known or _media_kind(part) in self._able.in_results)

    def _replace_with_notice_and_warn(self, part: DataPart) -> TextPart:
        kind = _media_kind(part)
        what = _NAMES.get(kind, f"files of type {part.mime_type}")
        if kind not in self._said:
            self._said.add(kind)
            self._unsaid.append(f"Model {self._model!r} takes no {what}: what is attached isn't sent.")
        return TextPart(
            text=f"\n[{part.type} ({part.mime_type}) not sent: this model takes no {what}. Say so if it matters.]"
        )


def _media_kind(part: DataPart) -> str:
    """As profiles of models and the setting `takes` name it; empty: they don't."""
    if part.mime_type.startswith("image/"):
        return "images"
    if part.mime_type.startswith("audio/"):
        return "audio"
    return "PDFs" if part.mime_type == "application/pdf" else ""


_NAMED = re.compile(
    r"image|picture|document|pdf|media|mime|attachment|inline.?data|base64|\bfile\b|vision|multimodal", re.I
)
"""Words with which servers refuse what was attached."""
_REFUSALS = (400, 413, 415, 422, None)


def is_attachment_refusal(error: ModelError) -> bool:
    """Return whether a server may have refused an attachment: by its status and its words."""
    about_request = error.status in _REFUSALS and not (error.retryable or error.overflow or error.terminal)
    return about_request and not isinstance(error, ModelAuthError) and mentions_attachment(str(error))


def mentions_attachment(text: str) -> bool:
    """Return whether a server's words may be about what was attached."""
    return bool(_NAMED.search(text))


def attachment_digest(part: DataPart) -> str:
    """Return a short name of what is attached."""
    return hashlib.sha256(f"{part.mime_type}\0{part.data or part.path}".encode()).hexdigest()[:16]


def newest_unrefused_digests(messages: Sequence[Message], refused: Collection[str]) -> list[str]:
    """Return the digests of the newest message that has attachments which aren't `refused` to be refused."""
    for message in reversed(messages):
        if found := [
            name for part in _list_attachments(message) if (name := attachment_digest(part)) not in refused
        ]:
            return found
    return []


def replace_refused_attachments(message: Message, refused: Collection[str]) -> Message:
    """Return the message with a line in place of each attachment that was refused."""
    if not any(attachment_digest(part) in refused for part in _list_attachments(message)):
        return message
    parts = tuple(
        TextPart(text=_refused_attachment_notice(p))
        if isinstance(p, DataPart) and attachment_digest(p) in refused
        else p
        for p in message.content
        if not isinstance(p, str)
    )
    return message.model_copy(update={"content": parts})


def _list_attachments(message: Message) -> list[DataPart]:
    content = () if isinstance(message.content, str) else message.content
    return [part for part in content if isinstance(part, DataPart)]


def _refused_attachment_notice(part: DataPart) -> str:
    return f"[Left out: the model's server refused this {part.type} ({part.mime_type}).]"


T = TypeVar("T")


def escape_message_control_characters(message: Message) -> Message:
    """Return the message with control characters spelled out; the same object if there are none."""
    content: Any = message.content
    if isinstance(content, str):
        content = escape_control_characters(content)
    else:
        content = tuple(
            p.model_copy(update={"text": escape_control_characters(p.text)}) if isinstance(p, TextPart) else p
            for p in message.content
            if not isinstance(p, str)
        )
    calls = tuple(
        c.model_copy(update={"args": _escape_control_characters_in_value(c.args)}) for c in message.tool_calls
    )
    thought = escape_control_characters(message.thought) if message.thought else message.thought
    made = {"content": content, "tool_calls": calls, "thought": thought}
    changes = {name: value for name, value in made.items() if value != getattr(message, name)}
    return message.model_copy(update=changes) if changes else message


def escape_tool_control_characters(tools: Sequence[ToolDeclaration]) -> Sequence[ToolDeclaration]:
    """Return the declarations with control characters spelled out: those of MCP servers are others' texts."""
    made = [
        t.model_copy(
            update={
                "description": escape_control_characters(t.description),
                "parameters": _escape_control_characters_in_value(t.parameters),
            }
        )
        for t in tools
    ]
    return made if any(a != b for a, b in zip(made, tools, strict=True)) else tools


def _escape_control_characters_in_value(value: T) -> T:
    made: Any = value
    if isinstance(value, str):
        made = escape_control_characters(value)
    elif isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        made = {
            escape_control_characters(name): _escape_control_characters_in_value(item) for name, item in pairs
        }
    elif isinstance(value, list):
        made = [_escape_control_characters_in_value(item) for item in cast("list[Any]", value)]
    return made
