"""_changes: what hooks may change of a request and of an answer; what can't be used of it is a warning."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from langgraph.runtime import Runtime
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from interlock.nodes._hooked import warn
from interlock.nodes.turn._shapes import shown_message
from interlock.state.deps import Deps
from interlock.state.hooks import HookEvent, HookOutcome
from interlock.state.messages import Message
from interlock.state.text import clean, is_visible

_OURS: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "user": "user",
    "model": "assistant",
    "assistant": "assistant",
}


class BadChangeError(ValueError):
    """What a hook asks for can't be done; the text names the place."""


class _Lenient(BaseModel):
    """A hook may say more than we read, as gemini-cli's do."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Config(_Lenient):
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)


class RequestChange(_Lenient):
    """`llm_request` of a BeforeModel hook: what isn't there stays."""

    model: str | None = Field(None, min_length=1)
    messages: list[dict[str, JsonValue]] | None = None
    config: _Config = Field(default_factory=lambda: _Config(temperature=None))


class ToolChoice(_Lenient):
    """`toolConfig` of a BeforeToolSelection hook."""

    mode: Literal["AUTO", "ANY", "NONE"] = "AUTO"
    allowedFunctionNames: list[str] | None = None  # noqa: N815 - gemini-cli's name
    """None, or empty without NONE: all."""


class _Content(_Lenient):
    parts: list[str | dict[str, JsonValue]]


class _Candidate(_Lenient):
    content: _Content


class _Answer(_Lenient):
    text: str | None = None
    candidates: list[_Candidate] = Field(default_factory=list[_Candidate])


_Shown = Sequence[tuple[dict[str, JsonValue], Message]]
"""Each message as the hook was shown it."""
_BOUND = ("role", "tool_calls", "tool_call_id", "name")
"""What a message with calls or a result is known by."""
M = TypeVar("M", bound=_Lenient)


def read(kind: type[M], output: Mapping[str, JsonValue], field: str) -> M | None:
    """A field of a hook's output; None: it isn't there. Raises `BadChangeError`."""
    if output.get(field) is None:
        return None
    try:
        return kind.model_validate(output[field])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in (field, *first["loc"]))
        raise BadChangeError(f"{place}: {first['msg']}") from error


def replacement(event: HookEvent, outcome: HookOutcome, runtime: Runtime[Deps]) -> str:
    """The text of `llm_response`; empty: there is none that can be used, of which people are told."""
    try:
        answer = read(_Answer, outcome.output, "llm_response")
        if answer is None:
            return ""
        text = answer.text or ""
        if answer.candidates:
            parts = answer.candidates[0].content.parts
            text = "".join(p if isinstance(p, str) else str(p.get("text", "")) for p in parts)
        if not is_visible(text):
            raise BadChangeError("llm_response: expected a text in `text` or in the first of `candidates`")
        return clean(text)
    except BadChangeError as problem:
        warn(event, outcome, str(problem), runtime)
        return ""


def changed_messages(given: Sequence[Mapping[str, Any]], sent: Sequence[Message]) -> list[Message]:
    """The messages as a hook wants them sent. Raises `BadChangeError`.

    What it left as it was stays the very record. Texts may change, and messages of text come and go; calls and their
    results keep what belongs to them (arguments, signatures, ids), and go only together.
    """
    shown = [(shown_message(m), m) for m in sent]
    messages = [_message(i, item, shown) for i, item in enumerate(given)]
    _check_order(messages)
    return messages


def _message(index: int, item: Mapping[str, Any], shown: _Shown) -> Message:
    if index < len(shown) and shown[index][0] == item:
        return shown[index][1]
    if found := next((message for as_shown, message in shown if as_shown == item), None):
        return found
    text = item.get("content")
    if not isinstance(text, str):
        raise BadChangeError(
            f"llm_request.messages.{index}.content: expected a text, or the parts as they were"
        )
    if item.get("role") == "tool" or item.get("tool_calls"):
        return _original(index, item, shown).model_copy(update={"content": clean(text)})
    try:
        role = _OURS[str(item.get("role"))]
    except KeyError:
        expected = ", ".join([*_OURS, "tool"])
        raise BadChangeError(
            f"llm_request.messages.{index}.role: {item.get('role')!r}, expected one of {expected}"
        ) from None
    if role == "user":
        return Message(role="user", origin="hook", content=clean(text))
    return Message(role=role, content=clean(text))


def _original(index: int, item: Mapping[str, Any], shown: _Shown) -> Message:
    """The message whose calls, or whose result, this is."""
    for as_shown, message in shown:
        if all(as_shown.get(key) == item.get(key) for key in _BOUND):
            return message
    raise BadChangeError(
        f"llm_request.messages.{index}: calls and results can't be made up or changed, only their texts"
    )


def _check_order(messages: Sequence[Message]) -> None:
    """Every call is answered right after it, once; the system message, if any, comes first."""
    open_ids: list[str] = []
    for index, message in enumerate(messages):
        if message.role == "system" and index:
            raise BadChangeError(f"llm_request.messages.{index}.role: a system message can only be the first")
        if message.role == "tool":
            if message.tool_call_id not in open_ids:
                raise BadChangeError(f"llm_request.messages.{index}: a result without its call")
            open_ids.remove(message.tool_call_id)
        elif open_ids:
            raise BadChangeError(
                f"llm_request.messages.{index}: calls without a result before it: {open_ids!r}"
            )
        open_ids += [call.id for call in message.tool_calls]
    if open_ids:
        raise BadChangeError(f"llm_request.messages: calls without a result: {open_ids!r}")
    if not any(m.role != "system" and (is_visible(m.text) or m.role == "tool") for m in messages):
        raise BadChangeError("llm_request.messages: nothing is left to send")
