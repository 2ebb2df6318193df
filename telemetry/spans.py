"""spans: makes spans of a run's rows (its drives, nodes, calls of models and tools, waits), and figures for metrics.

Names and attributes are OpenTelemetry's semantic conventions for generative AI, of version 1.41, where there are any.
A span's id follows from its row, so a row that is sent twice is one span.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from interlock.engine.read.calls import Call, list_calls, read_results_by_call_id
from interlock.engine.store.chain import read_messages_up_to
from interlock.engine.store.runs import RowsToExport, Trace
from interlock.services.models.names import provider_name
from interlock.state import events as ev
from interlock.state.messages import Message
from interlock.state.names import is_hidden_node

Attributes = dict[str, str | int | float | list[str]]
PROVIDERS = {"gemini": "gcp.gemini", "bedrock": "aws.bedrock", "mistralai": "mistral_ai", "xai": "x_ai"}
"""Ours → the conventions', where they differ."""
KIND = "openinference.span.kind"
"""What Phoenix and its like draw a span as that the conventions have no name for: a step is a CHAIN, a run an AGENT."""
_SLACK_S = 0.05
"""How much later than its node a call's row may say that it ended."""


@dataclass(frozen=True)
class Span:
    kind: Literal["run", "node", "model", "tool", "approval"]
    name: str
    id: str
    parent: str
    start: float
    end: float
    """Unix time, seconds."""
    attributes: Attributes = field(default_factory=dict[str, "str | int | float | list[str]"])
    error: str = ""


