"""text_view: the answer on stdout, everything else on stderr; a spinner and colours on a terminal only."""

import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from interlock.cli.render.live_calls import ProgressBar, RunningCall, call_mark_and_colour
from interlock.cli.render.output import (
    Paint,
    format_compact_number,
    format_count,
    format_duration,
    notify_terminal,
    redact_secrets,
    result_paint,
    sanitize_for_terminal,
    shorten,
    strip_codes_and_overwritten_text,
    to_one_line,
    write_json,
)
from interlock.cli.render.pending_requests import pending_request_lines
from interlock.cli.render.views import View
from interlock.cli.render.workflow_results import blank_already_shown_text, result_lines
from interlock.engine.client import Decision, Outcome, Pending
from interlock.engine.client.answer_choices import PLAN_REVIEW
from interlock.engine.client.event_lines import (
    agent_end_line,
    call_result_facts,
    call_summary_line,
    custom_event_line,
    event_notice_line,
)
from interlock.services.process.stdout import original_stdout
from interlock.state.errors import InterlockError
from interlock.state.events import (
    SAVING,
    AgentBlocked,
    AgentEnd,
    AgentStart,
    CustomEvent,
    ErrorEvent,
    Event,
    Finished,
    InvalidStream,
    LoopDetected,
    MessageEvent,
    NodeStart,
    NotificationEvent,
    Progress,
    Retry,
    Thought,
    ToolOutput,
    ToolResultEvent,
    ToolStart,
    ToolUse,
)

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner as Drawn


def _parse_batch_id(request_id: str) -> str:
    run, _, place = request_id.rpartition("-")
    return f"{run}-{place.partition('.')[0]}"


Ask = Callable[[str, Sequence[Pending], Paint], list[Decision]]
"""Returns what a person decides on the requests of a run."""


