"""call_model: send the curated history and stream the answer."""

import asyncio

from langgraph.runtime import ExecutionInfo, Runtime
from typing_extensions import TypedDict

from interlock.nodes.turn._failure import failure
from interlock.nodes.turn._loops import LoopWatch
from interlock.nodes.turn._request import RequestIn, request_of
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.errors import ModelError, RunError
from interlock.state.events import Event, MessageEvent, Thought
from interlock.state.hooks import is_hooked
from interlock.state.messages import Message
from interlock.state.models import ModelCall, Reply, TextDelta, ThoughtDelta
from interlock.state.turn_events import Finished, Retry


class CallModelIn(RequestIn, total=False):
    hooked: str
    attempt: int
    stream_problem: str
    unavailable: dict[str, str]
    loop_keys: list[str]
    time_left_s: float


class CallModelOut(TypedDict, total=False):
    candidate: str
    stream_problem: str
    finish_reason: str
    last_prompt_tokens: int
    error: dict[str, str]
    unavailable: dict[str, str]
    failed_model: str
    loop_keys: list[str]
    loop_found: dict[str, str]


async def call_model(state: CallModelIn, runtime: Runtime[Deps]) -> CallModelOut:
    """The answer is recorded as a candidate; `check_stream` decides whether it enters the conversation."""
    if state["attempt"] > 1 and await _wait(state, runtime):
        return {"candidate": "", "stream_problem": "cancelled"}
    try:
        async with asyncio.timeout(state.get("time_left_s")):
            reply, watch = await _ask(state, runtime)
    except TimeoutError:
        message = f"The answer took longer than the {state['time_left_s']:.1f} s that were left."
        return {"candidate": "", "error": {"type": "timeout", "message": message}, "failed_model": ""}
    except ModelError as error:
        told = failure(
            error, state.get("request_model") or state["sticky_model"], state.get("unavailable", {})
        )
        return {"candidate": "", **told._asdict()}  # pyright: ignore[reportReturnType]
    if reply is None:
        return {"candidate": "", "stream_problem": "cancelled"}
    runtime.stream_writer(
        Finished(
            reason=reply.finish_reason or "none",
            usage=reply.usage.model_dump(),
            duration_ms=reply.duration_ms,
        )
    )
    update: CallModelOut = {
        "candidate": reply.record,
        "stream_problem": reply.problem or "",
        "finish_reason": reply.finish_reason or "",
    }
    if watch is not None:
        update["loop_found"] = watch.found(reply)
        update["loop_keys"] = watch.keys
    if reply.usage.input:
        update["last_prompt_tokens"] = reply.usage.input
    return update


async def _ask(state: CallModelIn, runtime: Runtime[Deps]) -> tuple[Reply | None, LoopWatch | None]:
    """The answer, None when it was cancelled; and what watched it, None where loops aren't looked for."""
    deps = runtime.context
    request = request_of(state, deps)
    if state["attempt"] > 1:
        request.messages.append(
            Message(role="user", origin="continue", content=_again(state["stream_problem"]))
        )
    off = deps.settings.model.disable_loop_detection
    watch = None if off else LoopWatch(deps.transcript.read(state["head"]), state.get("loop_keys", []))
    call = ModelCall(
        task=_task(runtime.execution_info),
        role="main",
        head=state["head"],
        messages=request.messages,
        model=request.model,
        tools=request.tools,
        temperature=request.temperature,
        watch=watch.text if watch else None,
    )
    held = is_hooked(state.get("hooked", ""), "AfterModel")
    async for item in deps.models.stream(call, runtime.stream_writer):
        if isinstance(item, Reply):
            return item, watch
        if not held:
            runtime.stream_writer(_shown(item))
    return None, watch


def _shown(item: TextDelta | ThoughtDelta) -> Event:
    if isinstance(item, TextDelta):
        return MessageEvent(role="assistant", content=item.text, delta=True)
    return Thought(content=item.text)


async def _wait(state: CallModelIn, runtime: Runtime[Deps]) -> bool:
    """The delay before another try at an invalid stream: 1, 2, 4 s. True: cancelled meanwhile."""
    settings = runtime.context.settings.model
    delay = settings.stream_retry_delay_s * 2 ** (state["attempt"] - 2)
    runtime.stream_writer(Retry(reason=state["stream_problem"], delay_s=delay, attempt=state["attempt"]))
    return await runtime.context.cancel.sleep(delay)


def _again(problem: str) -> str:
    return load("run/continue_stream").text(problem=problem)


def _task(info: ExecutionInfo | None) -> str:
    if info is None:
        raise RunError("call_model ran outside a graph.")
    return info.task_id
