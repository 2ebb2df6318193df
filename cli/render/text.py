"""text: the answer on stdout, everything else on stderr; a spinner and colours on a terminal only."""

import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interlock.cli.render.output import Paint, harmless, one_line, redacted, ring, write_json
from interlock.cli.render.pending import screen
from interlock.cli.render.tools import ToolLines
from interlock.engine.options import Decision, Outcome
from interlock.state.errors import InterlockError
from interlock.state.events import (
    AgentBlocked,
    AgentEnd,
    AgentStart,
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
    from interlock.cli.render.spinner import Progress as Spinner
from interlock.state.events import ChatCompressed, HelperFailed, HookRan, ModelInfo, RouteEvent


def _batch(request: str) -> str:
    run, _, place = request.rpartition("-")
    return f"{run}-{place.partition('.')[0]}"


class TextView:
    """Lines for a person. On a terminal the answer streams; else it is written whole, at the end."""

    def __init__(self, title: str = "", decided: Sequence[str] = (), verbose: bool = False) -> None:
        """`decided`: requests that were decided right before, of a run that goes on."""
        self._paint = Paint(sys.stderr)
        self._streams = sys.stdout.isatty()
        self._title, self._decided, self._verbose = title, decided, verbose
        self._tools = ToolLines(self._paint, self._line)
        self._text = ""
        """The model's text since its last request."""
        self._printed = False
        """Whether `_text` is on the terminal already."""
        self._thought = ""
        self._progress: Spinner | None = None
        self._lock = threading.Lock()
        self._ended = False
        self._warned: set[str] = set()
        self._later: set[str] = set()
        """Requests that a person, asked right away, left for later."""
        if self._paint.terminal:
            from interlock.cli.render.spinner import Progress

            self._progress = Progress(sys.stderr)

    def __call__(self, event: Event, /) -> None:
        with self._lock:
            if not self._ended:
                self._show(event)

    def flush(self) -> None:
        with self._lock:
            if not self._ended:
                self._spin()

    def ask(self, outcome: Outcome) -> list[Decision]:
        from interlock.cli.decisions import ask, can_ask

        waiting = [request for request in outcome.pending if request["id"] not in self._later]
        if outcome.status != "waiting" or not waiting or not can_ask():
            return []
        with self._lock:
            self._end()
            self._intermediate()
            decisions = ask(outcome.run, waiting, self._paint)
            self._decided = [decision.approval for decision in decisions]
            self._later |= {request["id"] for request in waiting} - {*self._decided}
            self._ended = not decisions
        return decisions

    def finish(self, outcome: Outcome) -> None:
        with self._lock:
            self._end()
            self._answer(outcome)
            for warning in [w for w in outcome.warnings if w not in self._warned]:
                self._line(self._paint(f"warning: {one_line(warning)}", "yellow"))
            if outcome.status == "waiting":
                self._waiting(outcome)
            elif outcome.error:
                kind, message = outcome.error.get("type", "error"), outcome.error.get("message", "")
                self._line(self._paint(f"interlock: {one_line(message)} ({kind})", "red"))
            elif outcome.exit_code:
                self._line(f"interlock: the run stopped: {outcome.status.replace('_', ' ')}")
            way = outcome.resume_command
            if way and outcome.status != "waiting" and way not in str(outcome.error):
                self._line(f"Go on with: {way}")

    def failed(self, error: InterlockError) -> None:  # noqa: ARG002 - the caller prints the line
        with self._lock:
            self._end()

    def _show(self, event: Event) -> None:
        if isinstance(event, AgentBlocked) and not event.agent:
            self._intermediate()  # the model goes on, or has said what nobody was to take for the answer
        if line := notice(event, self._verbose):
            self._line(line if isinstance(event, Retry | InvalidStream) else self._paint(line, "dim"))
        match event:
            case MessageEvent() | Thought() if event.agent:
                pass  # what a sub-agent says on its way is no answer; its result is the call's
            case AgentStart() | AgentEnd():
                self._tools.agent(event)
            case MessageEvent(role="assistant"):
                self._message(event)
            case Thought():
                self._thought += event.content
            case ToolUse():
                if not event.agent:
                    self._intermediate()
                self._tools.begin(event)
            case ToolStart():
                self._tools.begin(event)
            case ToolOutput():
                self._tools.output(event)
            case ToolResultEvent():
                self._tools.result(event)
            case InvalidStream() | LoopDetected() if not event.agent:
                self._text, self._printed = "", False
            case ErrorEvent() if (
                event.message not in self._warned
            ):  # each drive of a run begins with its warnings
                self._warned.add(event.message)
                self._line(self._paint(f"{event.severity}: {one_line(event.message)}", "yellow"))
            case NotificationEvent():
                ring(event, sys.stderr)
            case _:
                self._note(event)

    def _note(self, event: Event) -> None:
        """What only moves the spinner, or is for --verbose."""
        if isinstance(event, Progress) and self._progress:
            self._progress.detail = bar(event)
        elif isinstance(event, Finished):
            if self._verbose and self._thought:
                self._line(self._paint(self._thought.strip(), "dim"), reading=True)
            self._thought = ""
            if self._progress:
                self._progress.tokens += event.usage.get("input", 0) + event.usage.get("output", 0)
        elif isinstance(event, NodeStart):
            if self._progress:
                self._progress.node = f"{event.workflow} › {event.node}"
                self._progress.detail = ""
            if event.node == "continue":
                self._intermediate()

    def _message(self, event: MessageEvent) -> None:
        if not event.delta:
            if self._text:
                return  # the whole of what came in pieces
            self._text = event.content
        else:
            self._text += event.content
        if self._streams:
            self._hide()
            sys.stdout.write(harmless(event.content))
            sys.stdout.flush()
            self._printed = True

    def _intermediate(self) -> None:
        """The model's words before its calls aren't the answer: they go to stderr where the answer is kept apart."""
        if self._text.strip():
            if self._printed:
                self._break_line()
            else:
                self._line(self._text.strip(), reading=True)
        self._text, self._printed = "", False

    def _answer(self, outcome: Outcome) -> None:
        if outcome.workflow not in ("main", "task"):
            if outcome.output:
                write_json(outcome.output, 2)
            return
        response = str(outcome.output.get("response") or "")
        if self._printed:
            self._break_line()
            if self._text.strip() == response.strip():
                return  # it streamed, whole
        if response and outcome.status != "waiting":
            shown = harmless(response) if self._streams else response
            sys.stdout.write(shown if shown.endswith("\n") else shown + "\n")
            sys.stdout.flush()

    def _break_line(self) -> None:
        if not self._text.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _waiting(self, outcome: Outcome) -> None:
        self._line("")
        unfinished = {_batch(request["id"]) for request in outcome.pending}
        if kept := sum(_batch(name) in unfinished for name in self._decided):
            what = "Your decision is" if kept == 1 else f"Your {kept} decisions are"
            self._line(f"{what} kept. Calls of one batch run when all of them are decided.")
        for line in screen(outcome.run, redacted(self._title), outcome.pending, self._paint):
            self._line(line)

    def _line(self, text: str, reading: bool = False) -> None:
        self._hide()
        self._paint.print(text, reading=reading)
        sys.stderr.flush()

    def _spin(self) -> None:
        mid_line = self._printed and not self._text.endswith("\n")
        if self._progress and not mid_line:
            self._progress.detail = self._tools.running
            self._progress.show()

    def _hide(self) -> None:
        if self._progress:
            self._progress.hide()

    def _end(self) -> None:
        self._ended = True
        self._hide()


def bar(event: Progress, width: int = 20) -> str:
    """`━━━━────  indexing 1,200 of 10,000 files`."""
    filled = width * event.done // max(event.total, 1)
    return (
        f"{'━' * filled}{'─' * (width - filled)} {event.what} {event.done:,} of {event.total:,} {event.unit}"
    )


def notice(event: Event, verbose: bool) -> str:
    """One line; empty: nothing is said of it."""
    match event:
        case Retry():
            reason = one_line(event.reason)
            return f"… asking again in {event.delay_s:.0f} s: {reason} (attempt {event.attempt})"
        case InvalidStream():
            return f"… the answer was incomplete: {one_line(event.reason)}"
        case LoopDetected():
            then = "it is told so, and tries another way" if event.count == 1 else "the run stops"
            return f"… the model goes round in circles: {one_line(event.detail, 300)}; {then}"
        case ChatCompressed():
            return f"… the conversation was compressed: {event.before:,} → {event.after:,} tokens, estimated"
        case RouteEvent() if verbose or event.strategy == "fallback":
            return f"… {event.model} answers, by {event.strategy}: {one_line(event.reason, 300)}"
        case HelperFailed() if verbose:
            return f"… the helper {event.role} gave no answer: {one_line(event.reason, 300)}"
        case AgentBlocked():
            return f"… a hook says no: {one_line(event.reason, 300)}"
        case HookRan() if verbose:
            said = f": {one_line(event.reason, 300)}" if event.reason else ""
            return f"… hook {one_line(event.name, 80)} of {event.event}, {event.decision}{said}"
        case NodeStart() if verbose:
            return f"› {event.workflow}.{event.node}"
        case ModelInfo() if verbose:
            return f"model: {event.model}"
        case _:
            return ""
