"""finish: say what became of the plan."""

from typing_extensions import TypedDict


class FinishIn(TypedDict, total=False):
    approved_plan: bool
    plan_verdict: str
    turn_status: str
    stop: str
    stopped_by: str
    error: dict[str, str]


class FinishOut(TypedDict, total=False):
    status: str
    error: dict[str, str]


async def finish(state: FinishIn) -> FinishOut:
    if state["approved_plan"]:
        return {"status": "approved"}
    if reason := state.get("stop"):
        if state.get("stopped_by") == "hook":
            return {"status": "failed", "error": {"type": "stopped_by_hook", "message": reason}}
        return {"status": "cancelled"}
    if state["plan_verdict"] == "reject_silently":
        return {"status": "rejected"}
    unknown = {"type": state["turn_status"], "message": f"The turn ended as {state['turn_status']!r}."}
    return {"status": "failed", "error": state.get("error") or unknown}
