"""turn_reply: what a turn receives: the streamed answer, its validation, verdicts of hooks and loop detection."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from langgraph.runtime import Runtime

from interlock.nodes.hooks import end_prompt_if_hook_refuses, fire_hooks, hook_node
from interlock.nodes.loop_detectors import (
    StreamDetector,
    append_call_key,
    describe_cycle,
    hash_call,
    is_call_polling,
    repeated_cycle_length,
    shorten_text,
)
from interlock.nodes.turn_messages import (
    REQUEST,
    build_turn_request,
    format_answer_for_hooks,
    format_request_for_hooks,
    read_hook_answer_text,
)
from interlock.prompts import load_prompt
from interlock.state.deps import Deps, RunInfo, Transcript
from interlock.state.errors import ModelError, RunError
from interlock.state.events import (
    ErrorEvent,
    Event,
    Finished,
    InvalidStream,
    LoopDetected,
    MessageEvent,
    Retry,
    Thought,
)
from interlock.state.loop_check import LONGEST_CYCLE, RAN_ON, REPEATS, Kind
from interlock.state.messages import BLOCKED, Message, ModelCall, Reply, TextDelta, ThoughtDelta
from interlock.state.node import node, require_task_id
from interlock.state.run import is_hooked
from interlock.state.text import has_visible_text
from interlock.state.turn import STREAM_ATTEMPTS, TurnState

_UNNOTICED_S = 0.5
"""What a wait may lack of its planned length and still be told, and waited, as planned."""
_CALLS = 2 * LONGEST_CYCLE
"""Trailing messages of a history that contain the longest cycle's calls with their answers."""


class StreamWatch:
    """Checks text and thoughts for loops, noise and length before they are shown, and calls before they run."""

    def __init__(
        self, history: Sequence[Message], keys: Sequence[str], limit: int = 0, loops: bool = True
    ) -> None:
        """`limit` and `loops`: as of `StreamDetector`."""
        self.keys = list(keys)
        self._history, self._loops = history, loops
        self._stream = StreamDetector(limit, loops)
        for text in _texts_of_continued_answer(history):
            self._stream.feed(text)
            self._stream.begin_reply()

    def find_loop_in_delta(self, item: TextDelta | ThoughtDelta) -> str | None:
        """Process a piece; returns `KIND: DETAIL` once the reply repeats itself or runs on."""
        found = self._stream.feed(item.text, isinstance(item, ThoughtDelta))
        return ": ".join(found) if found else None

    def record_calls_and_find_loop(self, reply: Reply) -> dict[str, str]:
        """`{kind, detail}`; empty: no loop. The reply's calls are recorded either way."""
        if reply.finish_reason == "abandoned":
            kind, _, detail = (reply.problem or "").partition(": ")
            return {"kind": kind, "detail": detail}
        if not self._loops:
            return {}
        loop: dict[str, str] = {}
        names = [call.name for message in self._history[-_CALLS:] for call in message.tool_calls]
        for call in reply.message.tool_calls:
            names.append(call.name)
            self.keys = append_call_key(self.keys, hash_call(call.name, call.args))
            length = 0 if loop else repeated_cycle_length(self.keys)
            if length and not is_call_polling(self.keys, length, self._history):
                loop = {"kind": "tool_call", "detail": describe_cycle(names, length, call.args)}
        return loop or self._find_repeated_answer(reply.message)

    def _find_repeated_answer(self, answer: Message) -> dict[str, str]:
        """An answer is refused by a hook or continued; the same again and again, without a call between, is a loop."""
        text = answer.text.strip()
        if answer.tool_calls or not text:
            return {}
        self.keys = append_call_key(self.keys, hash_call("", {"text": text}))
        if repeated_cycle_length(self.keys) != 1:
            return {}
        return {
            "kind": "content",
            "detail": f"the answer “{shorten_text(text)}” was given {REPEATS} times in a row",
        }


