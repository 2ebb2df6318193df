"""media: where a request carries pictures and documents: in a tool's result, in the next user message, or nowhere.

What a model can't take is replaced by a line that says so, to the model and once to the person.
"""

from collections.abc import Sequence

from interlock.services.models.model_table import Abilities
from interlock.state.messages import DataPart, Message, TextPart

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
        if not any(map(_has_data, messages)):
            return messages
        placed: list[Message] = []
        waiting: list[Message] = []
        for message in messages:
            if message.role != "tool":
                placed += waiting
                waiting = []
            if not _has_data(message):
                placed.append(message)
                continue
            own, following = self._place_once(message)
            placed.append(own)
            waiting += [following] if following else []
        return [*placed, *waiting]

    def take_warnings(self) -> list[str]:
        """Return what the person wasn't told yet: kinds that the model takes none of."""
        told, self._unsaid = self._unsaid, []
        return told

    def _place_once(self, message: Message) -> tuple[Message, Message | None]:
        known = self._placed.get(id(message))
        if known is None:
            own, following = self._place_parts(message)
            known = self._placed[id(message)] = (message, own, following)
        return known[1], known[2]

    def _place_parts(self, message: Message) -> tuple[Message, Message | None]:
        """Return the message as it is sent, and a user message with what doesn't fit into a tool's result."""
        stays: list[TextPart | DataPart] = []
        moved: list[DataPart] = []
        for part in message.content:
            if isinstance(part, DataPart) and not self._is_taken(part):
                stays.append(self._replace_part(part))
            elif (
                isinstance(part, DataPart) and message.role == "tool" and not self._can_stand_in_result(part)
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

    def _is_taken(self, part: DataPart) -> bool:
        kind = _media_kind(part)
        if kind == "PDFs" and self._cls in _ONLY_PICTURES:
            return False
        return kind not in self._able.refuses

    def _can_stand_in_result(self, part: DataPart) -> bool:
        return self._structured and (not self._able.is_known or _media_kind(part) in self._able.in_results)

    def _replace_part(self, part: DataPart) -> TextPart:
        kind = _media_kind(part)
        what = _NAMES.get(kind, f"files of type {part.mime_type}")
        if kind not in self._said:
            self._said.add(kind)
            self._unsaid.append(f"Model {self._model!r} takes no {what}: what is attached isn't sent.")
        return TextPart(
            text=f"\n[{part.type} ({part.mime_type}) not sent: this model takes no {what}. Say so if it matters.]"
        )


def _has_data(message: Message) -> bool:
    return not isinstance(message.content, str) and any(isinstance(p, DataPart) for p in message.content)


def _media_kind(part: DataPart) -> str:
    """As profiles of models and the setting `takes` name it; empty: they don't."""
    if part.mime_type.startswith("image/"):
        return "images"
    if part.mime_type.startswith("audio/"):
        return "audio"
    return "PDFs" if part.mime_type == "application/pdf" else ""
