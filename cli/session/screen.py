"""screen: turns a run's events into lines: finished ones, handed out once, and live ones that still change."""

import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import RenderableType
from rich.text import Text

from interlock.cli.render.output import to_one_line
from interlock.cli.session import blocks
from interlock.cli.session.blocks import DriveProgress
from interlock.cli.session.markdown import MarkdownStream
from interlock.cli.session.markdown_layout import (
    MarkdownLayout,
    fold_line,
    line_to_ansi,
    strip_controls,
    wrap_with_hanging_indent,
)
from interlock.cli.session.session_wording import reword_for_session
from interlock.cli.session.terminal_output import PainterFirstLock
from interlock.cli.session.theme import Theme
from interlock.engine.client import Decision
from interlock.engine.client.answer_choices import Request, plan_under_review
from interlock.engine.client.event_lines import event_notice_line, failure_diff, is_refused, retry_line
from interlock.state.errors import ENDED_WELL
from interlock.state.events import (
    AgentEnd,
    AgentStart,
    Asking,
    ErrorEvent,
    Event,
    Finished,
    Init,
    InvalidStream,
    MessageEvent,
    NodeStart,
    Progress,
    Result,
    Retry,
    Thought,
    ToolOutput,
    ToolResultEvent,
    ToolStart,
    ToolUse,
)
from interlock.state.text import is_diff, sanitize_for_terminal

STYLES = re.compile(r"(\x1b\[[\d;]*m)")
"""SGR sequences (colours, bold) as rich writes them."""
_PORTION = 4096
"""Characters of an answer processed at a time: some 20 ms during which nothing can be painted."""


