"""after_tool: what the user's hooks say of a call's result."""

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes._hooked import AskedIn, AskedOut, fired, marked
from interlock.nodes.tools._hooks import note_hooks, one_reason
from interlock.nodes.tools._results import is_too_long, recorded
from interlock.prompts import load
from interlock.state.calls import CallKey, CallView, ToolResult
from interlock.state.deps import Deps
from interlock.state.hooks import HookOutcome
from interlock.state.messages import Message


class AfterToolIn(AskedIn, total=False):
    message: str
    index: int
    attempt: int
    kind: str


class AfterToolOut(AskedOut, total=False):
    shortened: str
    hook_notes: str
    hook_stop: str
    label: str


async def after_tool(state: AfterToolIn, runtime: Runtime[Deps]) -> AfterToolOut:
    """They see the result as the tool gave it. The journal keeps that; what the model is sent instead is a record."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call, result = deps.journal.call(key), recorded(deps.journal, key)
    answer = await fired("AfterTool", _given(call, result), state, runtime, call.name)
    if answer.open:
        return {**answer.asks}
    outcome = answer.outcome
    note_hooks(runtime, key, "AfterTool", outcome)
    stop = one_reason(outcome) if outcome.stop == "" else outcome.stop or ""
    told: AfterToolOut = {**answer.asks, "label": "done", "hook_stop": stop}
    told["hook_notes"] = _notes(deps, call, outcome, stop)
    if outcome.decision == "block" and not stop:
        return {**told, "shortened": _in_place(deps, call, outcome)}
    long = state["kind"] == "tool" and is_too_long(deps, call, result)
    return {**told, "label": "long"} if long else told


def _given(call: CallView, result: ToolResult) -> dict[str, JsonValue]:
    response: dict[str, JsonValue] = {
        "llmContent": result.content,
        "returnDisplay": result.meta.get("summary"),
    }
    if result.error:
        response["error"] = {**result.error}
    return {"tool_name": call.name, "tool_input": call.args, "tool_response": response}


def _in_place(deps: Deps, call: CallView, outcome: HookOutcome) -> str:
    """Record of what replaces a blocked result."""
    text = load("run/result_blocked").text(reason=one_reason(outcome))
    return deps.transcript.append("", [Message(role="tool", name=call.name, status="error", content=text)])


def _notes(deps: Deps, call: CallView, outcome: HookOutcome, stop: str) -> str:
    """Record of what is added to the result; empty: nothing is."""
    parts = [marked(outcome.context)] if outcome.context else []
    parts += [load("run/stopped_after_call").text(reason=stop)] if stop else []
    if not parts:
        return ""
    return deps.transcript.append("", [Message(role="tool", name=call.name, content="\n\n".join(parts))])
