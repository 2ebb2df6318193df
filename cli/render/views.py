"""views: what shows a run on a command line, and output for programs: one JSON object, or one event per line
(`docs/internals.md#output-for-programs`)."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from interlock.cli.render.output import write_json
from interlock.engine.client import Decision, Outcome, Pending
from interlock.services.process.stdout import original_stdout
from interlock.state.errors import InterlockError
from interlock.state.text import to_visible_json

if TYPE_CHECKING:
    from interlock.state.events import Event

_CONVERSATIONS = ("main", "plan", "task")
"""Workflows whose result is `{session_id, response, stats}`; the others' is their Output object."""
_OPTIONAL_FIELDS = {
    "tool_use": ("summary",),
    "tool_start": ("summary", "parameters"),
    "tool_result": ("tool_name", "duration_ms", "diff", "summary", "exit"),
    "init": ("workflow",),
}
"""Fields beyond gemini-cli's; left out when empty."""


def utc_timestamp() -> str:
    """UTC with milliseconds, as JavaScript's `toISOString` writes it."""
    seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    return f"{_format_utc_seconds(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=1)
def _format_utc_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class View(Protocol):
    """A command-line renderer: called with events on its own thread, then once with the outcome."""

    def __call__(self, event: "Event", /) -> None:
        """Show the event, or keep it for the end."""

    def flush(self) -> None:
        """Show the events so far."""

    def ask_for_decisions(self, outcome: Outcome, requests: Sequence[Pending]) -> list[Decision]:  # noqa: ARG002 - for views that can ask
        """A person's decisions on pending requests, made now; empty where nobody can be asked. Events may follow."""
        return []

    def show_outcome(self, outcome: Outcome) -> None:
        """Show how the run ended, or what it waits for."""

    def show_failure(self, error: InterlockError) -> None:
        """The run didn't start, or broke off. The error's line is written to stderr elsewhere."""


class JsonView(View):
    def show_outcome(self, outcome: Outcome) -> None:
        write_json(outcome_fields(outcome), 2)

    def show_failure(self, error: InterlockError) -> None:
        write_json({"error": error_fields(error)}, 2)


class StreamJsonView(View):
    """One event per line, the result last."""

    def __init__(self, timestamp: Callable[[], str] = utc_timestamp) -> None:
        self._now = timestamp
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._ended = False

    def __call__(self, event: "Event", /) -> None:
        if event.type == "result":
            return  # `finish` writes it: an event may come late, or never
        self._queue_line(event_fields(event))

    def show_outcome(self, outcome: Outcome) -> None:
        result = outcome_fields(outcome)
        result.pop("session_id", None)
        word = {"done": "success", "waiting": "waiting"}.get(outcome.status, "error")
        self._queue_line(
            {"type": "result", **result, "status": word, "exit_code": outcome.exit_code}, is_last=True
        )

    def show_failure(self, error: InterlockError) -> None:
        result = {"status": "error", "error": error_fields(error), "stats": {}}
        self._queue_line({"type": "result", **result}, is_last=True)

    def flush(self) -> None:
        with self._lock:
            lines, self._waiting = self._waiting, []
            stream = original_stdout()
            stream.write("".join(lines))
            stream.flush()

    def _queue_line(self, value: dict[str, Any], is_last: bool = False) -> None:
        with self._lock:
            if not self._ended:
                line = {"type": value.pop("type"), "timestamp": self._now(), **value}
                self._waiting.append(to_visible_json(line) + "\n")
                self._ended = is_last
        if is_last:
            self.flush()


def event_fields(event: "Event") -> dict[str, Any]:
    """An event in `stream-json` format, without empty optional fields."""
    fields = event.model_dump(mode="json")
    for key in ("agent", "delta", "error", "route", *_OPTIONAL_FIELDS.get(event.type, ())):
        if not fields.get(key):
            fields.pop(key, None)
    return fields


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    result: dict[str, Any] = {"session_id": outcome.run}
    if outcome.workflow in _CONVERSATIONS:
        result["response"] = outcome.output.get("response", "")
        if outcome.workflow == "plan":
            result["plan"] = outcome.output
    elif outcome.display_output:  # includes its own error
        return outcome.display_output
    result["stats"] = outcome.stats
    if outcome.error:
        result["error"] = {**outcome.error, "code": outcome.exit_code}
    elif outcome.exit_code and outcome.status != "waiting":  # a signal or a time-out
        message = f"The run stopped: {outcome.status.replace('_', ' ')}. Go on with: {outcome.resume_command}"
        result["error"] = {"type": outcome.status, "message": message, "code": outcome.exit_code}
    if outcome.status == "waiting":
        result["status"] = "waiting"
        result["pending_approvals"] = outcome.pending
        result["resume_command"] = outcome.resume_command
    if outcome.warnings:
        result["warnings"] = outcome.warnings
    return result


def error_fields(error: InterlockError) -> dict[str, Any]:
    """`{type, message, code, field?}`"""
    field = getattr(error, "field", "")
    fields = {"type": error.kind, "message": str(error), "code": error.exit_code}
    return {**fields, "field": field} if field else fields
