"""loop_check: detect repetition: watch calls and text, and have models judge progress."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from langgraph.runtime import Runtime
from pydantic import ConfigDict, TypeAdapter

from interlock.nodes.helper_model import ask_json, build_question_messages
from interlock.nodes.loop_detectors import (
    StreamDetector,
    append_call_key,
    describe_cycle,
    hash_call,
    repeated_cycle_length,
    shorten_text,
)
from interlock.prompts import load_prompt
from interlock.state.deps import Deps
from interlock.state.loop_check import (
    CONFIDENCE,
    ENTRIES,
    FIRST_CHECK,
    INTERVAL,
    LONGEST_CYCLE,
    LOOP_TIMEOUT_S,
    Analysis,
    ContentEvent,
    Judgement,
    Kind,
    LoopCheckState,
    LoopEvent,
    ModelVerdictEvent,
    PromptEvent,
    ToolCallEvent,
)
from interlock.state.messages import Message, curate_history
from interlock.state.node import node

NO_PROGRESS = "a model that looked at the last turns saw no progress in them"


@dataclass
class LoopReplay:
    """State after some events. `at_event`, `kind` and `detail` are those of the first detection."""

    stream: StreamDetector = field(default_factory=StreamDetector)
    off: bool = False
    """Only the stream's limit counts."""
    verdicts: list[bool] = field(default_factory=list[bool])
    at_event: int | None = None
    kind: Kind | None = None
    detail: str = ""
    kinds: set[Kind] = field(default_factory=set[Kind])
    """Kinds of all detections."""
    count: int = 0
    interval: int = INTERVAL
    next_check: int = FIRST_CHECK
    needs_judgement: bool = False
    """A model must judge before the next event."""
    turn: int = 0
    prompt_id: str | None = None
    prompt: str = ""
    _keys: list[str] = field(default_factory=list[str])
    _names: list[str] = field(default_factory=list[str])

    def process_event(self, event: LoopEvent) -> None:
        """Process one event and append its verdict."""
        self.verdicts.append(False)
        match event:
            case PromptEvent():
                if event.prompt_id != self.prompt_id:
                    self._begin_prompt(event)
            case ToolCallEvent():
                self._process_call(event)
            case ContentEvent():
                if found := self.stream.feed(event.text):
                    self._record_finding(*found)
            case ModelVerdictEvent():
                self._apply_model_verdict(event)
            case _:
                self.turn += 1
                self.stream.begin_reply()

    @property
    def is_check_due(self) -> bool:
        """Whether a model's judgement would count now."""
        return self.turn >= self.next_check

    def apply_judgement(self, judgement: Judgement) -> None:
        """Apply a model's judgement as part of the last event."""
        loop, self.interval = evaluate_judgement(judgement, self.interval)
        self.next_check = self.turn + self.interval
        if loop:
            self._record_finding("model", NO_PROGRESS)

    def _begin_prompt(self, event: PromptEvent) -> None:
        self.prompt_id, self.prompt = event.prompt_id, event.text
        self.turn, self.count, self.interval, self.next_check = 0, 0, INTERVAL, FIRST_CHECK
        self._keys = []
        self.stream.reset()

    def _process_call(self, event: ToolCallEvent) -> None:
        self.stream.reset()
        self._keys = append_call_key(self._keys, hash_call(event.name, event.args))
        self._names = [*self._names, event.name][-LONGEST_CYCLE:]
        if not self.off and (length := repeated_cycle_length(self._keys)):
            self._record_finding("tool_call", describe_cycle(self._names, length, event.args))

    def _apply_model_verdict(self, event: ModelVerdictEvent) -> None:
        if self.off or not self.is_check_due:
            return
        judgement: Judgement = {"confidence": event.confidence}
        if "double_check_confidence" in event.model_fields_set:
            judgement["double"] = event.double_check_confidence
        self.apply_judgement(judgement)

    def _record_finding(self, kind: Kind, detail: str) -> None:
        self.count += 1
        self.kinds.add(kind)
        self.verdicts[-1] = True
        if self.at_event is None:
            self.at_event, self.kind, self.detail = len(self.verdicts) - 1, kind, detail


class JudgementOutcome(NamedTuple):
    is_loop: bool
    interval: int
    """Turns until the next check."""


