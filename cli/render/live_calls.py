"""live_calls: marks of calls, their running output, and bars, shared by sessions and stderr."""

from collections import deque
from dataclasses import dataclass, field

from interlock.engine.client.event_lines import is_refused
from interlock.state.events import Finished, NodeStart, Progress, ToolResultEvent

_HEAD, _TAIL = 20, 5
"""Lines of live output shown as they come, and shown at the end if there were more."""
_PARTIAL = 10_000
"""Characters kept of an unfinished line, which can grow without limit; a terminal would show its end."""
_MARKS = {"success": ("✓", "green"), "error": ("✗", "red"), "cancelled": ("–", "yellow")}


def call_mark_and_colour(event: ToolResultEvent) -> tuple[str, str]:
    return _MARKS["cancelled" if is_refused(event) else "error" if event.exit else event.status]


@dataclass
class RunningCall:
    """A call's output so far: its first and last lines, and how many there are."""

    summary: str
    kept_first: int = _HEAD
    kept_last: int = _TAIL
    lines: int = 0
    partial: str = ""
    head: list[str] = field(default_factory=list[str])
    tail: deque[str] = field(default_factory=deque[str])
    """The last lines of those after the first."""

    def add_output(self, text: str) -> list[str]:
        """Add a piece of output; returns new lines that belong to the first ones."""
        *lines, self.partial = (self.partial + text).split("\n")
        self.partial = self.partial[-_PARTIAL:]
        return self._keep_head_and_tail(lines)

    def finish_partial_line(self) -> list[str]:
        """Count an unterminated last line; returns it if it belongs to the first ones."""
        line, self.partial = self.partial, ""
        return self._keep_head_and_tail([line] if line.strip() else [])

    @property
    def hidden_line_count(self) -> int:
        """Lines between the first and the last ones."""
        return self.lines - len(self.head) - len(self.tail)

    def _keep_head_and_tail(self, lines: list[str]) -> list[str]:
        self.lines += len(lines)
        shown = lines[: self.kept_first - len(self.head)]
        self.head += shown
        self.tail += lines[len(shown) :][-self.kept_last :]
        while len(self.tail) > self.kept_last:
            self.tail.popleft()
        return shown


class ProgressBar:
    """How far work is that goes through many nodes of one workflow."""

    def __init__(self) -> None:
        self.text = ""
        """Empty: nothing is under way whose total is known."""
        self._workflow = self._of = ""

    def update(self, event: Progress | Finished | NodeStart) -> None:
        if isinstance(event, Progress):
            under_way = event.done < event.total or not event.total
            self.text, self._of = format_progress(event) if under_way else "", self._workflow
        elif isinstance(event, NodeStart):
            self._workflow = event.workflow
        if isinstance(event, Finished) or self._workflow != self._of:
            self.text = ""


def format_progress(event: Progress) -> str:
    """`━━━━────  indexing 1,200 of 10,000 files`; while the total isn't known, only what is done."""
    if not event.total:
        return event.what.rstrip(":")
    filled = 20 * event.done // max(event.total, 1)
    return f"{'━' * filled}{'─' * (20 - filled)} {event.what} {event.done:,} of {event.total:,} {event.unit}"