@node(
    reads=(
        *(*REQUEST, "hooked", "protocol", "attempt", "stream_problem", "unavailable", "loop_keys"),
        *("time_left_s", "retry"),
    ),
    writes=(
        *("candidate", "stream_problem", "finish_reason", "last_prompt_tokens", "error", "retry"),
        *("unavailable", "failed_model", "loop_keys", "loop_found", "protocol"),
    ),
)
async def call_model(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Record the answer as a candidate; `check_stream` decides whether it enters the conversation.

    A single attempt: `wait_retry` leads to the next one.
    """
    clock = runtime.context.clock
    started, retry = clock.monotonic(), state.get("retry")
    left_s = state.get("time_left_s")
    try:
        async with asyncio.timeout(left_s and max(0.0, left_s - (retry["spent_s"] if retry else 0.0))):
            reply, watch = await _stream_reply(state, runtime)
    except TimeoutError:
        return {"candidate": "", "retry": None, **_timeout_update(left_s)}
    except ModelError as error:
        return {
            "candidate": "",
            **_retry_or_error_update(error, clock.monotonic() - started, state, runtime.context),
        }
    usage, reason = reply.usage.model_dump(exclude={"usd"}), reply.finish_reason or "none"
    runtime.stream_writer(Finished(reason=reason, usage=usage, duration_ms=reply.duration_ms))
    found = watch.record_calls_and_find_loop(reply)  # which adds the answer's calls to the keys
    update: TurnState = {
        "candidate": reply.record,
        "finish_reason": reply.finish_reason or "",
        "loop_keys": watch.keys,
    }
    # Each key costs bytes in every turn, and these two are empty when it begins.
    if (problem := reply.problem or "") != state["stream_problem"]:
        update["stream_problem"] = problem
    if found:
        update["loop_found"] = found
    if state.get("protocol") == "auto":
        update["protocol"] = _protocol_after_reply(state, reply, runtime.context)
    if reply.usage.input:
        update["last_prompt_tokens"] = reply.usage.input
    return update


def _protocol_after_reply(state: TurnState, reply: Reply, deps: Deps) -> str:
    """How the model calls tools from now on, by what it has done."""
    history = deps.transcript.read(state["head"])
    silent = sum(m.role == "assistant" and not m.tool_calls for m in history)
    return deps.models.next_call_protocol(reply.model, reply, silent)


async def _stream_reply(state: TurnState, runtime: Runtime[Deps]) -> tuple[Reply, StreamWatch]:
    """The answer, and its watch: without loop detection, only the limit counts."""
    deps = runtime.context
    request = await build_turn_request(state, deps)
    if state["attempt"] > 1:
        again = load_prompt("run/continue_stream").render(problem=state["stream_problem"])
        request.messages.append(Message(role="user", origin="continue", content=again))
    model, retry = deps.settings.model, state.get("retry")
    own = deps.settings.model_entry(request.model).max_reply_tokens
    limit = model.max_reply_tokens if own is None else own
    loops = not model.disable_loop_detection
    watch = StreamWatch(deps.transcript.read(state["head"]), state.get("loop_keys", []), limit, loops)
    call = ModelCall(
        task=require_task_id(runtime, "call_model"),
        role="main",
        head=state["head"],
        messages=request.messages,
        model=request.model,
        tools=request.tools,
        withheld=request.withheld,
        protocol=state.get("protocol") or "native",
        temperature=request.temperature,
        attempts=1,
        failures=retry["failures"] if retry else 0,
        watch=watch.find_loop_in_delta,
    )
    held, reply = is_hooked(state, "AfterModel"), None
    async for item in deps.models.stream(call, runtime.stream_writer):
        if isinstance(item, Reply):
            reply = item  # the last one: a stream that isn't read to its end is closed later, by a task of its own
        elif not held:
            runtime.stream_writer(_delta_event(item))
    if reply is None:
        raise RunError("The model's answer ended without a reply.")
    return reply, watch


def _delta_event(item: TextDelta | ThoughtDelta) -> Event:
    if isinstance(item, TextDelta):
        return MessageEvent(role="assistant", content=item.text, delta=True)
    return Thought(content=item.text)


def _timeout_update(time_left_s: float | None) -> TurnState:
    message = f"The answer took longer than the {time_left_s:.1f} s that were left."
    return {"error": {"type": "timeout", "message": message}, "failed_model": ""}


def _retry_or_error_update(error: ModelError, took_s: float, state: TurnState, deps: Deps) -> TurnState:
    """The plan for the next attempt; if there is none, the error stands."""
    before, left_s = state.get("retry"), state.get("time_left_s")
    failures, spent_s = (before["failures"], before["spent_s"]) if before else (0, 0.0)
    plan = deps.models.plan_retry(error, failures + 1, spent_s + took_s)
    if not plan["at"]:
        model = state.get("request_model") or state["sticky_model"]
        stands = _model_failure_update(error, model, state.get("unavailable", {}), deps.info)
        return {**stands, "retry": plan if error.retryable else None}
    if left_s is not None and plan["spent_s"] >= left_s:
        return {**_timeout_update(left_s), "retry": {**plan, "at": 0}}
    return {"retry": plan}


@node(
    reads=(
        *("head", "hooked", "said", "candidate", "attempt", "stream_problem", "finish_reason"),
        *("error", "failed_model", "rerouted", "loop_found", "retry", "overflows", "sticky_model"),
        "request_model",
    ),
    writes=(
        *("head", "reply", "said", "turn_status", "attempt", "stream_problem", "rerouted", "error"),
        *("retry", "overflows", "last_prompt_tokens"),
    ),
    labels=(
        "retry",
        "unavailable",
        "too long",
        "still too long",
        "loop",
        "whole",
        "answered",
        "calls",
        "error",
        "invalid",
    ),
)
async def check_stream(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Only a complete answer enters the conversation: here or, if hooks see it first, after them."""
    if not state["candidate"] and state.get("retry"):
        return {"label": "retry", "turn_status": ""}
    if error := state.get("error"):
        if state.get("failed_model") and not state["rerouted"]:
            return {"label": "unavailable", "turn_status": "", "rerouted": True}
        if error["type"] != "context_overflow":
            return {"label": "error", "turn_status": "error"}
        model = state.get("request_model") or state["sticky_model"]
        before, limit = state.get("overflows", 0), runtime.context.models.context_window(model)
        text = f"{error['message']} The conversation is shortened to fit, and the request is sent again."
        runtime.stream_writer(ErrorEvent(severity="warning", message=text))
        full: TurnState = {"overflows": before + 1, "last_prompt_tokens": limit}
        return {**full, "label": "still too long" if before else "too long", "turn_status": "", "error": {}}
    if state.get("loop_found"):
        return {"label": "loop", "turn_status": ""}
    transcript = runtime.context.transcript
    message = transcript.read_message(state["candidate"])
    reason = state.get("finish_reason", "")
    if reason in BLOCKED and not message.tool_calls:
        text = f"The provider blocked the answer ({reason}: {state['stream_problem'] or 'no reason given'})."
        return _failed_reply_update("error", "blocked", text)
    answers_tool = transcript.read_message(state["head"]).role == "tool"
    problem = state["stream_problem"] or _reply_problem(message, reason, answers_tool)
    if not problem:
        if is_hooked(state, "AfterModel"):
            return {"label": "whole", "turn_status": "calls" if message.tool_calls else "ok"}
        label = "calls" if message.tool_calls else "answered"
        return {**accept_answer(state, transcript, state["candidate"]), "label": label}
    runtime.stream_writer(InvalidStream(reason=problem))
    if state["attempt"] < STREAM_ATTEMPTS:
        again: TurnState = {"attempt": state["attempt"] + 1, "stream_problem": problem, "turn_status": ""}
        return {
            **again,
            "retry": runtime.context.models.plan_retry(problem, state["attempt"]),
            "label": "retry",
        }
    again_with = f"Try again with: {runtime.context.info.resume_or_rerun_command()}"
    text = f"{STREAM_ATTEMPTS} answers in a row were invalid; the last: {problem}. {again_with}"
    return _failed_reply_update("invalid_stream", "invalid_stream", text)


@node(
    reads=("retry", "attempt", "error", "failed_model", "rerouted"),
    writes=("turn_status", "rerouted", "retry"),
    labels=("again", "another model", "too long"),
    nondeterministic=True,
    group="errors",
)
async def wait_retry(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Wait until the next try is due: after a kill or a stop, for what is left of the wait.

    If another try is pointless, another model is asked, once in a turn; else the error ends the turn.
    """
    deps, retry, steps = runtime.context, state["retry"], runtime.context.steps
    task = require_task_id(runtime, "wait_retry")
    if not retry or not retry["at"]:
        if retry:
            steps.record_reason(task, f"attempt {retry['failures']} was the last: {retry['reason']}")
        if state.get("failed_model") and not state["rerouted"]:
            return {"label": "another model", "turn_status": "", "rerouted": True, "retry": None}
        return {"label": "too long", "turn_status": "error"}
    attempt = retry["failures"] + 1 if retry["failures"] else state["attempt"]
    delay_s = min(retry["delay_s"], max(0.0, retry["at"] - deps.clock.now()))
    if delay_s > retry["delay_s"] - _UNNOTICED_S:
        delay_s = retry["delay_s"]
    steps.record_reason(task, f"attempt {attempt} after {delay_s:.3g} s: {retry['reason']}")
    steps.commit_progress()  # before it is told: after a kill, what was shown is in the record
    runtime.stream_writer(Retry(reason=retry["reason"], delay_s=round(delay_s, 3), attempt=attempt))
    await asyncio.sleep(delay_s)
    return {"label": "again"}


def _failed_reply_update(status: str, kind: str, message: str) -> TurnState:
    label = "error" if status == "error" else "invalid"
    return {"label": label, "turn_status": status, "error": {"type": kind, "message": message}}


def _reply_problem(message: Message, finish_reason: str, answers_tool: bool) -> str:
    """Why the answer is unusable; empty: it is usable (`docs/internals.md#a-usable-answer`)."""
    if message.tool_calls:
        return ""
    if not finish_reason:
        return "the stream ended without a finish reason"
    if has_visible_text(message.text):
        return ""
    if message.thought:
        return "the answer holds thoughts only"
    return "" if answers_tool else "the answer is empty"


@hook_node(
    reads=(*REQUEST, "hooked", "said", "candidate", "finish_reason"),
    writes=("head", "reply", "said", "turn_status", "error"),
    labels=("answered", "calls", "stopped", "blocked"),
)
async def after_model(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """A rejected answer never enters the conversation, nor do its calls; with replaced text, the calls stay."""
    deps = runtime.context
    answer = deps.transcript.read_message(state["candidate"])
    payload = {
        "llm_request": format_request_for_hooks(await build_turn_request(state, deps)),
        "llm_response": format_answer_for_hooks(answer, state.get("finish_reason", "")),
    }
    outcome = await fire_hooks("AfterModel", payload, state, runtime)
    if end := end_prompt_if_hook_refuses("AfterModel", outcome, "the answer", runtime):
        return {**end}
    record = state["candidate"]
    text = read_hook_answer_text("AfterModel", outcome, runtime)
    if text and text != answer.text:
        # Thoughts and their signature belong to the replaced text; calls keep their own.
        answer = answer.model_copy(
            update={"content": text, "thought": None, "signature": None, "opaque": None}
        )
        record = deps.transcript.append(state["head"], [answer])
    _emit_held_back_answer(answer, runtime)
    return {
        **accept_answer(state, deps.transcript, record),
        "label": "calls" if answer.tool_calls else "answered",
    }


def _emit_held_back_answer(answer: Message, runtime: Runtime[Deps]) -> None:
    """Emit the text that was held back."""
    if answer.thought:
        runtime.stream_writer(Thought(content=answer.thought))
    if answer.text:
        runtime.stream_writer(MessageEvent(role="assistant", content=answer.text, delta=True))


@node(
    reads=("loop_found", "loop_count"),
    writes=("loop_count", "turn_status", "error"),
    labels=("first loop", "second loop"),
    group="errors",
)
async def note_loop(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Keep the repeated text out of the conversation, recording it as the step's reason."""
    kind, detail = state["loop_found"]["kind"], state["loop_found"]["detail"]
    count = state.get("loop_count", 0) + 1
    runtime.context.steps.record_reason(
        require_task_id(runtime, "note_loop"), f"loop {count} ({kind}): {detail}"
    )
    runtime.stream_writer(LoopDetected(kind=cast(Kind, kind), detail=detail, count=count))
    if count == 1:
        return {"label": "first loop", "loop_count": count, "turn_status": "loop_nudge"}
    said = f"{detail[0].upper()}{detail[1:]}" if kind in RAN_ON else f"The model repeats itself: {detail}"
    info = runtime.context.info
    unchecked = info.resume_or_rerun_command("--no-loop-check")
    advice = f"Show it another way: {info.resume_with_prompt_command()}; or let it go on: {unchecked}"
    if not info.continues:
        advice = f"Start it again, with another input or unchecked: {unchecked}"
    message = f"{said}, also after the model was told. {advice}"
    error = {"type": "loop_detected", "message": message}
    return {"label": "second loop", "loop_count": count, "turn_status": "loop_detected", "error": error}


def accept_answer(state: TurnState, transcript: Transcript, reply: str) -> TurnState:
    """`reply` is the record of the answer, after the conversation's head. Its text is kept for AfterAgent hooks."""
    message = transcript.read_message(reply)
    update: TurnState = {
        "head": reply,
        "reply": reply,
        "turn_status": "calls" if message.tool_calls else "ok",
    }
    if is_hooked(state, "AfterAgent") and has_visible_text(message.text):
        answer = Message(role="assistant", content=message.text)
        update["said"] = transcript.append(state.get("said", ""), [answer])
    return update


def _model_failure_update(
    error: ModelError, model: str, unavailable: Mapping[str, str], info: RunInfo
) -> TurnState:
    """An exhausted quota or unknown model lasts for the run, an overloaded server for the prompt.

    Without `failed_model` the model isn't to blame: another would fail as well.
    """
    kind = "context_overflow" if error.overflow else error.kind
    text = f"{error} Try again with: {info.resume_or_rerun_command()}" if error.retryable else str(error)
    failed: TurnState = {"error": {"type": kind, "message": text}, "failed_model": model}
    if error.terminal:
        return {**failed, "unavailable": {**unavailable, model: "run"}}
    if error.retryable and error.status is not None:
        return {**failed, "unavailable": {**unavailable, model: "prompt"}}
    return {**failed, "unavailable": dict(unavailable), "failed_model": ""}


def _texts_of_continued_answer(history: Sequence[Message]) -> list[str]:
    """The model's texts since a person or tool spoke: an answer it was told to continue."""
    texts: list[str] = []
    for message in reversed(history):
        ours = message.role == "user" and message.origin in ("continue", "nudge")
        if message.role == "assistant" and not message.tool_calls:
            texts.append(message.text)
        elif not ours:
            break
    return texts[::-1]
