"""event_lines: what is said of an event, and of how a call ended, wherever it is shown."""

import json
import re
from collections.abc import Iterator

from interlock.state.events import (
    AgentBlocked,
    AgentEnd,
    ChatCompressed,
    CustomEvent,
    Event,
    HandOver,
    HelperFailed,
    HookRan,
    InvalidStream,
    LoopDetected,
    ModelInfo,
    NodeStart,
    Retry,
    RouteEvent,
    ToolResultEvent,
    ToolStart,
    ToolUse,
    Undone,
)
from interlock.state.loop_check import RAN_ON
from interlock.state.text import format_count, format_diff_stat, format_duration, to_one_line

_NEVER_RAN = "Cancelled before it ran"
"""How the model's text on a call begins that a person cancelled before it ran."""


def call_summary_line(event: ToolUse | ToolStart | ToolResultEvent) -> str:
    """The call's summary, with the sub-agent that made it."""
    summary = event.summary or event.tool_name
    return to_one_line(f"{event.agent} › {summary}" if event.agent else summary)


def call_result_facts(event: ToolResultEvent) -> Iterator[str]:
    """Facts about a finished call, besides what it was."""
    yield from filter(None, (format_diff_stat(event.diff), event.exit or _failure_reason(event)))
    if event.duration_ms >= 100:
        yield format_duration(event.duration_ms / 1000)


_ANSWERED = re.compile(r"Model '([^']+)' answered (\d+)")
_BUSY = {"429": "is rate-limited", "503": "is overloaded", "529": "is overloaded"}
"""HTTP status of a provider → what it means for its model."""


def retry_line(event: Retry) -> str:
    """`gemini-2.5-pro is rate-limited; retry 2 in 3 s`."""
    found = _ANSWERED.match(event.reason)
    known = _BUSY.get(found[2]) if found else None
    why = f"{found[1]} {known}" if found and known else to_one_line(event.reason, 120).rstrip(".")
    return f"{why}; retry {max(event.attempt - 1, 1)} in {format_duration(event.delay_s)}"


def is_refused(event: ToolResultEvent) -> bool:
    """Whether a person refused the call, which is no failure."""
    return (event.error or {}).get("type") == "rejected"


def _failure_reason(event: ToolResultEvent) -> str:
    if event.status == "success":
        return ""
    if is_refused(event):
        why = to_one_line((event.error or {}).get("why", ""))
        return f"refused: {why}" if why else "refused"
    if event.status == "cancelled":
        return "cancelled, nothing changed" if event.output.startswith(_NEVER_RAN) else "cancelled"
    text = _failure_text(event)
    if diff := failure_diff(event):
        text = _INTRODUCTION.sub("", text.partition(diff)[0])  # what follows the diff is advice to the model
    return to_one_line(text)


def _failure_text(event: ToolResultEvent) -> str:
    return (event.error or {}).get("message") or event.output or event.status


def failure_diff(event: ToolResultEvent) -> str:
    """Return the diff in the reason why a call failed, such as that of a write over text which the model hadn't seen;
    empty: there is none."""
    found = None if event.status == "success" else _DIFF.search(_failure_text(event))
    return found[0] if found else ""


_INTRODUCTION = re.compile(r"[^.\n]*:\s*$")
"""Of a diff: `What changed since:`."""
_DIFF = re.compile(r"^--- .*\n\+\+\+ .*\n(?:[-+ @\\…].*\n)+", re.MULTILINE)


def custom_event_line(event: CustomEvent) -> str:
    """What a node of somebody's own graph wrote to its stream, in one line."""
    return to_one_line(
        event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False), 300
    )


def agent_end_line(event: AgentEnd) -> str:
    """`goal, 3 turns, 12 s`."""
    return f"{event.reason}, {format_count(event.turns, 'turn')}, {format_duration(event.duration_s)}"


def event_notice_line(event: Event, verbose: bool) -> str:
    """The event's notice in one line; empty: none."""
    match event:
        case Retry():
            return f"… {retry_line(event)}"
        case InvalidStream():
            return f"… the answer was incomplete: {to_one_line(event.reason)}"
        case LoopDetected():
            then = "the model is told to try another way" if event.count == 1 else "the run stops"
            what = "" if event.kind in RAN_ON else "loop detected: "
            return f"… {what}{to_one_line(event.detail, 300)}; {then}"
        case ChatCompressed():
            return f"… the conversation was compressed: {event.before:,} → {event.after:,} tokens, estimated"
        case RouteEvent() if verbose or event.strategy == "fallback":
            return f"… {event.model} answers, chosen by {event.strategy}: {to_one_line(event.reason, 300)}"
        case HelperFailed() if verbose:
            return f"… the helper {event.role} gave no answer: {to_one_line(event.reason, 300)}"
        case Undone():
            return "\n".join(f"↶ {to_one_line(line, 400)}" for line in event.content.splitlines())
        case HandOver():
            return f"▸ run {event.run} carries on from here ({event.workflow})"
        case AgentBlocked():
            begin = "not done yet" if event.by == "check" else "a hook refused"
            return f"… {begin}: {to_one_line(event.reason, 300)}"
        case HookRan() if verbose:
            why = f": {to_one_line(event.reason, 300)}" if event.reason else ""
            return f"… hook {to_one_line(event.name, 80)} of {event.event}, {event.decision}{why}"
        case NodeStart() if verbose:
            return f"› {event.workflow}.{event.node}"
        case CustomEvent() if verbose:
            return f"… {custom_event_line(event)}"
        case ModelInfo() if verbose:
            return f"model: {event.model}"
        case _:
            return ""
