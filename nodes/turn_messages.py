"""turn_messages: the messages of a request: masking older outputs, and changes made by hooks."""

import asyncio
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from langgraph.runtime import Runtime
from pydantic import BaseModel, Field, JsonValue, ValidationError

from interlock.nodes.context import append_unreported_undos, has_editor_context
from interlock.nodes.hooks import warn_about_ignored_hook_output
from interlock.prompts import load_prompt
from interlock.state.compress import KEPT_OUTPUT_TOKENS
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.hooks import HookOutcome
from interlock.state.messages import (
    DataPart,
    IncrementalScan,
    Message,
    ToolCall,
    ToolDeclaration,
    curate_history,
    unanswered_calls,
)
from interlock.state.node import node
from interlock.state.run import HookEvent
from interlock.state.text import estimate_tokens, first_validation_error, has_visible_text, replace_surrogates
from interlock.state.tooling import SHELL
from interlock.state.turn import TurnState

WORTH_TOKENS = 30_000
"""Saving less isn't worth a new chain, which invalidates the provider's cache (gemini-cli: the same)."""
_NEVER = frozenset({"ask_user", "enter_plan_mode", "exit_plan_mode", "write_todos"})
"""What people said and decided is kept, and so is the todo list."""
_PREVIEW_CHARS, _PREVIEW_LINES, _LINE_CHARS = 250, 10, 500
"""Characters at each end; for shell output, lines at each end and characters per line (gemini-cli: 250, 10, none)."""
_TELLING = re.compile(r"(?:Exit Code|Signal|Error|PID|Process Group PGID): .*")
_SPARED = 50
"""Tokens; shorter outputs aren't worth a file."""
REQUEST = (
    *("head", "mode", "sticky_model", "request_head", "request_model", "request_temperature"),
    "request_tools",
)
"""Keys a request is built from."""


class TurnRequest(NamedTuple):
    messages: list[Message]
    model: str
    temperature: float | None
    """None: the run's default."""
    tools: list[ToolDeclaration]
    withheld: list[ToolDeclaration]
    """The run's other tools."""


_ROLES = {"system": "system", "user": "user", "assistant": "model", "tool": "tool"}
"""Ours → a hook's."""
_OURS: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "user": "user",
    "model": "assistant",
    "assistant": "assistant",
}


class BadChangeError(ValueError):
    """A hook's change can't be applied; the text names the place."""


class _Lenient(BaseModel, strict=True, defer_build=True):
    """Ignores unknown keys: hooks may send more than we read, like gemini-cli's."""


class _Config(_Lenient):
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)


class RequestChange(_Lenient):
    """`llm_request` of a BeforeModel hook: absent fields stay unchanged."""

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
"""Each message with the form the hook saw."""
_BOUND = ("role", "tool_calls", "tool_call_id", "name")
"""Keys that identify a message with calls or a result."""
M = TypeVar("M", bound=_Lenient)


