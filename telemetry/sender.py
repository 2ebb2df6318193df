"""sender: hands spans, measurements and logs to OpenTelemetry's exporters, on a thread that nobody waits for.

Nothing of OpenTelemetry is imported before that thread runs.
"""

import atexit
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from interlock.services.files.disk import ensure_private_file
from interlock.state.settings import TelemetrySettings
from interlock.telemetry.spans import Attributes, Measurement, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

LAST_S = 1.0
"""Seconds that a process waits at its end, when everything is shown, for a collector that says nothing."""
_TIMEOUT_S = 5
"""Seconds for one request to the collector, retries included."""
_SCOPE = "interlock"


class Log(NamedTuple):
    at: float
    name: str
    body: str
    severity: str
    """`info`, `warning` or `error`."""
    attributes: Attributes


class Batch(NamedTuple):
    trace: str
    drive: str
    spans: Sequence[Span]
    measurements: Sequence[Measurement]
    logs: Sequence[Log]
    done: Callable[[], None]
    """Called once the collector has it, and what was sent of the drive before."""


class Sender:
    """Sends batches in order; `failure` says why the latest wasn't taken."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self._settings = settings
        self.destination = settings.outfile or settings.otlp_endpoint
        self._lost = set[str]()
        """Drives of which something wasn't taken."""
        self._batches: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        self._left = 0
        self._changed = threading.Condition()
        self.failure = ""
        threading.Thread(target=self._send_forever, name="telemetry", daemon=True).start()
        atexit.register(
            self.wait_until_drained_or_failed
        )  # the command line ends without Python's cleanup, and asks itself

    def enqueue_batch(self, batch: Batch) -> None:
        with self._changed:
            self._left += 1
        self._batches.put(batch)

    def wait_until_drained_or_failed(self, timeout_s: float = LAST_S) -> bool:
        """Wait until everything was taken or refused; one refusal is enough to wait for no more."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._left or bool(self.failure), timeout_s)

    def _send_forever(self) -> None:
        exporters: _Exporters | None = None
        while True:
            batch = self._batches.get()
            try:
                exporters = exporters or _Exporters(self._settings)
                if not (why := exporters.export_batch(batch)) and batch.drive not in self._lost:
                    batch.done()
            except Exception as error:  # an exporter's bug is none of the run's
                why = f"{type(error).__name__}: {error}"
            with self._changed:
                self._lost |= {batch.drive} if why else set()
                self.failure = why
                self._left -= 1
                self._changed.notify_all()


class _Exporters:
    """OpenTelemetry's three exporters, and what they export."""

    def __init__(self, settings: TelemetrySettings) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.resources import Resource

        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False  # what fails is said once, at the run's end
        about = {"service.name": "interlock", "service.version": version("interlock-agent")}
        about["service.instance.id"] = str(uuid4())
        self._resource = Resource.create(about)
        self._reader = InMemoryMetricReader()
        meters = MeterProvider([self._reader], self._resource, shutdown_on_exit=False)
        self._meter = meters.get_meter(_SCOPE)
        self._instruments: dict[str, Any] = {}
        make_exporters = _make_file_exporters if settings.outfile else _make_collector_exporters
        self._spans, self._metrics, self._logs = make_exporters(settings)

    def export_batch(self, batch: Batch) -> str:
        """Why the spans weren't taken; empty: they were. Many collectors take nothing else: they are asked once."""
        if batch.spans and not _export_and_check(self._spans, [*self._readable_spans(batch)]):
            return "it didn't take the spans"
        if self._logs and batch.logs and not _export_and_check(self._logs, [*self._log_records(batch)]):
            self._logs = None
        for measurement in batch.measurements:
            self._record_measurement(measurement)
        if (
            self._metrics
            and (data := self._reader.get_metrics_data())
            and not _export_and_check(self._metrics, data)
        ):
            self._metrics = None
        return ""

    def _readable_spans(self, batch: Batch) -> Iterator["ReadableSpan"]:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanKind, Status, StatusCode

        for span in batch.spans:
            error = {"error.type": span.error[:200]} if span.error else {}
            yield ReadableSpan(
                span.name,
                span_context(batch.trace, span.id),
                span_context(batch.trace, span.parent) if span.parent else None,
                self._resource,
                {**span.attributes, **error},
                kind=SpanKind.CLIENT if span.kind == "model" else SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
                start_time=_to_nanoseconds(span.start),
                end_time=_to_nanoseconds(span.end),
                instrumentation_scope=InstrumentationScope(_SCOPE),
            )

    def _log_records(self, batch: Batch) -> Iterator[Any]:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.context import Context
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        drive = NonRecordingSpan(span_context(batch.trace, batch.drive))
        where = set_span_in_context(drive, Context())
        numbers = {"info": SeverityNumber.INFO, "warning": SeverityNumber.WARN, "error": SeverityNumber.ERROR}
        for log in batch.logs:
            record = LogRecord(
                timestamp=_to_nanoseconds(log.at),
                observed_timestamp=_to_nanoseconds(time.time()),
                context=where,
                severity_text=log.severity.upper(),
                severity_number=numbers[log.severity],
                body=log.body,
                attributes=log.attributes,
                event_name=log.name,
            )
            yield ReadableLogRecord(record, self._resource, InstrumentationScope(_SCOPE))

    def _record_measurement(self, measurement: Measurement) -> None:
        if measurement.name not in self._instruments:
            make = getattr(self._meter, f"create_{measurement.kind}")
            self._instruments[measurement.name] = make(
                measurement.name, unit=measurement.unit, description=measurement.about
            )
        instrument = self._instruments[measurement.name]
        note = {"counter": "add", "histogram": "record", "gauge": "set"}[measurement.kind]
        getattr(instrument, note)(measurement.value, measurement.attributes)


def span_context(trace: str, span: str) -> "SpanContext":
    """Return a span as OpenTelemetry names it, by our ids."""
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(int(trace, 16), int(span, 16), False, TraceFlags(TraceFlags.SAMPLED))


def _export_and_check(exporter: Any, data: Any) -> bool:
    return exporter.export(data).name == "SUCCESS"


def _to_nanoseconds(timestamp: float) -> int:
    return int(timestamp * 1e9)


def _make_collector_exporters(settings: TelemetrySettings) -> tuple[Any, Any, Any]:
    if settings.otlp_protocol == "http":
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        root = settings.otlp_endpoint.rstrip("/")
        made = ((OTLPSpanExporter, "traces"), (OTLPMetricExporter, "metrics"), (OTLPLogExporter, "logs"))
        spans, metrics, logs = (cls(f"{root}/v1/{path}", timeout=_TIMEOUT_S) for cls, path in made)
        return spans, metrics, logs
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans

    url, open_ = settings.otlp_endpoint, not settings.otlp_endpoint.startswith("https://")
    kinds = (GrpcSpans, GrpcMetrics, GrpcLogs)
    spans, metrics, logs = (kind(endpoint=url, insecure=open_, timeout=_TIMEOUT_S) for kind in kinds)
    return spans, metrics, logs


def _make_file_exporters(settings: TelemetrySettings) -> tuple[Any, Any, Any]:
    from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    path = Path(settings.outfile).expanduser()
    ensure_private_file(path)
    file = path.open("a", encoding="utf-8")

    def line(data: Any) -> str:
        return data.to_json(indent=None) + "\n"

    return (
        ConsoleSpanExporter(out=file, formatter=line),
        ConsoleMetricExporter(out=file, formatter=line),
        ConsoleLogRecordExporter(out=file, formatter=line),
    )