EVENTS = TypeAdapter(list[LoopEvent], config=ConfigDict(defer_build=True))


@node(reads=("events", "asks", "loop_found"), writes=("off", "limit"), labels=("loop", "none"))
async def scan_calls(state: LoopCheckState, runtime: Runtime[Deps]) -> LoopCheckState:
    """Level 1: calls. In a run they are watched while they stream; what was found enters here."""
    model = runtime.context.settings.model
    if not state.get("events"):
        return {"label": "loop" if state.get("loop_found", {}).get("kind") == "tool_call" else "none"}
    off, limit = model.disable_loop_detection, model.max_reply_tokens
    kinds = _loop_kinds_in_events(state, runtime.context, off, limit)
    return {"off": off, "limit": limit, "label": "loop" if "tool_call" in kinds else "none"}


@node(reads=("events", "asks", "loop_found", "off", "limit"), writes=(), labels=("loop", "none"))
async def scan_text(state: LoopCheckState, runtime: Runtime[Deps]) -> LoopCheckState:
    """Level 2: text, as for calls."""
    if not state.get("events"):
        return {"label": "loop" if state.get("loop_found") else "none"}
    kinds = _loop_kinds_in_events(state, runtime.context, state["off"], state["limit"])
    return {"label": "loop" if kinds - {"tool_call"} else "none"}


def _loop_kinds_in_events(
    state: LoopCheckState, deps: Deps, detectors_off: bool, max_reply_tokens: int
) -> set[Kind]:
    """Kinds of the loops in the events; none if a model is asked, as it may find an earlier one."""
    if state["asks"] and not detectors_off:
        return set()
    return replay_loop_events(
        load_loop_events(deps, state["events"]), [], False, max_reply_tokens, detectors_off
    ).kinds


@node(
    reads=("head", "events", "asks", "off", "turn_no", "judgements", "loop_interval"),
    writes=("judgements", "loop_interval", "loop_next", "loop_found"),
    labels=("look due", "loop", "none"),
)
async def check_due(state: LoopCheckState, runtime: Runtime[Deps]) -> LoopCheckState:
    """Level 3: whether a model must judge now. In a run, `turn` enters only when it must."""
    deps = runtime.context
    judgements = state.get("judgements", [])
    if state.get("events"):
        asks = state["asks"] and not state["off"]
        found = (
            replay_loop_events(load_loop_events(deps, state["events"]), judgements, asks) if asks else None
        )
        if found and found.needs_judgement:
            return {"label": "look due"}
        return {"label": "loop" if found and found.at_event is not None else "none"}
    interval = state.get("loop_interval") or INTERVAL
    if not judgements and not deps.settings.model.disable_loop_detection:
        return {"label": "look due", "loop_found": {}}
    loop = False
    if judgements:
        loop, interval = evaluate_judgement(judgements[0], interval)
    return {
        "label": "loop" if loop else "none",
        "judgements": [],
        "loop_interval": interval,
        "loop_next": state["turn_no"] + interval,
        "loop_found": {
            "kind": "model",
            "detail": f"{NO_PROGRESS}{_describe_frequent_call_or_answer(deps, state)}",
        }
        if loop
        else {},
    }


@node(
    reads=("head", "events", "judgements", "unavailable"),
    writes=("judgements",),
    labels=("suspicious", "judged"),
)
async def ask_model(state: LoopCheckState, runtime: Runtime[Deps]) -> LoopCheckState:
    """This model's suspicion alone isn't a loop, unless the stronger model is unavailable."""
    confidence = await ask_loop_confidence("loop_check", state, runtime)
    deps = runtime.context
    stronger = deps.models.resolve_alias(deps.settings.model.roles.get("loop_double_check", "pro"))
    suspects = confidence is not None and confidence >= CONFIDENCE
    asks = suspects and stronger not in state.get("unavailable", {})
    return {
        "judgements": [*state.get("judgements", []), {"confidence": confidence}],
        "label": "suspicious" if asks else "judged",
    }


