"""note_loop: the first loop of a prompt is told to the model, the second ends the run."""

from typing import cast

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.loop_check import Kind
from interlock.state.turn_events import LoopDetected

_ADVICE = "Show it another way: interlock resume RUN -p '…'"


class NoteLoopIn(TypedDict, total=False):
    loop_found: dict[str, str]
    loop_count: int


class NoteLoopOut(TypedDict, total=False):
    loop_count: int
    turn_status: str
    error: dict[str, str]


async def note_loop(state: NoteLoopIn, runtime: Runtime[Deps]) -> NoteLoopOut:
    """What repeated stays out of the conversation, and is kept as the step's reason."""
    if runtime.execution_info is None:
        raise RunError("note_loop ran outside a graph.")
    kind, detail = state["loop_found"]["kind"], state["loop_found"]["detail"]
    count = state.get("loop_count", 0) + 1
    runtime.context.steps.reasoned(runtime.execution_info.task_id, f"loop {count} ({kind}): {detail}")
    runtime.stream_writer(LoopDetected(kind=cast(Kind, kind), detail=detail, count=count))
    if count == 1:
        return {"loop_count": count, "turn_status": "loop_nudge"}
    message = f"The model repeats itself, also after it was told: {detail}. {_ADVICE}"
    error = {"type": "loop_detected", "message": message}
    return {"loop_count": count, "turn_status": "loop_detected", "error": error}
