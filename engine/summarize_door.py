"""summarize_door: from the input of `summarize` to its state, and back."""

from collections.abc import Mapping
from typing import Any, cast

from interlock.engine.outside import Outside, append_history
from interlock.state.messages import Message
from interlock.state.summarize import SummarizeInput, SummarizeOutput, SummarizeStatus
from interlock.state.text import clean


def enter_summarize(given: SummarizeInput, out: Outside) -> dict[str, Any]:
    text = Message(role="tool", name=clean(given.tool), content=clean(given.text))
    return {
        "tool": clean(given.tool),
        "source": out.transcript.append("", [text]),
        "head": append_history(out.transcript, given.history),
        "max_output_tokens": given.max_output_tokens,
    }


def leave_summarize(values: Mapping[str, Any], out: Outside) -> SummarizeOutput:
    return SummarizeOutput(
        text=out.transcript.message(values.get("shortened") or values["source"]).text,
        status=cast(SummarizeStatus, values["summarize_status"]),
        saved_to=values["saved_to"] or None,
    )