@node(reads=("head", "events", "judgements", "unavailable"), writes=("judgements",))
async def double_check(state: LoopCheckState, runtime: Runtime[Deps]) -> LoopCheckState:
    """A false stop is worse than a wasted turn: if this model fails, there is no loop."""
    earlier = state.get("judgements", [])
    before: LoopCheckState = {**state, "judgements": earlier[:-1]}
    confidence = await ask_loop_confidence("loop_double_check", before, runtime)
    return {"judgements": [*earlier[:-1], {**earlier[-1], "double": confidence}]}


def replay_loop_events(
    events: Sequence[LoopEvent],
    judgements: Sequence[Judgement],
    stops_at_due_check: bool,
    max_reply_tokens: int = 0,
    detectors_off: bool = False,
) -> LoopReplay:
    """Replay all events; with `asks`, only up to the first turn whose judgement is due and missing."""
    state, left = (
        LoopReplay(StreamDetector(max_reply_tokens, not detectors_off), detectors_off),
        list(judgements),
    )
    for event in events:
        state.process_event(event)
        if stops_at_due_check and event.type == "turn" and state.is_check_due:
            if not left:
                state.needs_judgement = True
                return state
            state.apply_judgement(left.pop(0))
    return state


def evaluate_judgement(judgement: Judgement, interval: int) -> JudgementOutcome:
    """A loop needs both models, unless the stronger one is unavailable. A failed model counts as no loop."""
    confidence = judgement["confidence"]
    if confidence is not None and confidence >= CONFIDENCE:
        if "double" not in judgement:
            return JudgementOutcome(True, interval)
        confidence = judgement["double"]
    if confidence is None:
        return JudgementOutcome(False, interval)
    if confidence >= CONFIDENCE:
        return JudgementOutcome(True, interval)
    return JudgementOutcome(False, math.floor(5 + 10 * (1 - confidence) + 0.5))


async def ask_loop_confidence(role: str, state: LoopCheckState, runtime: Runtime[Deps]) -> float | None:
    """The model's confidence that the run is looping; None: it failed."""
    deps = runtime.context
    history = deps.transcript.read(state["head"]) if state.get("head") else []
    system, task = load_prompt("loop_check/look").render_system_and_user(
        request=_last_user_text(state, deps, history)
    )
    messages = build_question_messages(system, task, recent_complete_messages(history))
    found = await ask_json(runtime, Analysis, role, messages, state.get("head", ""), LOOP_TIMEOUT_S)
    return found.answer.unproductive_state_confidence if found else None


def _describe_frequent_call_or_answer(deps: Deps, state: LoopCheckState) -> str:
    """What the model did most in the turns examined, for the nudge; empty: nothing."""
    last = recent_complete_messages(deps.transcript.read(state["head"])) if state.get("head") else []
    calls = [call for message in last for call in message.tool_calls]
    if calls:
        name, count = Counter(call.name for call in calls).most_common(1)[0]
        newest = next(call for call in reversed(calls) if call.name == name)
        args = shorten_text(json.dumps(newest.args, ensure_ascii=False))
        return f"; {count} of the last {len(calls)} calls were {name}, the newest with {args}"
    answer = next((m.text.strip() for m in reversed(last) if m.role == "assistant" and m.text.strip()), "")
    return f"; the last answer was “{shorten_text(answer)}”" if answer else ""


def recent_complete_messages(history: list[Message]) -> list[Message]:
    """The last 20 entries, without unanswered calls and answers without a call."""
    last = [m for m in curate_history(history) if m.role != "system"][-ENTRIES:]
    while last and last[0].role == "tool":
        last.pop(0)
    while last and last[-1].tool_calls:
        last.pop()
    if last and last[0].tool_calls:
        last.insert(0, Message(role="user", content=load_prompt("loop_check/earlier").render()))
    return last


def _last_user_text(state: LoopCheckState, deps: Deps, history: list[Message]) -> str:
    """The last message the person wrote."""
    if state.get("events"):
        events = replay_loop_events(
            load_loop_events(deps, state["events"]), state.get("judgements", []), stops_at_due_check=True
        )
        if events.prompt:
            return events.prompt
    return next((m.text for m in reversed(history) if m.role == "user" and m.origin in ("person", None)), "")


def load_loop_events(deps: Deps, record: str) -> list[LoopEvent]:
    return EVENTS.validate_json(deps.transcript.read_message(record).text)