class TextView(View):
    """Lines for a person. On a terminal the answer streams; otherwise it is written whole, at the end."""

    def __init__(
        self,
        title: str = "",
        decided: Sequence[str] = (),
        verbose: bool = False,
        for_people: bool | None = None,
        ask: Ask | None = None,
    ) -> None:
        """`decided`: requests of a resumed run that were decided just before. `ask`: None: nobody can be asked.

        `for_people`: draw a workflow's result, also in a pipe; by default only on a terminal, and JSON elsewhere.
        """
        self._paint = Paint(sys.stderr)
        self._streams_answer = original_stdout().isatty()
        self._for_people = self._streams_answer if for_people is None else for_people
        self._title, self._decided, self._verbose = title, decided, verbose
        self._ask = ask
        self._tools = ToolCallPrinter(self._paint, self._print_line)
        self._text = ""
        """The model's text since its last request."""
        self._printed = False
        """Whether `_text` is on the terminal already."""
        self._thought = ""
        self._spinner = Spinner(sys.stderr) if self._paint.is_terminal else None
        self._bar = ProgressBar()
        self._custom_line = ""
        """What a node of somebody's own graph wrote last."""
        self._lock = threading.Lock()
        self._ended = False
        self._warned: set[str] = set()

    def __call__(self, event: Event, /) -> None:
        with self._lock:
            if not self._ended:
                self._show_event(event)

    def flush(self) -> None:
        with self._lock:
            if not self._ended:
                self._update_spinner()

    def ask_for_decisions(self, outcome: Outcome, requests: Sequence[Pending]) -> list[Decision]:
        if self._ask is None:
            return []
        with self._lock:
            self._end_view()
            self._flush_intermediate_text()
            decisions = self._ask(outcome.run, requests, self._paint)
            self._decided = [decision.approval for decision in decisions]
            self._ended = not decisions
        return decisions

    def show_outcome(self, outcome: Outcome) -> None:
        with self._lock:
            self._end_view()
            self._print_answer(outcome)
            for warning in [w for w in outcome.warnings if w not in self._warned]:
                self._print_line(self._paint(f"warning: {to_one_line(warning)}", "yellow"))
            if outcome.status == "waiting":
                self._print_pending_requests(outcome)
            elif outcome.error:
                kind, message = outcome.error.get("type", "error"), outcome.error.get("message", "")
                self._print_line(self._paint(f"interlock: {to_one_line(message)} ({kind})", "red"))
            elif outcome.exit_code:
                self._print_line(f"interlock: the run stopped: {outcome.status.replace('_', ' ')}")
            way = outcome.resume_command
            if way and outcome.status != "waiting" and way not in str(outcome.error):
                self._print_line(f"Go on with: {way}")

    def show_failure(self, error: InterlockError) -> None:  # noqa: ARG002 - the caller prints the line
        with self._lock:
            self._end_view()

    def _show_event(self, event: Event) -> None:
        if isinstance(event, AgentBlocked) and not event.agent:
            self._flush_intermediate_text()  # a blocked answer isn't the result
        if line := event_notice_line(event, self._verbose):
            self._print_line(line if isinstance(event, Retry | InvalidStream) else self._paint(line, "dim"))
        match event:
            case MessageEvent() | Thought() if event.agent:
                pass  # a sub-agent's text is no answer; its result is the call's
            case AgentStart() | AgentEnd():
                self._tools.print_agent_event(event)
            case MessageEvent(role="assistant"):
                self._collect_and_stream_message(event)
            case Thought():
                self._thought += event.content
            case ToolUse():
                if not event.agent:
                    self._flush_intermediate_text()
                self._tools.record_call(event)
            case ToolStart():
                self._tools.record_call(event)
            case ToolOutput():
                self._tools.print_output(event)
            case ToolResultEvent():
                self._tools.print_result(event)
            case InvalidStream() | LoopDetected() if not event.agent:
                self._text, self._printed = "", False
            case ErrorEvent() if (
                event.message not in self._warned
            ):  # each drive of a run begins with its warnings
                self._warned.add(event.message)
                self._print_line(self._paint(f"{event.severity}: {to_one_line(event.message)}", "yellow"))
            case NotificationEvent():
                notify_terminal(event, sys.stderr)
            case _:
                self._track_progress_event(event)

    def _track_progress_event(self, event: Event) -> None:
        """Handle events that only move the spinner, or are for --verbose."""
        if isinstance(event, Progress | Finished | NodeStart):
            self._bar.update(event)
        if isinstance(event, Progress) and event.what == SAVING and not self._spinner:
            line = "Saving the files before the first change. It takes long once, in a large folder."
            if line not in self._warned:
                self._warned.add(line)
                self._print_line(self._paint(line, "dim"))
        if isinstance(event, CustomEvent):
            self._custom_line = custom_event_line(event)
        elif isinstance(event, Finished):
            if self._verbose and self._thought:
                self._print_line(self._paint(self._thought.strip(), "dim"), keep_newlines=True)
            self._thought = ""
            if self._spinner:
                self._spinner.tokens += event.usage.get("input", 0) + event.usage.get("output", 0)
        elif isinstance(event, NodeStart):
            if self._spinner:
                self._spinner.node = f"{event.workflow} › {event.node}"
            self._custom_line = ""
            if event.node == "continue":
                self._flush_intermediate_text()

    def _collect_and_stream_message(self, event: MessageEvent) -> None:
        if not event.delta:
            if self._text:
                return  # the full text of what streamed in pieces
            self._text = event.content
        else:
            self._text += event.content
        if self._streams_answer:
            self._hide_spinner()
            original_stdout().write(sanitize_for_terminal(event.content))
            original_stdout().flush()
            self._printed = True

    def _flush_intermediate_text(self) -> None:
        """Text before calls isn't the answer: it goes to stderr where stdout isn't a terminal."""
        if self._text.strip():
            if self._printed:
                self._ensure_newline()
            else:
                self._print_line(self._text.strip(), keep_newlines=True)
        self._text, self._printed = "", False

    def _print_answer(self, outcome: Outcome) -> None:
        if outcome.workflow not in ("main", "task"):
            self._print_workflow_result(outcome)
            return
        response = str(outcome.output.get("response") or "")
        if self._printed:
            self._ensure_newline()
            if self._text.strip() == response.strip():
                return  # streamed already
        if response and outcome.status != "waiting":
            shown = sanitize_for_terminal(response) if self._streams_answer else response
            original_stdout().write(shown if shown.endswith("\n") else shown + "\n")
            original_stdout().flush()

    def _print_workflow_result(self, outcome: Outcome) -> None:
        if self._printed:
            self._ensure_newline()
        if outcome.display_output and self._for_people:
            left, paint = (
                blank_already_shown_text(outcome.display_output, self._text if self._printed else ""),
                result_paint(),
            )
            paint.print_lines(result_lines(outcome.workflow, left, paint), keep_newlines=True)
        elif outcome.display_output:
            write_json(outcome.display_output, 2)

    def _ensure_newline(self) -> None:
        if not self._text.endswith("\n"):
            original_stdout().write("\n")
            original_stdout().flush()

    def _print_pending_requests(self, outcome: Outcome) -> None:
        self._print_line("")
        # Questions and plans come up while a batch runs: what was decided of it has been applied by then.
        approvals = (r for r in outcome.pending if r["kind"] == "approval" and r["tool_name"] != PLAN_REVIEW)
        unfinished = {_parse_batch_id(request["id"]) for request in approvals}
        if kept := sum(_parse_batch_id(name) in unfinished for name in self._decided):
            what = "Your decision is" if kept == 1 else f"Your {kept} decisions are"
            self._print_line(f"{what} kept. Calls of one batch run when all of them are decided.")
        for line in pending_request_lines(
            outcome.run, redact_secrets(self._title), outcome.pending, self._paint
        ):
            self._print_line(line)

    def _print_line(self, text: str, keep_newlines: bool = False) -> None:
        self._hide_spinner()
        self._paint.print_line(text, keep_newlines=keep_newlines)
        sys.stderr.flush()

    def _update_spinner(self) -> None:
        mid_line = self._printed and not self._text.endswith("\n")
        if self._spinner and not mid_line:
            self._spinner.detail = self._bar.text or self._tools.running_call_summaries or self._custom_line
            self._spinner.show()

    def _hide_spinner(self) -> None:
        if self._spinner:
            self._spinner.hide()

    def _end_view(self) -> None:
        self._ended = True
        self._hide_spinner()


