"""_track: what a batch of calls did to the approval mode and to the plan."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from interlock.nodes.plan._steps import tick
from interlock.state.calls import CallView, ToolResult
from interlock.state.charts import ApprovalModeChart, step
from interlock.state.plan import PlanStep

_WRITES = ("write_file", "replace")


class Track(TypedDict, total=False):
    """What plan mode keeps in the state of whoever runs batches."""

    approval_mode: str
    plan_phase: str
    plan_file: str
    approved_plan: bool
    plan_steps: list[PlanStep]
    plan_verdict: str


def track(before: Track, batch: Sequence[tuple[CallView, ToolResult]], risk: Callable[[str], str]) -> Track:
    """The keys that changed, call after call. Only what went well counts."""
    now: Track = {**before}
    for call, result in batch:
        if result.status == "success" or result.meta.get("plan") == "cancel":
            now = _after(now, call, result.meta, risk(call.name))
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    return Track(**changed)  # pyright: ignore[reportArgumentType]


def _after(now: Track, call: CallView, meta: Mapping[str, Any], risk: str) -> Track:
    if call.name == "enter_plan_mode":
        return _moved(now, "enter_plan_mode")
    if call.name == "write_todos" and now.get("plan_steps"):
        todos = [(str(t.get("description", "")), str(t.get("status", ""))) for t in _todos(call)]
        return {**now, "plan_steps": tick(now["plan_steps"], todos)}
    if now.get("approval_mode") != "plan":
        return now
    phase = now.get("plan_phase") or "requirements"
    if call.name in _WRITES:
        moved = now if phase == "design" else _moved(now, "write_plan")
        return {**moved, "plan_file": str(meta.get("file") or meta.get("path") or now.get("plan_file", ""))}
    if call.name == "exit_plan_mode":
        return _reviewed(now, str(meta.get("plan") or ""), meta)
    return _moved(now, "read") if risk == "read" and phase == "requirements" else now


def _reviewed(now: Track, event: str, meta: Mapping[str, Any]) -> Track:
    if not event:  # there was no plan to review
        return now
    silent = event == "reject" and not meta.get("feedback")
    decided: Track = {**_moved(_moved(now, "exit_plan_mode"), event), "plan_verdict": event}
    if silent:
        decided = {**decided, "plan_verdict": "reject_silently"}
    if "plan_file" not in meta:
        return decided
    steps: list[PlanStep] = list(meta["plan_steps"])
    file = str(meta["plan_file"])
    return {**decided, "plan_file": file, "approved_plan": True, "plan_steps": steps}


def _moved(now: Track, event: str) -> Track:
    mode = now.get("approval_mode", "default")
    state = f"plan.{now.get('plan_phase') or 'requirements'}" if mode == "plan" else mode
    mode, _, phase = step(ApprovalModeChart, state, event).partition(".")
    return {**now, "approval_mode": mode, "plan_phase": phase}


def _todos(call: CallView) -> list[Mapping[str, Any]]:
    found = call.args.get("todos")
    return [t for t in found if isinstance(t, dict)] if isinstance(found, list) else []
