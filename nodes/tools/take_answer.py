"""take_answer: give the user's answer to the model."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._decided import note_person
from interlock.nodes.tools._requests import answered, rejected
from interlock.state.calls import CallKey, ToolResult
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps


class TakeAnswerIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    approval: str
    status: str


class TakeAnswerOut(TypedDict, total=False):
    status: str


async def take_answer(state: TakeAnswerIn, runtime: Runtime[Deps]) -> TakeAnswerOut:
    """The answer is the call's result, word for word."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    _, answer = answered(deps, state["approval"])
    note_person(runtime, key, state["approval"], answer)
    executing = step(ToolCallChart, "scheduled", "execute")
    if answer.choice == "reject":
        deps.journal.finish(key, call, rejected(answer))
        return {"status": step(ToolCallChart, executing, "fail")}
    deps.journal.finish(key, call, ToolResult(status="success", content=answer.text or ""))
    return {"status": step(ToolCallChart, executing, "succeed")}
