"""telemetry: tells a collector (OpenTelemetry) what a run did: traces, metrics and logs. Off by default.

A renderer like any other: it reads the events and, every few seconds and at the end, the run's new rows. What isn't
delivered stays marked in the run's row of `traces`, and goes with its next drive.
"""

import re
import secrets
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from interlock.engine.store import Store
from interlock.engine.store.runs import (
    count_waiting_requests,
    find_or_create_trace,
    list_rows_to_export,
    mark_trace_exported,
)
from interlock.state import events as ev
from interlock.state.settings import TelemetrySettings
from interlock.telemetry.sender import Batch, Log, Sender, span_context
from interlock.telemetry.spans import (
    KIND,
    Attributes,
    Measurement,
    Span,
    Spans,
    event_measurements,
    span_measurements,
    waiting_requests_measurement,
)

_EVERY_S = 5.0
"""Seconds after which a long drive's new rows are sent."""
VARIABLE = "TRACEPARENT"
_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def configuration_problem(settings: TelemetrySettings) -> str:
    """Return why telemetry can't work although settings ask for it; empty: it can."""
    if not all(
        find_spec("opentelemetry") and find_spec(f"opentelemetry.{name}") for name in ("sdk", "exporter")
    ):
        return "telemetry.enabled needs a package that isn't installed. Run: interlock install otel"
    if settings.target == "gcp" and not settings.use_collector and not settings.outfile:
        return (
            "telemetry.target 'gcp' sends nothing: Interlock speaks to a collector only. Name one in "
            "telemetry.otlpEndpoint and set telemetry.useCollector."
        )
    return ""


def parse_traceparent(text: str | None) -> tuple[str, str] | None:
    """Return trace and span of a W3C `traceparent`; None: there is none, or a malformed one."""
    found = _PARENT.fullmatch((text or "").strip().lower())
    return (found[1], found[2]) if found and int(found[1], 16) and int(found[2], 16) else None


def _current_span_ids() -> tuple[str, str] | None:
    """Return the span that this code runs in: that of a program that embeds us, or of an MCP request."""
    from opentelemetry.trace import get_current_span

    found = get_current_span().get_span_context()
    return (f"{found.trace_id:032x}", f"{found.span_id:016x}") if found.is_valid else None


@contextmanager
def follow_drive(
    settings: TelemetrySettings, env: Mapping[str, str], warnings: list[str], store: Store, run: str
) -> Generator[tuple[Mapping[str, str], list["Telemetry"]]]:
    """What a drive gets if settings ask for telemetry: its trace in the environment of commands and servers, and a
    renderer. What is wrong with the telemetry is added to `warnings`.
    """
    if why := configuration_problem(settings):
        warnings.append(why)
        yield env, []
        return
    if said := _undelivered_message(_shared_sender(settings.model_dump_json())):
        warnings.append(said)
    watch = Telemetry(settings, store, run, env)
    with watch.as_current_span():
        yield {**env, VARIABLE: watch.traceparent}, [watch]


def flush_at_exit() -> list[str]:
    """At a process's end, wait a moment for collectors that have something to take; returns a line for each failure."""
    late = [one for one in _SENDERS.values() if not one.wait_until_drained_or_failed()]
    return [line for one in _SENDERS.values() if (line := _undelivered_message(one, late=one in late))]


def _undelivered_message(sender: Sender, *, late: bool = False) -> str:
    why = sender.failure or ("it didn't answer in time" if late else "")
    return f"Telemetry to {sender.destination!r}: {why}; it is sent with the run's next drive." if why else ""


_SENDERS: dict[str, Sender] = {}


def _shared_sender(settings_json: str) -> Sender:
    """One for all drives of a process, so that its counters only grow."""
    if settings_json not in _SENDERS:
        _SENDERS[settings_json] = Sender(TelemetrySettings.model_validate_json(settings_json))
    return _SENDERS[settings_json]


