"""take_review: do what the person said of the plan."""

import asyncio
from pathlib import Path

from langgraph.runtime import Runtime
from pydantic import JsonValue
from typing_extensions import TypedDict

from interlock.nodes.plan._steps import parse_steps
from interlock.nodes.tools._decided import note_person
from interlock.nodes.tools._requests import answered
from interlock.prompts import render
from interlock.state.calls import Answer, ApprovalRequest, CallKey, ToolResult, cancelled
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps


class TakeReviewIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    approval: str


class TakeReviewOut(TypedDict, total=False):
    status: str
    label: str


async def take_review(state: TakeReviewIn, runtime: Runtime[Deps]) -> TakeReviewOut:
    """What was read is what is approved: a file that changed meanwhile is shown again."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    request, answer = answered(deps, state["approval"])
    note_person(runtime, key, state["approval"], answer)
    executing = step(ToolCallChart, "scheduled", "execute")
    if answer.choice in ("reject", "cancel"):
        result = _refused(answer)
        deps.journal.finish(key, call, result)
        return {
            "label": "decided",
            "status": step(ToolCallChart, executing, "cancel" if answer.choice == "cancel" else "succeed"),
        }
    file = request.files[0]
    edited = (answer.args or {}).get("plan") if answer.choice == "modify" else None
    if isinstance(edited, str) and edited.strip():
        await asyncio.to_thread(deps.plans.write, Path(file.path), edited, str(key))
        text = edited
    elif deps.toolset.now(file.path) != file.on_disk:
        return {"label": "changed since"}
    else:
        text = request.preview
    deps.journal.finish(key, call, _approved(request, answer, text))
    return {"label": "decided", "status": step(ToolCallChart, executing, "succeed")}


def _refused(answer: Answer) -> ToolResult:
    if answer.choice == "cancel":
        stopped = cancelled(render("plan/cancelled"))
        return stopped.model_copy(update={"stop": "cancelled by the user", "meta": {"plan": "cancel"}})
    prompt = "plan/rejected" if answer.feedback else "plan/rejected_silently"
    values = {"feedback": answer.feedback} if answer.feedback else {}
    meta: dict[str, JsonValue] = {"plan": "reject", "feedback": answer.feedback, "summary": "rejected"}
    return ToolResult(status="success", content=render(prompt, **values), meta=meta)


def _approved(request: ApprovalRequest, answer: Answer, text: str) -> ToolResult:
    asked = (answer.args or {}).get("approval_mode") if answer.choice == "modify" else None
    automatic = asked == "auto_edit" or answer.choice == "proceed_always"
    mode = "auto_edit" if automatic else "default"
    path = request.files[0].path
    meta: dict[str, JsonValue] = {
        "plan": f"approve_{mode}",
        "plan_file": path,
        "plan_steps": [{"text": s["text"], "done": s["done"]} for s in parse_steps(text)],
        "summary": f"approved, into {mode}",
    }
    return ToolResult(status="success", content=render("plan/approved", file=path, plan=text), meta=meta)
