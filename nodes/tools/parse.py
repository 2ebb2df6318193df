"""parse: find the batch, the calls of the assistant record at the head."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.calls import CallView
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import ToolUse


class ParseIn(TypedDict, total=False):
    head: str


class ParseOut(TypedDict, total=False):
    message: str
    count: int
    stop: str


async def parse(state: ParseIn, runtime: Runtime[Deps]) -> ParseOut:
    """Calls stay in the chain; the batch is named by the record that holds them."""
    deps = runtime.context
    message = deps.transcript.message(state["head"])
    if not message.tool_calls:
        raise RunError(
            f"The batch {state['head']!r} holds no call; expected an assistant message with calls."
        )
    for call in message.tool_calls:
        view = CallView(id=call.id, name=call.name, args=call.args)
        runtime.stream_writer(
            ToolUse(
                tool_name=call.name, tool_id=call.id, parameters=call.args, summary=deps.toolset.summary(view)
            )
        )
    return {"message": state["head"], "count": len(message.tool_calls), "stop": ""}
