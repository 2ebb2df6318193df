"""collect: join a group; with the last one, put every answer into the conversation, in the calls' order."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._results import recorded_of
from interlock.nodes.tools._verdicts import attempt_of, is_ready
from interlock.state.calls import CallKey
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.tools import Verdicts


class CollectIn(TypedDict, total=False):
    head: str
    message: str
    count: int
    decided: Verdicts
    finished: Verdicts
    stop: str


class CollectOut(TypedDict, total=False):
    head: str
    stop: str


async def collect(state: CollectIn, runtime: Runtime[Deps]) -> CollectOut:
    """Only the join appends answers (`engine.md` 9), so that the chain never holds half a batch."""
    deps = runtime.context
    verdicts = {**state["decided"], **(state.get("finished") or {})}
    if any(map(is_ready, verdicts.values())):
        return {}
    calls = deps.transcript.message(state["message"]).tool_calls
    answers: list[Message] = []
    stop = state.get("stop") or ""
    for index, call in enumerate(calls):
        _, result = recorded_of(deps.journal, state["message"], index, verdicts[str(index)])
        stop = stop or result.stop or ""
        answers.append(
            Message(
                role="tool",
                tool_call_id=call.id,
                name=call.name,
                content=result.content,
                status=result.status,
            )
        )
    head = deps.transcript.append(state["head"], answers)
    for index, record in enumerate(deps.transcript.ids(head, len(answers))):
        attempt = attempt_of(verdicts[str(index)])
        deps.journal.settle(CallKey(message=state["message"], index=index, attempt=attempt), record)
    return {"head": head, "stop": stop}