class Telemetry:
    """A renderer that follows one drive of a run."""

    def __init__(self, settings: TelemetrySettings, store: Store, run: str, env: Mapping[str, str]) -> None:
        self._settings, self._store, self._run = settings, store, run
        self._trace = find_or_create_trace(
            store, run, _current_span_ids() or parse_traceparent(env.get(VARIABLE))
        )
        first = not self._trace.until
        self._span, self._parent = (
            (self._trace.root, self._trace.parent) if first else (secrets.token_hex(8), self._trace.root)
        )
        self._began = time.time()
        self._spans = Spans(store.home, self._trace, self._span, content=settings.log_prompts)
        self._sender = _shared_sender(settings.model_dump_json())
        self._sent = set[str]()
        self._measurements: list[Measurement] = []
        self._logs: list[Log] = []
        self._workflow, self._last = "", time.monotonic()

    @property
    def traceparent(self) -> str:
        """What commands, servers and hooks get, so that their spans are part of the run's trace."""
        return f"00-{self._trace.trace}-{self._span}-01"

    @contextmanager
    def as_current_span(self) -> Generator[None]:
        """Make the drive the current span of this task: the MCP client tells servers of it."""
        from opentelemetry.context import attach, detach
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        drive = NonRecordingSpan(span_context(self._trace.trace, self._span))
        token = attach(set_span_in_context(drive))
        try:
            yield
        finally:
            detach(token)

    def __call__(self, event: ev.Event) -> None:
        if isinstance(event, ev.Init):
            self._workflow = event.workflow
        self._measurements += event_measurements(event)
        self._logs += _event_logs(event, with_content=self._settings.log_prompts)
        if isinstance(event, ev.Result):
            self._enqueue_final_batch(event)
        elif time.monotonic() - self._last > _EVERY_S:
            self._enqueue_new_batch([])

    def _enqueue_final_batch(self, event: ev.Result) -> None:
        about: Attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": self._workflow,
            "gen_ai.conversation.id": self._run,
            "interlock.status": event.status,
            KIND: "AGENT",
        }
        if (usd := event.stats.get("usd")) is not None:
            about["interlock.cost.usd"] = float(usd)
        failed = str((event.error or {}).get("type") or "") if event.status == "failed" else ""
        name, until = f"invoke_workflow {self._workflow}", time.time()
        drive = Span("run", name, self._span, self._parent, self._began, until, about, failed)
        self._measurements.append(waiting_requests_measurement(count_waiting_requests(self._store.home)))
        self._enqueue_new_batch([drive], until)

    def _enqueue_new_batch(self, extra_spans: list[Span], until: float | None = None) -> None:
        """`until`: everything that ended before then is in the store."""
        since = self._trace.until
        spans = [
            s
            for s in self._spans.spans_since(list_rows_to_export(self._store.home, self._run, since), since)
            if s.id not in self._sent
        ]
        spans += extra_spans
        self._sent |= {span.id for span in spans}
        of_these = (measurement for span in spans for measurement in span_measurements(span, self._began))
        measurements = [*self._measurements, *of_these]
        logs, self._logs, self._measurements, self._last = self._logs, [], [], time.monotonic()

        def done() -> None:
            if until is not None:
                mark_trace_exported(self._store, self._run, until)

        self._sender.enqueue_batch(Batch(self._trace.trace, self._span, spans, measurements, logs, done))


def _event_logs(event: ev.Event, *, with_content: bool) -> Iterator[Log]:
    now = time.time()
    match event:
        case ev.Retry():
            about: Attributes = {"interlock.delay_s": event.delay_s, "interlock.attempt": event.attempt}
            yield Log(now, "interlock.retry", event.reason, "warning", about)
        case ev.LoopDetected():
            about = {"interlock.loop.kind": event.kind, "interlock.loop.count": event.count}
            yield Log(
                now, "interlock.loop_detected", event.detail if with_content else event.kind, "warning", about
            )
        case ev.ChatCompressed():
            about = {"interlock.tokens.before": event.before, "interlock.tokens.after": event.after}
            yield Log(now, "interlock.chat_compressed", "", "info", about)
        case ev.ErrorEvent():
            yield Log(now, f"interlock.{event.severity}", event.message, event.severity, {})
        case ev.ApprovalRequired():
            about = {"interlock.request": event.id, "gen_ai.tool.name": event.tool_name}
            yield Log(now, "interlock.approval_required", event.reason if with_content else "", "info", about)
        case ev.MessageEvent() if event.role == "user" and with_content:
            yield Log(now, "interlock.prompt", event.content, "info", {})
        case ev.Result():
            error = event.error or {}
            level = "error" if error and event.status != "cancelled" else "info"
            about = {"interlock.status": event.status, "interlock.exit_code": event.exit_code}
            text = str(error.get("message") or "")
            yield Log(now, "interlock.result", text, level, about)
        case _:
            pass