class Screen:
    """A renderer (`__call__`) whose lines somebody else paints. Thread-safe."""

    def __init__(
        self,
        width: int,
        theme: Theme,
        color: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds; it moves the spinner."""
        self.changed: Callable[[], None] = lambda: None
        """Called when there is something new, on the thread that brought it."""
        self.show_thoughts = False
        """Show them in full."""
        self.typed_above = False
        """The prompt is on the screen already, as it was typed."""
        self._lock = PainterFirstLock()
        self.width = width
        self._clock, self._color, self._theme = clock, color, theme
        self._console = theme.make_string_console(width, color)
        self._out: list[str] = []
        self._kind = ""
        """Kind of the last finished block: blank lines separate kinds."""
        self._answer: MarkdownStream | None = None
        self._text: list[str] = []
        """The current answer, or the last one until the next begins."""
        self._thought: list[str] = []
        self._progress: DriveProgress | None = None
        self._todos: Sequence[blocks.Todo] = ()
        self._asked: dict[tuple[str, str], Sequence[blocks.Todo]] = {}
        """Todo lists of calls still in flight."""
        self._refused_here = False
        """The person refused a call of this turn here: its end needs no other word on it."""
        self._worked_s = 0.0
        """Seconds of this turn so far, without those of waiting for the person."""
        self._waits = False
        """The last drive ended because a person must decide."""
        self._warned: set[str] = set()
        self._decided: dict[tuple[str, str], bool] = {}
        """Sub-agent and id of each call that the person decided on here → whether its success adds nothing to that."""

    @contextmanager
    def _lock_and_notify(self) -> Generator[None]:
        """Hold the lock, then tell whoever paints."""
        with self._lock:
            yield
        self.changed()

    @property
    def theme(self) -> Theme:
        return self._theme

    @theme.setter
    def theme(self, theme: Theme) -> None:
        with self._lock_and_notify():
            self._theme = theme
            self._rebuild_console()

    def resize(self, width: int) -> None:
        """Set the width; finished lines stay as they are."""
        if width == self.width:
            return
        with self._lock_and_notify():
            self.width = max(width, 1)
            self._rebuild_console()

    def __call__(self, event: Event, /) -> None:
        for part in self._split_long_event(event):
            with self._lock.acquire_after_painter():
                self._handle_event(part)
            self.changed()

    def _split_long_event(self, event: Event) -> Iterator[Event]:
        """Split a long text into pieces, so that painting and keys get their turn in between."""
        whole = isinstance(event, Result) or (isinstance(event, MessageEvent) and not event.delta)
        text = self._new_answer_text(event)
        if len(text) <= _PORTION:
            yield event
            return
        if whole:
            with self._lock.acquire_after_painter():
                self._finish_answer()
        for at in range(0, len(text), _PORTION):
            yield MessageEvent(role="assistant", content=text[at : at + _PORTION], delta=True)
        if isinstance(event, Result):
            yield event.model_copy(update={"response": ""})

    def _new_answer_text(self, event: Event) -> str:
        """The text that an event adds to the run's own answer."""
        match event:
            case MessageEvent(role="assistant") if not event.agent and (event.delta or not self._answer):
                return event.content
            case Result() if (
                event.status != "waiting" and event.response.strip() != "".join(self._text).strip()
            ):
                return event.response.strip()
            case _:
                return ""

    def show_prompt(self, prompt: str) -> None:
        if self.typed_above:
            return
        with self._lock_and_notify():
            self._finish_answer()
            self._append_block(blocks.prompt_lines(prompt, self.width), "prompt", is_separated=True)

    def show_note(self, text: str, style: str = "dim") -> None:
        with self._lock_and_notify():
            self._show_text_lines(text, style)

    def show_markdown(self, text: str) -> None:
        """Show a complete text the way answers are shown."""
        with self._lock_and_notify():
            self._finish_answer()
            self._append_block(self._layout_markdown_lines(text), "answer", is_separated=True)
            self._kind = "answered"

    def layout_markdown(self, text: str) -> list[Text]:
        """A complete text the way answers are shown, at this width."""
        with self._lock:
            return self._layout_markdown_lines(text)

    def _layout_markdown_lines(self, text: str) -> list[Text]:
        stream = MarkdownStream(self._make_markdown_layout())
        return [*stream.feed(sanitize_for_terminal(text)), *stream.finish()]

    def show_decided(self, requests: Sequence[Request], decisions: Sequence[Decision], line: str) -> None:
        """Show in one line how requests were decided, and an approved plan; their calls' results add nothing to it."""
        with self._lock_and_notify():
            for request in requests:
                says_all = bool(is_diff(request["preview"]) or plan_under_review(request))
                call = (str(request.get("agent") or ""), str(request["call"]))
                self._decided[call] = says_all or request["kind"] == "question"
            self._refused_here = self._refused_here or line.startswith("–")
            self._finish_answer()
            if (plan := plan_under_review(requests[0])) and decisions[0].choice not in ("reject", "cancel"):
                self._append_block(self._layout_markdown_lines(plan), "answer", is_separated=True)
            self._show_text_lines(line, "" if line.startswith("✓") else "dim")

    def show_renderable(self, renderable: RenderableType) -> None:
        """Show a rich table, diff or Markdown at this width; a text's lines are wrapped with a hanging indent."""
        with self._lock_and_notify():
            self._finish_answer()
            if isinstance(renderable, Text):
                lines = renderable.split("\n", allow_blank=True)
                self._append_block(
                    (part for line in lines for part in wrap_with_hanging_indent(line, self.width)),
                    "shown",
                    is_separated=True,
                )
            else:
                with self._console.capture() as capture:
                    self._console.print(renderable)
                parts = STYLES.split(capture.get())
                parts[::2] = map(sanitize_for_terminal, parts[::2])
                self._out.append("\n" * bool(self._kind) + "".join(parts))
                self._kind = "shown"

    def show_lines(self, lines: Iterable[Text]) -> None:
        """Show lines that fit the width, right below what was shown last."""
        with self._lock_and_notify():
            self._append_block(lines, "shown")

    def render_to_ansi(self, lines: Iterable[Text]) -> str:
        with self._lock:
            return self._to_ansi(map(strip_controls, lines))

    def take_finished_output(self) -> str:
        """Whole lines to print above now; each is handed out once."""
        with self._lock:
            out, self._out = self._out, []
        return "".join(out)

    @property
    def running_call_text(self) -> str:
        """The call that runs, and for how long; empty: none."""
        with self._lock:
            return self._progress.newest_call_text(self._clock()) if self._progress else ""

    def end_drive(self) -> None:
        """End the drive: live lines become finished. Steps stay if it only waits for a person."""
        with self._lock_and_notify():
            self._finish_answer()
            if not self._waits:
                self._finish_todos()
            self._progress = None

    def live_text(self, height: int) -> str:
        """At most `height` lines, none wider than the screen, without a final line end."""
        if height <= 0:
            return ""
        with self._lock:
            now = self._clock()
            lines = [
                part
                for line in self._live_lines(height, now)
                for part in fold_line(strip_controls(line), self.width)
            ]
            if self._progress:
                if height > len(lines) + 1:
                    lines.append(Text(""))
                lines.append(self._progress.spinner_line(self.width, now))
            shown = self._to_ansi(lines[-height:])
        return shown.removesuffix("\n")

    def _live_lines(self, height: int, now: float) -> list[Text]:
        lines: list[Text] = []
        if self._answer and (tail := self._answer.render_unfinished()):
            lines += [Text("")] * (self._kind not in ("", "answer")) + tail
        if not self._progress:
            return lines
        if working := [*self._progress.live_lines(self.width, height, now)]:
            lines += [Text("")] * (bool(lines) or self._kind not in ("", "line")) + working
        if self._todos:
            panel = blocks.todo_lines(self._todos, max(4, height // 2))
            lines += [Text(""), *(blocks.clip_to_width(line, self.width) for line in panel)]
        if self._progress.bar.text:
            lines.append(blocks.clip_to_width(Text(self._progress.bar.text), self.width))
        return lines

    def _handle_event(self, event: Event) -> None:
        if isinstance(event, Retry) and self._progress:
            self._progress.doing = retry_line(event)  # each retry rewrites this line
        elif line := event_notice_line(event, verbose=False):
            self._show_text_lines(line, "warn" if isinstance(event, Retry | InvalidStream) else "dim")
        match event:
            case Init():
                self._progress = DriveProgress(self._clock())
                self._text, self._waits = [], False
            case Result():
                self._show_result_and_end_drive(event)
            case ErrorEvent() if event.message not in self._warned:
                self._warned.add(event.message)
                text = f"{event.severity}: {to_one_line(reword_for_session(event.message))}"
                self._show_text_lines(text, "warn" if event.severity == "warning" else "bad")
            case MessageEvent(role="user"):
                self.show_prompt(event.content)
            case MessageEvent() if not event.agent:
                self._feed_answer(event)
            case Thought() if not event.agent:
                self._collect_thought(event)
            case ToolUse() | ToolStart() | ToolOutput() | ToolResultEvent():
                self._handle_call_event(event)
            case AgentStart():
                self._ensure_progress().record_agent_start(event, self._clock())
            case AgentEnd():
                self._append_block(
                    [blocks.clip_to_width(self._ensure_progress().end_agent_and_describe(event), self.width)],
                    "line",
                )
            case Asking() | Finished() | Progress() | NodeStart() if self._progress:
                if isinstance(event, Finished) and not event.agent:
                    self._finish_answer()
                    self._progress.doing = ""
                self._progress.update_spinner(event)
            case _:
                pass

    def _ensure_progress(self) -> DriveProgress:
        self._progress = self._progress or DriveProgress(self._clock())
        return self._progress

    def _feed_answer(self, event: MessageEvent) -> None:
        if not event.delta and self._answer:
            return  # the full text of what streamed in pieces
        self._finish_thought()
        if self._answer is None:
            if not event.content.strip():
                return
            self._answer = MarkdownStream(self._make_markdown_layout())
            self._text = []
        self._text.append(event.content)
        self._set_activity("answering")
        self._append_block(self._answer.feed(sanitize_for_terminal(event.content)), "answer")

    def _collect_thought(self, event: Thought) -> None:
        if not self._answer:
            self._thought.append(event.content)
            if about := blocks.thought_headline("".join(self._thought)[:400]):
                self._set_activity(about)

    def _finish_thought(self) -> None:
        thought, self._thought = "".join(self._thought), []
        if not thought.strip():
            return
        self._set_activity("")
        if self.show_thoughts:
            stream = MarkdownStream(MarkdownLayout(self._console, self.width - 2, ""))
            lines = [*stream.feed(sanitize_for_terminal(thought.strip())), *stream.finish()]
            self._append_block(
                (Text.assemble("  ", line, style="thought") for line in lines), "thought", is_separated=True
            )
        elif about := blocks.thought_headline(thought):
            self._append_block([blocks.clip_to_width(Text(f"∴ {about}", "thought"), self.width)], "line")

    def _finish_answer(self) -> None:
        self._finish_thought()
        if self._answer:
            answer, self._answer = self._answer, None
            self._append_block(answer.finish(), "answer")
            self._kind = "answered"

    def _finish_todos(self) -> None:
        if self._todos:
            self._append_block(
                blocks.todo_lines(self._todos, len(self._todos) + 1), "todos", is_separated=True
            )
            self._todos = ()

    def _handle_call_event(self, event: ToolUse | ToolStart | ToolOutput | ToolResultEvent) -> None:
        if isinstance(event, ToolResultEvent):
            self._show_call_result(event)
            return
        if isinstance(event, ToolUse | ToolStart) and not event.agent:
            self._finish_answer()
            self._set_activity("")
        self._ensure_progress().record_call_event(event, self._clock())
        if isinstance(event, ToolUse) and (todos := blocks.todos_in_call(event)) is not None:
            self._asked[event.agent, event.tool_id] = todos

    def _show_call_result(self, event: ToolResultEvent) -> None:
        printed = self._progress.end_call(event) if self._progress else None
        todos = self._asked.pop((event.agent, event.tool_id), None)
        well = event.status == "success" and not event.exit
        if todos is not None and well:
            self._replace_todos(event, todos)
            return
        if event.agent and well and not event.diff and not (printed and printed.lines):
            return  # a sub-agent's exploring belongs to its own line
        says_all = self._decided.pop((event.agent, event.tool_id), None)
        if says_all is not None and (is_refused(event) or (well and says_all)):
            return  # the decision's own line says it
        self._append_block(blocks.call_result_lines(event, printed, self.width), "line")
        if diff := event.diff or failure_diff(event):
            self._append_block(blocks.diff_lines(diff, self.width), "line")

    def _replace_todos(self, event: ToolResultEvent, todos: Sequence[blocks.Todo]) -> None:
        if event.agent:
            return
        self._todos = todos
        if all(todo.get("status") in ("completed", "cancelled") for todo in todos):
            self._finish_todos()

    def _show_result_and_end_drive(self, event: Result) -> None:
        unsaid = self._new_answer_text(event)
        self._finish_answer()
        self._waits = event.status == "waiting"
        if unsaid:
            self.show_markdown(unsaid)
        tokens = self._progress.tokens if self._progress else 0
        is_told = self._refused_here and (event.error or {}).get("type") == "refused"
        ending = () if is_told else blocks.failure_or_cancellation_lines(event, tokens)
        self._append_block(
            (part for line in ending for part in wrap_with_hanging_indent(line, self.width)), "line"
        )
        self._worked_s += int(event.stats.get("elapsed_ms") or 0) / 1000
        if not self._waits:
            if is_told or event.status in ENDED_WELL:
                self._append_block(blocks.duration_lines(self._worked_s), "took", is_separated=True)
            self._refused_here, self._worked_s = False, 0.0
        for warning in event.warnings:
            if warning not in self._warned:
                self._show_text_lines(f"warning: {to_one_line(warning)}", "warn")
        self.end_drive()

    def _set_activity(self, activity: str) -> None:
        if self._progress:
            self._progress.doing = activity

    def _make_markdown_layout(self) -> MarkdownLayout:
        return MarkdownLayout(self._console, self.width, self._theme.code if self._color else "")

    def _rebuild_console(self) -> None:
        self._console = self._theme.make_string_console(self.width, self._color)
        if self._answer:
            self._answer.page = self._make_markdown_layout()

    def _show_text_lines(self, text: str, style: str) -> None:
        self._finish_answer()
        lines = (Text(line, style) for line in sanitize_for_terminal(text).split("\n"))
        self._append_block(
            (part for line in lines for part in wrap_with_hanging_indent(line, self.width)), "line"
        )

    def _append_block(self, lines: Iterable[Text], kind: str, is_separated: bool = False) -> None:
        made = [strip_controls(line) for line in lines]
        if not made:
            return
        if self._kind and (self._kind != kind or is_separated):
            made.insert(0, Text(""))
        self._kind = kind
        self._out.append(self._to_ansi(made))

    def _to_ansi(self, lines: Iterable[Text]) -> str:
        return "".join(part for line in lines for part in line_to_ansi(line, self._console))