class ToolCallPrinter:
    def __init__(self, paint: Paint, line: Callable[..., None]) -> None:
        self._paint, self._line = paint, line
        self._calls: dict[tuple[str, str], RunningCall] = {}
        """By agent and call id, which is unique per agent."""

    @property
    def running_call_summaries(self) -> str:
        """Summaries of calls in flight, for the spinner."""
        return ", ".join(call.summary for call in self._calls.values())

    def print_agent_event(self, event: AgentStart | AgentEnd) -> None:
        if isinstance(event, AgentStart):
            self._line(
                self._cut_to_width(f"{self._paint('▸', 'cyan')} {event.agent}: {to_one_line(event.task)}")
            )
        else:
            self._line(f"{self._paint('▪', 'cyan')} {event.agent}: {agent_end_line(event)}")

    def record_call(self, event: ToolUse | ToolStart) -> None:
        """Record a call that was requested or started; its arguments may have been changed in between."""
        self._calls[event.agent, event.tool_id] = RunningCall(call_summary_line(event))

    def print_output(self, event: ToolOutput) -> None:
        call = self._calls.setdefault((event.agent, event.tool_id), RunningCall(to_one_line(event.tool_id)))
        if not call.lines and not call.partial:
            self._line(self._paint("● ", "cyan") + self._cut_to_width(call.summary))
        for line in call.add_output(event.text):
            self._print_output_line(line)

    def print_result(self, event: ToolResultEvent) -> None:
        call = self._calls.pop((event.agent, event.tool_id), None) or RunningCall("")
        for line in call.finish_partial_line():
            self._print_output_line(line)
        if call.hidden_line_count > 0:
            self._line(self._paint(f"  │ … {format_count(call.hidden_line_count, 'line')}", "dim"))
        for line in call.tail:
            self._print_output_line(line)
        mark, style = call_mark_and_colour(event)
        facts = "".join(f" · {fact}" for fact in call_result_facts(event))
        less = min(len(facts), self._paint.width // 3 * 2)  # a long command leaves room for how it ended
        line = self._cut_to_width(self._cut_to_width(call_summary_line(event), less + 2) + facts)
        self._line(f"{self._paint(mark, style)} {line}")

    def _print_output_line(self, line: str) -> None:
        self._line(
            self._paint(f"  │ {self._cut_to_width(strip_codes_and_overwritten_text(line), 4)}", "dim"),
            keep_newlines=True,
        )

    def _cut_to_width(self, text: str, margin: int = 2) -> str:
        """Cut to the terminal's width; not cut where output goes to a file."""
        return shorten(text, self._paint.width - margin) if self._paint.is_terminal else text


class Spinner:
    """One moving line: what runs, for how long, tokens so far; hidden while text streams."""

    def __init__(self, stream: TextIO, node: str = "starting") -> None:
        from rich.console import Console
        from rich.spinner import Spinner

        self._console, self._drawn = Console(file=stream), Spinner("dots")
        self._live: Live | None = None
        self._started = time.monotonic()
        self.node, self.detail, self.tokens = node, "", 0

    def __rich__(self) -> "Drawn":
        from rich.text import Text

        parts = [self.node, format_duration(time.monotonic() - self._started)]
        parts += [f"{format_compact_number(self.tokens)} tokens"] if self.tokens else []
        text = " · ".join([*parts, self.detail] if self.detail else parts)
        line = Text(text, style="dim", no_wrap=True, overflow="ellipsis", end="")
        line.truncate(max(self._console.width - 4, 10), overflow="ellipsis")
        self._drawn.update(text=line)
        return self._drawn

    def show(self) -> None:
        from rich.live import Live

        if self._live is None:
            # Rich's own redirection of stdout and stderr would delay and reflow what we print.
            self._live = Live(
                self,
                console=self._console,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


@contextmanager
def show_spinner(label: str) -> Generator[Callable[[str], None]]:
    """Show a spinner on a terminal's stderr while the block runs; call the result with how far it is."""
    spinner = Spinner(sys.stderr, label) if Paint(sys.stderr).is_terminal else None

    def show(detail: str) -> None:
        if spinner:
            spinner.detail = detail
            spinner.show()

    try:
        yield show
    finally:
        if spinner:
            spinner.hide()
