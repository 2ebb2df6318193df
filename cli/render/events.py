"""events: texts for a run's events, shared by sessions and stderr."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from interlock.cli.render.output import counted, diff_stat, elapsed, one_line
from interlock.state.events import (
    AgentBlocked,
    AgentEnd,
    ChatCompressed,
    Event,
    HandOver,
    HelperFailed,
    HookRan,
    InvalidStream,
    LoopDetected,
    ModelInfo,
    NodeStart,
    Progress,
    Retry,
    RouteEvent,
    ToolResultEvent,
    ToolStart,
    ToolUse,
)
from interlock.state.loop_check import RAN_ON

_HEAD, _TAIL = 20, 5
"""Lines of live output shown as they come, and shown at the end if there were more."""
_PARTIAL = 10_000
"""Characters kept of an unfinished line, which can grow without limit; a terminal would show its end."""
_MARKS = {"success": ("✓", "green"), "error": ("✗", "red"), "cancelled": ("–", "yellow")}


def call_summary(event: ToolUse | ToolStart | ToolResultEvent) -> str:
    """The call's summary, with the sub-agent that made it."""
    summary = event.summary or event.tool_name
    return one_line(f"{event.agent} › {summary}" if event.agent else summary)


def call_mark(event: ToolResultEvent) -> tuple[str, str]:
    return _MARKS["error" if event.exit else event.status]


def call_facts(event: ToolResultEvent) -> Iterator[str]:
    """Facts about a finished call, besides what it was."""
    yield from filter(None, (diff_stat(event.diff), event.exit or _why(event)))
    if event.duration_ms >= 100:
        yield elapsed(event.duration_ms / 1000)


def _why(event: ToolResultEvent) -> str:
    if event.status == "success":
        return ""
    return one_line((event.error or {}).get("message") or event.output or event.status)


def agent_end(event: AgentEnd) -> str:
    """`goal, 3 turns, 12 s`."""
    return f"{event.reason}, {counted(event.turns, 'turn')}, {elapsed(event.duration_s)}"


@dataclass
class RunningCall:
    """A call's output so far: its first and last lines, and how many there are."""

    summary: str
    first: int = _HEAD
    last: int = _TAIL
    lines: int = 0
    partial: str = ""
    head: list[str] = field(default_factory=list[str])
    tail: deque[str] = field(default_factory=deque[str])
    """The last lines of those after the first."""

    def feed(self, text: str) -> list[str]:
        """Add a piece of output; returns new lines that belong to the first ones."""
        *lines, self.partial = (self.partial + text).split("\n")
        self.partial = self.partial[-_PARTIAL:]
        return self._take(lines)

    def end(self) -> list[str]:
        """Count an unterminated last line; returns it if it belongs to the first ones."""
        line, self.partial = self.partial, ""
        return self._take([line] if line.strip() else [])

    @property
    def left_out(self) -> int:
        """Lines between the first and the last ones."""
        return self.lines - len(self.head) - len(self.tail)

    def _take(self, lines: list[str]) -> list[str]:
        self.lines += len(lines)
        shown = lines[: self.first - len(self.head)]
        self.head += shown
        self.tail += lines[len(shown) :][-self.last :]
        while len(self.tail) > self.last:
            self.tail.popleft()
        return shown


def bar(event: Progress, width: int = 20) -> str:
    """`━━━━────  indexing 1,200 of 10,000 files`."""
    filled = width * event.done // max(event.total, 1)
    return (
        f"{'━' * filled}{'─' * (width - filled)} {event.what} {event.done:,} of {event.total:,} {event.unit}"
    )


def notice(event: Event, verbose: bool) -> str:
    """The event's notice in one line; empty: none."""
    match event:
        case Retry():
            reason = one_line(event.reason)
            return f"… asking again in {event.delay_s:.0f} s: {reason} (attempt {event.attempt})"
        case InvalidStream():
            return f"… the answer was incomplete: {one_line(event.reason)}"
        case LoopDetected():
            then = "it is told so, and tries another way" if event.count == 1 else "the run stops"
            what = "" if event.kind in RAN_ON else "the model is going in circles: "
            return f"… {what}{one_line(event.detail, 300)}; {then}"
        case ChatCompressed():
            return f"… the conversation was compressed: {event.before:,} → {event.after:,} tokens, estimated"
        case RouteEvent() if verbose or event.strategy == "fallback":
            return f"… {event.model} answers, by {event.strategy}: {one_line(event.reason, 300)}"
        case HelperFailed() if verbose:
            return f"… the helper {event.role} gave no answer: {one_line(event.reason, 300)}"
        case HandOver():
            return f"▸ run {event.run} carries on from here ({event.workflow})"
        case AgentBlocked():
            return f"… a hook says no: {one_line(event.reason, 300)}"
        case HookRan() if verbose:
            why = f": {one_line(event.reason, 300)}" if event.reason else ""
            return f"… hook {one_line(event.name, 80)} of {event.event}, {event.decision}{why}"
        case NodeStart() if verbose:
            return f"› {event.workflow}.{event.node}"
        case ModelInfo() if verbose:
            return f"model: {event.model}"
        case _:
            return ""