@node(
    reads=("head", "ide_given"),
    writes=("head", "last_prompt_tokens"),
    labels=("ide", "plain"),
)
async def mask_tool_outputs(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Starts a chain that continues the old. The size is then estimated, as the provider counted the old chain.

    What a person took back is told here, to the chain that is sent.
    """
    deps = runtime.context
    label = "ide" if has_editor_context(state, deps) else "plain"
    messages = deps.transcript.read(state["head"])
    indices = maskable_output_indices(messages, deps.transcript)
    if not indices or estimate_freed_tokens(messages, indices) < WORTH_TOKENS:
        head = append_unreported_undos(state["head"], deps)
        return {"label": label} if head == state["head"] else {"label": label, "head": head}
    for index in indices:
        message = messages[index]
        path = await asyncio.to_thread(deps.outputs.save_bytes, message.text.encode())
        messages[index] = mask_output(message, str(path))
    head = deps.transcript.append("", messages, continues=state["head"])
    return {"label": label, "head": append_unreported_undos(head, deps), "last_prompt_tokens": 0}


class _OutputAges:
    def __init__(self) -> None:
        self.count, self.unseen = 0, -1
        self.newer: deque[tuple[int, int]] = deque()
        """Index and tokens of each output that isn't known to be older."""
        self.newer_tokens = 0
        self.older: list[int] = []
        """Indices of the older outputs that can go."""

    def add_message(self, message: Message) -> None:
        if message.role == "assistant":
            self.unseen = self.count
        elif message.role == "tool":
            self.newer.append((self.count, size := estimate_tokens(message.text)))
            self.newer_tokens += size
        self.count += 1

    def move_older_outputs(self, messages: Sequence[Message]) -> None:
        """Move what is beyond the newest tokens, and was seen, to the older ones: it stays there."""
        while self.newer_tokens > KEPT_OUTPUT_TOKENS and self.newer and self.newer[0][0] < self.unseen:
            index, size = self.newer.popleft()
            self.newer_tokens -= size
            if _is_worth_masking(messages[index], size):
                self.older.append(index)


_outputs = IncrementalScan(_OutputAges, _OutputAges.add_message)


def maskable_output_indices(messages: Sequence[Message], cache_owner: object = None) -> list[int]:
    """Indices of the outputs beyond the newest 50,000 tokens, oldest first.

    The one crossing the line counts as older. Outputs no model has seen yet never do. `cache_owner`: see
    `IncrementalScan`.
    """
    outputs = _outputs(messages, cache_owner)
    outputs.move_older_outputs(messages)
    return [*outputs.older]


def mask_output(message: Message, path: str) -> Message:
    text = load_prompt("summarize/masked").render(
        characters=f"{len(message.text):,}", path=path, preview=_masked_preview(message)
    )
    return message.model_copy(update={"content": text})


def estimate_freed_tokens(messages: Sequence[Message], indices: Sequence[int]) -> int:
    """Tokens that masking frees; the file's name is counted as a few characters."""
    name = "x" * 100
    return sum(
        estimate_tokens(messages[i].text) - estimate_tokens(mask_output(messages[i], name).text)
        for i in indices
    )


def _is_worth_masking(message: Message, size: int) -> bool:
    """An already masked output is short, so it is never masked twice."""
    if message.name in _NEVER or message.text.startswith("<tool_output_masked>"):
        return False
    return size - estimate_tokens(_masked_preview(message)) > _SPARED


def _masked_preview(message: Message) -> str:
    """Both ends; for shell output, whole lines and those on how the command ended."""
    text = message.text
    if message.name not in SHELL:
        return _keep_both_ends(text, _PREVIEW_CHARS)
    lines = text.splitlines()
    if len(lines) <= 2 * _PREVIEW_LINES:
        return "\n".join(map(_shorten_line, lines))
    middle = lines[_PREVIEW_LINES:-_PREVIEW_LINES]
    kept = [line for line in middle[-_PREVIEW_LINES:] if _TELLING.fullmatch(line)]
    shown = [*lines[:_PREVIEW_LINES], f"[… {len(middle):,} lines …]", *kept, *lines[-_PREVIEW_LINES:]]
    return "\n".join(map(_shorten_line, shown))


def _shorten_line(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else _keep_both_ends(line, _LINE_CHARS // 2)


def _keep_both_ends(text: str, end_chars: int) -> str:
    return text if len(text) <= 2 * end_chars else f"{text[:end_chars]} […] {text[-end_chars:]}"


async def build_turn_request(state: TurnState, deps: Deps) -> TurnRequest:
    """The request from the state. Raises `RunError` if a call is unanswered: no model accepts that."""
    history = deps.transcript.read(state.get("request_head") or state["head"])
    if unanswered := unanswered_calls(history, deps.transcript):
        raise RunError(f"Calls without an answer before a model request: {[c.id for c in unanswered]!r}.")
    await deps.mcp.start_and_wait_for_servers()
    named = state.get("request_tools")
    mode = deps.modes.find_mode(state.get("mode", ""))
    tools: list[ToolDeclaration] = []
    withheld: list[ToolDeclaration] = []
    for tool in deps.toolset.declare_tools():
        offered = (named is None or tool.name in named) and (mode is None or mode.allows_tool(tool.name))
        (tools if offered else withheld).append(tool)
    model = state.get("request_model") or state["sticky_model"]
    temperature = state.get("request_temperature")
    return TurnRequest(curate_history(history, deps.transcript), model, temperature, tools, withheld)


def format_request_for_hooks(request: TurnRequest) -> dict[str, JsonValue]:
    """The request as hooks see it, without bytes of images and files; the temperature only if not the default."""
    shown: dict[str, JsonValue] = {
        "model": request.model,
        "messages": [*map(format_message_for_hooks, request.messages)],
        "tools": [t.name for t in request.tools],
    }
    if request.temperature is not None:
        shown["config"] = {"temperature": request.temperature}
    return shown


def format_message_for_hooks(message: Message) -> dict[str, JsonValue]:
    """`content` is the text, or a list of parts if there is more than text."""
    shown: dict[str, JsonValue] = {
        "role": _ROLES[message.role],
        "content": _format_content_for_hooks(message),
    }
    if message.tool_calls:
        shown["tool_calls"] = [_format_call_for_hooks(c) for c in message.tool_calls]
    if message.role == "tool":
        shown |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return shown


def format_answer_for_hooks(message: Message, finish_reason: str) -> dict[str, JsonValue]:
    content: JsonValue = {"role": "model", "parts": [message.text] if message.text else []}
    candidate: JsonValue = {"content": content, "finishReason": finish_reason.upper()}
    shown: dict[str, JsonValue] = {"text": message.text, "candidates": [candidate]}
    if message.tool_calls:
        shown["tool_calls"] = [_format_call_for_hooks(c) for c in message.tool_calls]
    return shown


def _format_content_for_hooks(message: Message) -> JsonValue:
    if isinstance(message.content, str) or not any(isinstance(p, DataPart) for p in message.content):
        return message.text
    return [
        {"type": part.type, "mime_type": part.mime_type}
        if isinstance(part, DataPart)
        else {"type": "text", "text": part.text}
        for part in message.content
    ]


def _format_call_for_hooks(call: ToolCall) -> JsonValue:
    return {"id": call.id, "name": call.name, "args": call.args}


def read_hook_field(field_type: type[M], output: Mapping[str, JsonValue], field: str) -> M | None:
    """A field of a hook's output; None: absent. Raises `BadChangeError`."""
    if output.get(field) is None:
        return None
    try:
        return field_type.model_validate(output[field])
    except ValidationError as error:
        raise BadChangeError(": ".join(first_validation_error(error, field))) from error


def read_hook_answer_text(event: HookEvent, outcome: HookOutcome, runtime: Runtime[Deps]) -> str:
    """The text of `llm_response`; empty if none is usable, which is reported to people."""
    try:
        answer = read_hook_field(_Answer, outcome.output, "llm_response")
        if answer is None:
            return ""
        text = answer.text or ""
        if answer.candidates:
            parts = answer.candidates[0].content.parts
            text = "".join(p if isinstance(p, str) else str(p.get("text", "")) for p in parts)
        if not has_visible_text(text):
            raise BadChangeError("llm_response: expected a string in `text` or in the first of `candidates`")
        return replace_surrogates(text)
    except BadChangeError as problem:
        warn_about_ignored_hook_output(event, outcome, str(problem), runtime)
        return ""


def apply_hook_message_changes(
    hook_items: Sequence[Mapping[str, Any]], sent_messages: Sequence[Message]
) -> list[Message]:
    """The messages as changed by a hook. Raises `BadChangeError`.

    Unchanged messages keep their record. Texts may change, and messages of text may be added or removed; calls and
    their results keep what belongs to them (arguments, signatures, ids), and can only be removed together.
    """
    shown = [(format_message_for_hooks(m), m) for m in sent_messages]
    messages = [_message_from_hook_item(i, item, shown) for i, item in enumerate(hook_items)]
    _check_message_order(messages)
    return messages


def _message_from_hook_item(index: int, item: Mapping[str, Any], shown: _Shown) -> Message:
    if index < len(shown) and shown[index][0] == item:
        return shown[index][1]
    if found := next((message for as_shown, message in shown if as_shown == item), None):
        return found
    text = item.get("content")
    if not isinstance(text, str):
        raise BadChangeError(
            f"llm_request.messages.{index}.content: expected a string, or the parts unchanged"
        )
    if item.get("role") == "tool" or item.get("tool_calls"):
        return _require_original_message(index, item, shown).model_copy(
            update={"content": replace_surrogates(text)}
        )
    try:
        role = _OURS[str(item.get("role"))]
    except KeyError:
        expected = ", ".join([*_OURS, "tool"])
        raise BadChangeError(
            f"llm_request.messages.{index}.role: {item.get('role')!r}, expected one of {expected}"
        ) from None
    if role == "user":
        return Message(role="user", origin="hook", content=replace_surrogates(text))
    return Message(role=role, content=replace_surrogates(text))


def _require_original_message(index: int, item: Mapping[str, Any], shown: _Shown) -> Message:
    """The message this call or result belongs to."""
    for as_shown, message in shown:
        if all(as_shown.get(key) == item.get(key) for key in _BOUND):
            return message
    raise BadChangeError(
        f"llm_request.messages.{index}: calls and results can't be added or changed, only their text"
    )


def _check_message_order(messages: Sequence[Message]) -> None:
    """Every call is answered once, right after it; the system message, if any, comes first."""
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
    if not any(m.role != "system" and (has_visible_text(m.text) or m.role == "tool") for m in messages):
        raise BadChangeError("llm_request.messages: nothing is left to send")
