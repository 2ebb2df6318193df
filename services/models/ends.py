"""ends: how providers say that an answer has ended, and what each end means."""

from collections.abc import Mapping
from typing import Any, Literal, cast

Meaning = Literal["complete", "cut", "paused", "blocked", "overflow", "malformed"]
"""What follows: `complete` and `cut` answers count, `paused` ones are continued, `blocked` ones aren't asked again,
`overflow` shortens the conversation, and `malformed` ones are asked again."""

_MEANINGS: Mapping[str, Meaning] = {
    **dict.fromkeys(
        ("stop", "end_turn", "stop_sequence", "tool_calls", "tool_use", "function_call"), "complete"
    ),
    **dict.fromkeys(("completed", "eos", "eos_token", "end", "complete"), "complete"),
    **dict.fromkeys(
        ("length", "max_tokens", "max_output_tokens", "max_completion_tokens", "model_length"), "cut"
    ),
    "pause_turn": "paused",
    **dict.fromkeys(
        ("refusal", "content_filter", "content_filtered", "guardrail_intervened", "sensitive"), "blocked"
    ),
    **dict.fromkeys(("model_context_window_exceeded", "context_window_exceeded"), "overflow"),
    **dict.fromkeys(("malformed_model_output", "malformed_tool_use", "malformed_function_call"), "malformed"),
    **dict.fromkeys(
        ("error", "network_error", "failed", "cancelled", "insufficient_system_resource"), "malformed"
    ),
}
"""Name of an end, in lower case, → its meaning. From the references of Anthropic (Messages), Amazon (Converse), OpenAI
(chat completions, Responses), OpenRouter, DeepSeek, Mistral, Z.ai and Ollama, as of November 2026."""
_NORMAL: Mapping[Meaning, str] = {"complete": "stop", "cut": "length"}
"""Meanings that have one name in records, whoever gave them."""
_FIELDS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""Where LangChain's clients keep an answer's end."""
BLOCKED = frozenset(name for name, meaning in _MEANINGS.items() if meaning == "blocked")


def end_in(metadata: Mapping[str, Any]) -> str:
    """Return the name of the end that one piece of an answer tells, as the provider spells it; empty: none.

    Pieces are looked at one by one: some servers repeat the end, and LangChain joins what is repeated (`stopstop`).
    """
    for name in _FIELDS:
        if metadata.get(name):
            return str(metadata[name])
    if isinstance(stop := metadata.get("messageStop"), dict):  # Bedrock, streamed
        return str(cast("dict[str, Any]", stop).get("stopReason") or "")
    if (status := metadata.get("status")) == "incomplete":  # OpenAI's Responses
        details = cast("dict[str, Any]", metadata.get("incomplete_details") or {})
        return str(details.get("reason") or "incomplete")
    return "" if status in (None, "in_progress", "queued") else str(status)


def meaning_of(end: str) -> Meaning | None:
    """Return what an end means; None: no provider that is known has it, so the answer counts, with a warning."""
    return _MEANINGS.get(end.lower())


def normal_end(end: str) -> str:
    """Return an end's name as records have it: `stop` or `length` for answers that count, else its own, lower case."""
    meaning = meaning_of(end)
    return _NORMAL.get(meaning, end.lower()) if meaning else end.lower()
