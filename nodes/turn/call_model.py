"""call_model: send the curated history and stream the answer."""

from langgraph.runtime import ExecutionInfo, Runtime
from typing_extensions import TypedDict

from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.errors import ModelError, RunError
from interlock.state.events import Finished, MessageEvent, ModelInfo, Retry, Thought
from interlock.state.messages import Message, curated, open_calls
from interlock.state.models import ModelCall, Reply, TextDelta


class CallModelIn(TypedDict, total=False):
    head: str
    model: str
    sticky_model: str
    attempt: int
    stream_problem: str


class CallModelOut(TypedDict, total=False):
    candidate: str
    stream_problem: str
    sticky_model: str
    finish_reason: str
    last_prompt_tokens: int
    error: dict[str, str]


async def call_model(state: CallModelIn, runtime: Runtime[Deps]) -> CallModelOut:
    """The answer is recorded as a candidate; `check_stream` decides whether it enters the conversation."""
    deps = runtime.context
    model = state.get("sticky_model") or deps.models.resolve(state["model"])
    if not state.get("sticky_model"):
        runtime.stream_writer(ModelInfo(model=model))
    if state["attempt"] > 1 and await _wait(state, runtime):
        return {"candidate": "", "stream_problem": "cancelled"}
    try:
        reply = await _ask(state, runtime, model)
    except ModelError as error:
        return {"candidate": "", "error": {"type": error.kind, "message": str(error)}}
    if reply is None:
        return {"candidate": "", "stream_problem": "cancelled", "sticky_model": model}
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
        "sticky_model": model,
        "finish_reason": reply.finish_reason or "",
    }
    if reply.usage.input:
        update["last_prompt_tokens"] = reply.usage.input
    return update


async def _ask(state: CallModelIn, runtime: Runtime[Deps], model: str) -> Reply | None:
    deps = runtime.context
    history = deps.transcript.read(state["head"])
    if unanswered := open_calls(history):
        raise RunError(f"Calls without an answer before a model request: {[c.id for c in unanswered]!r}.")
    messages = curated(history)
    if state["attempt"] > 1:
        messages.append(Message(role="user", origin="continue", content=_again(state["stream_problem"])))
    call = ModelCall(
        task=_task(runtime.execution_info),
        role="main",
        head=state["head"],
        messages=messages,
        model=model,
        tools=deps.toolset.declarations(),
    )
    async for item in deps.models.stream(call, runtime.stream_writer):
        if isinstance(item, Reply):
            return item
        if isinstance(item, TextDelta):
            runtime.stream_writer(MessageEvent(role="assistant", content=item.text, delta=True))
        else:
            runtime.stream_writer(Thought(content=item.text))
    return None


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