def derive_span_id(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def model_name_without_provider(model: str) -> str:
    return model.partition(":")[2] or model


def otel_provider_name(model: str) -> str:
    return PROVIDERS.get(provider_name(model), provider_name(model))


class Spans:
    """The spans of one drive, whose own span has the id `drive`."""

    def __init__(self, home: Path, trace: Trace, drive: str, *, content: bool) -> None:
        """`content`: whether prompts, answers, arguments and results are included."""
        self._home, self._run, self._trace, self._drive = home, trace.run, trace, drive
        self._content = content

    def spans_since(self, rows: RowsToExport, since: float) -> Iterator[Span]:
        """Everything that ended after `since`, innermost first."""
        steps = [row for row in rows.steps if not is_hidden_node(row["node"])]
        for row in rows.models:
            began = row["at"] - row["duration_ms"] / 1000
            yield self._model_span(row, _find_enclosing_step(steps, began, row["at"], task=row["task"][:8]))
        made = [call for call in list_calls(self._home, self._run) if call.state == "done"]
        told = read_results_by_call_id(self._home, self._run) if self._content else {}
        for call in made:
            if call.ended and call.ended > since:
                yield self._tool_span(
                    call,
                    _find_enclosing_step(steps, call.started or call.ended, call.ended, node="run_tool"),
                    told,
                )
        yield from map(self._approval_span, rows.answered)
        yield from map(self._node_span, steps)

    def _node_span_id(self, row: Any) -> str:
        if row["workflow"]:
            return derive_span_id(self._trace.trace, self._run, "node", row["seq"])
        return derive_span_id(self._trace.trace, self._run, "graph", row["task"][:8], row["node"])

    def _parent_graph_span_id(self, row: Any) -> str:
        """Return the span of the graph that a node is part of."""
        name, _, task = row["namespace"].rpartition("|")[2].partition(":")
        return derive_span_id(self._trace.trace, self._run, "graph", task[:8], name) if name else self._drive

    def _step_or_drive_span_id(self, step: Any) -> str:
        return self._node_span_id(step) if step else self._drive

    def _node_span(self, row: Any) -> Span:
        what: Attributes = {"gen_ai.conversation.id": self._run, "interlock.node": row["node"], KIND: "CHAIN"}
        for name, value in (("workflow", row["workflow"]), ("route", row["route"])):
            what |= {f"interlock.{name}": value} if value else {}
        shown = f"{row['workflow']} › {row['node']}" if row["workflow"] else row["node"]
        times = row["started"], _end_time(row)
        return Span("node", shown, self._node_span_id(row), self._parent_graph_span_id(row), *times, what)

    def _model_span(self, row: Any, step: Any) -> Span:
        what: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": otel_provider_name(row["model"]),
            "gen_ai.request.model": model_name_without_provider(row["model"]),
            "gen_ai.response.model": model_name_without_provider(row["model"]),
            "gen_ai.response.finish_reasons": [row["finish_reason"] or "none"],
            "gen_ai.conversation.id": self._run,
            "gen_ai.usage.input_tokens": row["input_tokens"],
            "gen_ai.usage.output_tokens": row["output_tokens"],
            "gen_ai.usage.cache_read.input_tokens": row["cached_tokens"],
            "gen_ai.usage.cache_creation.input_tokens": row["written_tokens"],
            "gen_ai.usage.reasoning.output_tokens": row["thought_tokens"],
            "interlock.role": row["role"],
        }
        what |= {"gen_ai.agent.name": row["agent"]} if row["agent"] else {}
        what |= {"interlock.cost.usd": row["usd"]} if row["usd"] is not None else {}
        what |= self._message_attributes(row) if self._content else {}
        key = derive_span_id(self._trace.trace, self._run, "model", row["agent"], row["role"], row["ordinal"])
        name, start = (
            f"chat {model_name_without_provider(row['model'])}",
            row["at"] - row["duration_ms"] / 1000,
        )
        problem = (row["problem"] if self._content else "invalid answer") if row["problem"] else ""
        return Span("model", name, key, self._step_or_drive_span_id(step), start, row["at"], what, problem)

    def _message_attributes(self, row: Any) -> Attributes:
        """Return what the model was told since its answer before, and what it answered."""
        *before, reply = read_messages_up_to(self._home, self._run, row["record"])
        last = max((place for place, m in enumerate(before) if m.role == "assistant"), default=-1)
        answer = {**_to_otel_message(reply), "finish_reason": row["finish_reason"] or "none"}
        return {
            "gen_ai.input.messages": json.dumps(
                [*map(_to_otel_message, before[last + 1 :])], ensure_ascii=False
            ),
            "gen_ai.output.messages": json.dumps([answer], ensure_ascii=False),
        }

    def _tool_span(self, call: Call, step: Any, results: Mapping[str, dict[str, Any]]) -> Span:
        what: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": self._run,
            "interlock.tool.status": call.status or "",
        }
        if self._content:
            what["gen_ai.tool.call.arguments"] = json.dumps(call.args, ensure_ascii=False)
            what["gen_ai.tool.call.result"] = json.dumps(
                results.get(call.id, {}).get("content"), ensure_ascii=False
            )
        key = derive_span_id(self._trace.trace, self._run, "tool", call.key)
        end = call.ended or 0.0
        start, failed = call.started or end, call.status if call.status != "success" else ""
        return Span(
            "tool",
            f"execute_tool {call.tool}",
            key,
            self._step_or_drive_span_id(step),
            start,
            end,
            what,
            failed or "",
        )

    def _approval_span(self, row: Any) -> Span:
        request, answer = json.loads(row["request"]), json.loads(row["answer"])
        what: Attributes = {
            "gen_ai.conversation.id": self._run,
            "gen_ai.tool.name": request["call"]["name"],
            "gen_ai.tool.call.id": request["call"]["id"],
            "interlock.request": row["id"],
            "interlock.decision": answer["choice"],
            "interlock.door": answer.get("door") or "",
            KIND: "CHAIN",
        }
        key, name = (
            derive_span_id(self._trace.trace, self._run, "approval", row["id"]),
            request["call"]["name"],
        )
        times = row["asked_at"], row["answered_at"]
        return Span("approval", f"approval {name}", key, self._drive, *times, what)


