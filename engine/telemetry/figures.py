"""figures: what a drive's spans and events add to metrics."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from interlock.engine.telemetry.spans import Attributes, Span
from interlock.state import events as ev


class Figure(NamedTuple):
    name: str
    kind: Literal["counter", "histogram", "gauge"]
    value: float
    unit: str
    about: str
    attributes: Attributes


def of_span(span: Span, drive_began: float) -> Iterator[Figure]:
    took = max(span.end - span.start, 0.0)
    match span.kind:
        case "model":
            yield from _of_model(span, took)
        case "tool":
            about: Attributes = {
                name: span.attributes[name] for name in ("gen_ai.tool.name", "interlock.tool.status")
            }
            yield Figure("interlock.tool.duration", "histogram", took, "s", "Duration of tool calls", about)
        case "approval":
            decision: Attributes = {"interlock.decision": span.attributes["interlock.decision"]}
            text = "Time that requests waited for a person"
            yield Figure("interlock.approval.wait", "histogram", took, "s", text, decision)
            late, text = max(drive_began - span.end, 0.0), "Time from a decision until a drive took it up"
            yield Figure("interlock.queue.duration", "histogram", late, "s", text, {})
        case "run":
            about = {name: span.attributes[name] for name in ("gen_ai.workflow.name", "interlock.status")}
            yield Figure(
                "interlock.run.duration", "histogram", took, "s", "Duration of drives of runs", about
            )
        case "node":
            pass


def _of_model(span: Span, took: float) -> Iterator[Figure]:
    names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
    about: Attributes = {name: span.attributes[name] for name in names}
    for token in ("input", "output"):
        used = span.attributes[f"gen_ai.usage.{token}_tokens"]
        assert isinstance(used, int)
        kinds: Attributes = {**about, "gen_ai.token.type": token}
        yield Figure(
            "gen_ai.client.token.usage", "histogram", used, "{token}", "Tokens of model calls", kinds
        )
    text = "Duration of model calls"
    yield Figure("gen_ai.client.operation.duration", "histogram", took, "s", text, about)
    cost = span.attributes.get("interlock.cost.usd")
    if isinstance(cost, float):
        yield Figure("interlock.cost", "counter", cost, "USD", "Cost of model calls", about)


def of_event(event: ev.Event) -> Iterator[Figure]:
    match event:
        case ev.Retry():
            yield Figure("interlock.retries", "counter", 1, "{retry}", "Retried model requests", {})
        case ev.LoopDetected():
            kind: Attributes = {"interlock.loop.kind": event.kind}
            yield Figure("interlock.loops", "counter", 1, "{loop}", "Detected loops", kind)
        case ev.ChatCompressed() if event.before:
            ratio, text = (
                event.after / event.before,
                "Size of a compressed conversation, as a share of the one before",
            )
            yield Figure("interlock.compression.ratio", "histogram", ratio, "1", text, {})
        case _:
            pass


def waiting(number: int) -> Figure:
    text = "Requests that wait for a person, over all runs"
    return Figure("interlock.decisions.waiting", "gauge", number, "{request}", text, {})


def of_spans(spans: Sequence[Span], drive_began: float) -> list[Figure]:
    return [figure for span in spans for figure in of_span(span, drive_began)]
