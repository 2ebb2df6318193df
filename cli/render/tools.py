"""tools: a line for each tool call, and the live output of those that run long."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.cli.render.output import Paint, cut, diff_stat, elapsed, one_line, plain
from interlock.state.events import AgentEnd, AgentStart, ToolOutput, ToolResultEvent, ToolStart, ToolUse

_HEAD, _TAIL = 20, 5
"""Lines of live output that are shown as they come, and at the end when there were more."""
_MARKS = {"success": ("✓", "green"), "error": ("✗", "red"), "cancelled": ("–", "yellow")}


def _summary(event: ToolUse | ToolStart | ToolResultEvent) -> str:
    """A sub-agent's call says whose it is."""
    summary = event.summary or event.tool_name
    return one_line(f"{event.agent} › {summary}" if event.agent else summary)


@dataclass
class _Running:
    summary: str
    lines: int = 0
    partial: str = ""
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=_TAIL))


class ToolLines:
    """Keeps what the running calls have said so far."""

    def __init__(self, paint: Paint, line: Callable[..., None]) -> None:
        self._paint, self._line = paint, line
        self._calls: dict[tuple[str, str], _Running] = {}
        """By agent and id, which is an agent's own."""

    @property
    def running(self) -> str:
        """The calls that are under way, for the spinner."""
        return ", ".join(call.summary for call in self._calls.values())

    def agent(self, event: AgentStart | AgentEnd) -> None:
        """A sub-agent begins, or has ended."""
        if isinstance(event, AgentStart):
            self._line(self._cut(f"{self._paint('▸', 'cyan')} {event.agent}: {one_line(event.task)}"))
            return
        facts = f"{event.reason}, {event.turns} turns, {elapsed(event.duration_s)}"
        self._line(f"{self._paint('▪', 'cyan')} {event.agent}: {facts}")

    def begin(self, event: ToolUse | ToolStart) -> None:
        """A call was asked for, or runs now: somebody may have changed it in between."""
        self._calls[event.agent, event.tool_id] = _Running(_summary(event))

    def output(self, event: ToolOutput) -> None:
        call = self._calls.setdefault((event.agent, event.tool_id), _Running(one_line(event.tool_id)))
        if not call.lines and not call.partial:
            self._line(self._paint("● ", "cyan") + self._cut(call.summary))
        *lines, call.partial = (call.partial + event.text).split("\n")
        # A line without an end can grow for ever; what a terminal would show of it is its end.
        call.partial = call.partial[-10_000:]
        for line in lines:
            self._output_line(call, line)

    def result(self, event: ToolResultEvent) -> None:
        call = self._calls.pop((event.agent, event.tool_id), None) or _Running("")
        if call.partial.strip():
            self._output_line(call, call.partial)
        left_out = call.lines - _HEAD - len(call.tail)
        if left_out > 0:
            self._line(self._paint(f"  │ … {left_out} lines", "dim"))
        for line in call.tail:
            self._line(line, reading=True)
        mark, style = _MARKS["error" if event.exit else event.status]
        facts = [diff_stat(event.diff), event.exit or self._why(event)]
        if event.duration_ms >= 100:
            facts.append(elapsed(event.duration_ms / 1000))
        text = " · ".join([_summary(event), *(f for f in facts if f)])
        self._line(self._paint(mark, style) + " " + self._cut(text))

    def _why(self, event: ToolResultEvent) -> str:
        if event.status == "success":
            return ""
        return one_line((event.error or {}).get("message") or event.output or event.status)

    def _output_line(self, call: _Running, line: str) -> None:
        call.lines += 1
        text = self._paint(f"  │ {self._cut(plain(line), 4)}", "dim")
        if call.lines <= _HEAD:
            self._line(text, reading=True)
        else:
            call.tail.append(text)

    def _cut(self, text: str, less: int = 2) -> str:
        """To the terminal's width; whole where the output goes to a file."""
        return cut(text, self._paint.width - less) if self._paint.terminal else text
