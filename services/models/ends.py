"""ends: how providers say that an answer has ended, and what becomes of the answer."""

from collections.abc import Mapping
from typing import Any, cast

from interlock.state.errors import ModelError
from interlock.state.messages import ENDS

_FIELDS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""Where LangChain's clients keep an answer's end."""
_SHOWN = 100
_NORMAL = {"complete": "stop", "length": "length"}
"""Ends that have one name in records, whoever gave them."""


def finish_reason_in(metadata: Mapping[str, Any]) -> str:
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
    return "" if status in (None, "in_progress") else str(status)


def interpret_finish_reason(who: str, end: str) -> tuple[str | None, str | None, str]:
    """Return an end's name as records have it, the problem that it means, and a warning if it isn't known.

    Raises `ModelError` if the conversation fills the model's window.
    """
    reason = end.lower()
    kind = ENDS.get(reason)
    if not end:
        return None, None, ""
    if kind is None:
        return (
            reason,
            None,
            f"{who} ended the answer with {end[:_SHOWN]!r}, which isn't known. The answer counts.",
        )
    if kind == "overflow":
        raise ModelError(f"{who}: the conversation fills the model's window ({end}).", overflow=True)
    problem = f"{who} stopped the answer: {end}." if kind in ("blocked", "retry") else None
    return _NORMAL.get(kind, reason), problem, ""
