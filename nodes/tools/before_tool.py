"""before_tool: what the user's hooks say of a call that no rule denies."""

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes._hooked import AskedIn, AskedOut, fired
from interlock.nodes.tools._hooks import names, note_hooks, one_reason
from interlock.prompts import load
from interlock.state.calls import CallKey, CallView, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps
from interlock.state.hooks import HookOutcome


class BeforeToolIn(AskedIn, total=False):
    message: str
    index: int
    attempt: int
    by_person: bool
    must_ask: bool
    status: str


class BeforeToolOut(AskedOut, total=False):
    attempt: int
    by_person: bool
    by_hook: bool
    must_ask: bool
    hook_attempt: int
    hook_reason: str
    status: str
    label: str


async def before_tool(state: BeforeToolIn, runtime: Runtime[Deps]) -> BeforeToolOut:
    """A hook may block, stop, have a person asked, or change the arguments. Its allow lifts nobody's ask."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    given: dict[str, JsonValue] = {"tool_name": call.name, "tool_input": call.args}
    told = await fired("BeforeTool", given, state, runtime, call.name)
    if told.open:
        return {**told.asks}
    outcome = told.outcome
    if outcome.stop is not None or outcome.decision == "block":
        _refuse(deps, key, call, outcome)
        note_hooks(runtime, key, "BeforeTool", outcome)
        return {**told.asks, "label": "blocked", "status": step(ToolCallChart, state["status"], "fail")}
    amended = _amended(deps, key, call, outcome)
    note_hooks(runtime, key, "BeforeTool", outcome, amended.attempt if amended else 0)
    # A person who wrote the arguments was asked; one whose arguments a hook changed was not.
    by_person = state["by_person"] and amended is None
    asks = outcome.decision == "ask" and not by_person
    found: BeforeToolOut = {
        **told.asks,
        "label": "changed" if amended else "seen",
        "approval": "",
        "attempt": (amended or key).attempt,
        "hook_attempt": (amended or key).attempt,
        "hook_reason": f"{names(outcome)} asks: {one_reason(outcome)}" if asks else "",
        "must_ask": state["must_ask"] or asks,
        "by_person": by_person,
    }
    return {**found, "by_hook": True} if amended else found


def _refuse(deps: Deps, key: CallKey, call: CallView, outcome: HookOutcome) -> None:
    kind = "stopped_by_hook" if outcome.stop is not None else "blocked_by_hook"
    why = outcome.stop or one_reason(outcome)
    text = load("run/call_stopped_by_hook" if outcome.stop is not None else "run/call_blocked").text(
        reason=why
    )
    result = failure(kind, text, hook=names(outcome), why=why)
    deps.journal.finish(key, call, result.model_copy(update={"stop": outcome.stop and why}))


def _amended(deps: Deps, key: CallKey, call: CallView, outcome: HookOutcome) -> CallKey | None:
    """The attempt that has a hook's arguments; None: they stay."""
    args = outcome.output.get("tool_input")
    if not isinstance(args, dict) or args == call.args:
        return None
    later = key.model_copy(update={"attempt": key.attempt + 1})
    deps.journal.amend(later, CallView(id=call.id, name=call.name, args=args))
    return later
