"""tools: a line for each tool call, and the live output of those that run long."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from interlock.cli.render.output import Paint, cut, diff_stat, elapsed, one_line, plain
from interlock.state.events import AgentEnd, AgentStart, ToolOutput, ToolResultEvent, ToolStart, ToolUse

_HEAD, _TAIL = 20, 5
"""Lines of live output that are shown as they come, and at the end when there were more."""
_PARTIAL = 10_000
"""Characters of a line without an end, which can grow for ever; what a terminal would show of it is its end."""
_MARKS = {"success": ("✓", "green"), "error": ("✗", "red"), "cancelled": ("–", "yellow")}


def call_summary(event: ToolUse | ToolStart | ToolResultEvent) -> str:
    """A sub-agent's call says whose it is."""
    summary = event.summary or event.tool_name
    return one_line(f"{event.agent} › {summary}" if event.agent else summary)


def call_mark(event: ToolResultEvent) -> tuple[str, str]:
    """How a call ended: a sign and its colour."""
    return _MARKS["error" if event.exit else event.status]


def call_facts(event: ToolResultEvent) -> Iterator[str]:
    """What is said of a call that is over, besides what it was."""
    yield from filter(None, (diff_stat(event.diff), event.exit or _why(event)))
    if event.duration_ms >= 100:
        yield elapsed(event.duration_ms / 1000)


def _why(event: ToolResultEvent) -> str:
    if event.status == "success":
        return ""
    return one_line((event.error or {}).get("message") or event.output or event.status)


def agent_end(event: AgentEnd) -> str:
    """`goal, 3 turns, 12 s`."""
    return f"{event.reason}, {event.turns} turns, {elapsed(event.duration_s)}"


@dataclass
class RunningCall:
    """What a call has printed so far: its first and its last lines, and how many there are."""

    summary: str
    first: int = _HEAD
    last: int = _TAIL
    lines: int = 0
    partial: str = ""
    head: list[str] = field(default_factory=list[str])
    tail: deque[str] = field(default_factory=deque[str])
    """The last lines of those after the first."""

    def feed(self, text: str) -> list[str]:
        """Takes a piece of output; those of the first lines that are whole now."""
        *lines, self.partial = (self.partial + text).split("\n")
        self.partial = self.partial[-_PARTIAL:]
        return self._take(lines)

    def end(self) -> list[str]:
        """A last line without a line end is one, too."""
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


class ToolLines:
    """Keeps what the running calls have said so far."""

    def __init__(self, paint: Paint, line: Callable[..., None]) -> None:
        self._paint, self._line = paint, line
        self._calls: dict[tuple[str, str], RunningCall] = {}
        """By agent and id, which is an agent's own."""

    @property
    def running(self) -> str:
        """The calls that are under way, for the spinner."""
        return ", ".join(call.summary for call in self._calls.values())

    def agent(self, event: AgentStart | AgentEnd) -> None:
        """A sub-agent begins, or has ended."""
        if isinstance(event, AgentStart):
            self._line(self._cut(f"{self._paint('▸', 'cyan')} {event.agent}: {one_line(event.task)}"))
        else:
            self._line(f"{self._paint('▪', 'cyan')} {event.agent}: {agent_end(event)}")

    def begin(self, event: ToolUse | ToolStart) -> None:
        """A call was asked for, or runs now: somebody may have changed it in between."""
        self._calls[event.agent, event.tool_id] = RunningCall(call_summary(event))

    def output(self, event: ToolOutput) -> None:
        call = self._calls.setdefault((event.agent, event.tool_id), RunningCall(one_line(event.tool_id)))
        if not call.lines and not call.partial:
            self._line(self._paint("● ", "cyan") + self._cut(call.summary))
        for line in call.feed(event.text):
            self._output_line(line)

    def result(self, event: ToolResultEvent) -> None:
        call = self._calls.pop((event.agent, event.tool_id), None) or RunningCall("")
        for line in call.end():
            self._output_line(line)
        if call.left_out > 0:
            self._line(self._paint(f"  │ … {call.left_out} lines", "dim"))
        for line in call.tail:
            self._output_line(line)
        mark, style = call_mark(event)
        text = " · ".join([call_summary(event), *call_facts(event)])
        self._line(self._paint(mark, style) + " " + self._cut(text))

    def _output_line(self, line: str) -> None:
        self._line(self._paint(f"  │ {self._cut(plain(line), 4)}", "dim"), reading=True)

    def _cut(self, text: str, less: int = 2) -> str:
        """To the terminal's width; whole where the output goes to a file."""
        return cut(text, self._paint.width - less) if self._paint.terminal else text