def _find_enclosing_step(
    steps: Iterable[Any], start: float, end: float, *, task: str = "", node: str = ""
) -> Any:
    """Return the node that a call was made in: the one that it sticks out of least, then the innermost.

    Of this task, or of this name if there is one.
    """
    found = [
        row
        for row in steps
        if row["workflow"]
        and (not task or row["task"][:8] == task)
        and row["started"] <= end <= _end_time(row) + _SLACK_S
    ]
    named = [row for row in found if row["node"] == node] or found

    def outside(row: Any) -> tuple[float, float]:
        late, early = max(end - _end_time(row), 0.0), max(row["started"] - start, 0.0)
        return late + early, abs(_end_time(row) - end)

    return min(named, key=outside, default=None)


def _end_time(row: Any) -> float:
    return row["started"] + row["ms"] / 1000


def _to_otel_message(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.text}] if message.text else []
    if message.role == "tool":
        id_ = message.tool_call_id
        return {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": id_, "response": message.text}],
        }
    for call in message.tool_calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.args})
    return {"role": message.role, "parts": parts}


class Measurement(NamedTuple):
    name: str
    kind: Literal["counter", "histogram", "gauge"]
    value: float
    unit: str
    about: str
    attributes: Attributes


def span_measurements(span: Span, drive_began: float) -> Iterator[Measurement]:
    took = max(span.end - span.start, 0.0)
    match span.kind:
        case "model":
            yield from _model_call_measurements(span, took)
        case "tool":
            about: Attributes = {
                name: span.attributes[name] for name in ("gen_ai.tool.name", "interlock.tool.status")
            }
            yield Measurement(
                "interlock.tool.duration", "histogram", took, "s", "Duration of tool calls", about
            )
        case "approval":
            decision: Attributes = {"interlock.decision": span.attributes["interlock.decision"]}
            text = "Time that requests waited for a person"
            yield Measurement("interlock.approval.wait", "histogram", took, "s", text, decision)
            late, text = max(drive_began - span.end, 0.0), "Time from a decision until a drive took it up"
            yield Measurement("interlock.queue.duration", "histogram", late, "s", text, {})
        case "run":
            about = {name: span.attributes[name] for name in ("gen_ai.workflow.name", "interlock.status")}
            yield Measurement(
                "interlock.run.duration", "histogram", took, "s", "Duration of drives of runs", about
            )
        case "node":
            pass


def _model_call_measurements(span: Span, duration_s: float) -> Iterator[Measurement]:
    names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
    about: Attributes = {name: span.attributes[name] for name in names}
    for token in ("input", "output"):
        used = span.attributes[f"gen_ai.usage.{token}_tokens"]
        assert isinstance(used, int)
        kinds: Attributes = {**about, "gen_ai.token.type": token}
        yield Measurement(
            "gen_ai.client.token.usage", "histogram", used, "{token}", "Tokens of model calls", kinds
        )
    text = "Duration of model calls"
    yield Measurement("gen_ai.client.operation.duration", "histogram", duration_s, "s", text, about)
    cost = span.attributes.get("interlock.cost.usd")
    if isinstance(cost, float):
        yield Measurement("interlock.cost", "counter", cost, "USD", "Cost of model calls", about)


def event_measurements(event: ev.Event) -> Iterator[Measurement]:
    match event:
        case ev.Retry():
            yield Measurement("interlock.retries", "counter", 1, "{retry}", "Retried model requests", {})
        case ev.LoopDetected():
            kind: Attributes = {"interlock.loop.kind": event.kind}
            yield Measurement("interlock.loops", "counter", 1, "{loop}", "Detected loops", kind)
        case ev.ChatCompressed() if event.before:
            ratio, text = (
                event.after / event.before,
                "Size of a compressed conversation, as a share of the one before",
            )
            yield Measurement("interlock.compression.ratio", "histogram", ratio, "1", text, {})
        case _:
            pass


def waiting_requests_measurement(number: int) -> Measurement:
    text = "Requests that wait for a person, over all runs"
    return Measurement("interlock.decisions.waiting", "gauge", number, "{request}", text, {})
