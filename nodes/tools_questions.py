"""tools_questions: calls that a person answers: questions, plan reviews, and outcomes that a crash hid."""

import asyncio
from pathlib import Path
from typing import Literal

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.plan import parse_steps
from interlock.nodes.tools_results import (
    CALL,
    answered,
    asked,
    attempt_at,
    is_result_for_hooks,
    moved,
    note_person,
    put_request,
    rejected,
)
from interlock.prompts import load, render
from interlock.state.calls import (
    Answer,
    ApprovalRequest,
    CallView,
    FileState,
    ToolResult,
    cancelled,
    failure,
)
from interlock.state.deps import Deps, to_its_end
from interlock.state.messages import Message
from interlock.state.run import node
from interlock.state.tools import ExecuteState


@node(reads=(*CALL, "hooked"), writes=("approval",), labels=("asked", "notify"))
async def ask_question(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Needs no permission: to ask is harmless, and the answer is the person's own."""
    deps, key, call = attempt_at(state, runtime)
    raw = call.args.get("questions")
    questions = tuple(q for q in raw if isinstance(q, dict)) if isinstance(raw, list) else ()
    preview = await deps.toolset.preview(call, ())
    request = ApprovalRequest(
        key=f"{key}:question:1",
        kind="question",
        call=call,
        reason="The model asks you.",
        preview=preview.text,
        choices=("proceed_once", "reject"),
        questions=preview.questions or questions,
    )
    put_request(runtime, request)
    return {"label": asked(state), "approval": request.key}


@node(reads=(*CALL, "approval", "hooked"), writes=("status",), labels=("done", "hooks"))
async def take_answer(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """The answer is the call's result, word for word."""
    deps, key, call = attempt_at(state, runtime)
    request, answer = answered(deps, state["approval"])
    note_person(runtime, key, state["approval"], answer)
    if answer.choice == "reject":  # a question that nobody answers has no result for hooks
        deps.journal.finish(key, call, rejected(answer))
        return {"label": "done", "status": moved("scheduled", "execute", "fail")}
    result = ToolResult(status="success", content=answer.text or "", meta=_mode_of(request, answer))
    deps.journal.finish(key, call, result)
    return _over(state, "succeed", "done")


def _mode_of(request: ApprovalRequest, answer: Answer) -> dict[str, JsonValue]:
    """Of an answer that was chosen from those that were offered: the mode to go on in, where it names one."""
    raw = request.questions[0].get("options") if request.questions else None
    for option in raw if isinstance(raw, list) else []:
        if isinstance(option, dict) and option.get("mode") and option.get("label") == answer.text:
            return {"switch_to_mode": option["mode"]}
    return {}


def _over(state: ExecuteState, event: str, otherwise: str) -> ExecuteState:
    """The call has run so: on to the hooks that look at its result, or where there are none `otherwise`."""
    over: ExecuteState = {"status": moved("scheduled", "execute", event)}
    return {**over, "label": "hooks" if is_result_for_hooks({**state, **over}) else otherwise}


@node(
    reads=(*CALL, "asks", "hooked"),
    writes=("approval", "asks"),
    labels=("asked", "notify", "no plan"),
    outside=True,
)
async def ask_review(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Whatever rules say: no policy, no mode and no flag approves a plan. Without a plan the model is told so."""
    deps, key, call = attempt_at(state, runtime)
    name = str(call.args["plan_filename"])
    path = deps.plans.find(name)
    text = await asyncio.to_thread(_read, path)
    if path is None or not text.strip():
        text = render("plan/missing", file=repr(name), folder=str(deps.plans.folder))
        deps.journal.finish(key, call, ToolResult(status="success", content=text))
        return {"label": "no plan"}
    asks = (state.get("asks") or 0) + 1
    request = _request(f"{key}:review:{asks}", call, path, text, deps.toolset.now(str(path)), asks > 1)
    put_request(runtime, request)
    return {"label": asked(state), "approval": request.key, "asks": asks}


def _read(path: Path | None) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path else ""
    except OSError:
        return ""  # gone meanwhile: as if it had never been written


def _request(
    key: str, call: CallView, path: Path, text: str, sha256: str | None, again: bool
) -> ApprovalRequest:
    return ApprovalRequest(
        key=key,
        kind="approval",
        call=call.model_copy(update={"args": {**call.args, "plan": text, "approval_mode": "default"}}),
        reason="The plan is ready for your review. Approved, it is carried out; with always, edits aren't asked about.",
        preview=text,
        files=(FileState(path=str(path), sha256=sha256, on_disk=sha256),),
        choices=("proceed_once", "proceed_always", "modify", "reject", "cancel"),
        always={"proceed_always": "every edit while the plan is carried out"},
        note="The plan file changed since it was shown; this is the new text." if again else None,
    )


@node(reads=(*CALL, "approval", "hooked"), writes=("status",), labels=("decided", "hooks", "changed since"))
async def take_review(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """What was read is what is approved: a file that changed meanwhile is shown again."""
    deps, key, call = attempt_at(state, runtime)
    request, answer = answered(deps, state["approval"])
    note_person(runtime, key, state["approval"], answer)
    if answer.choice in ("reject", "cancel"):
        deps.journal.finish(key, call, _refused(answer))
        return _over(state, "cancel" if answer.choice == "cancel" else "succeed", "decided")
    file = request.files[0]
    edited = (answer.args or {}).get("plan") if answer.choice == "modify" else None
    if isinstance(edited, str) and edited.strip():
        await to_its_end(asyncio.to_thread(deps.plans.write, Path(file.path), edited, str(key)))
        text = edited
    elif deps.toolset.now(file.path) != file.on_disk:
        return {"label": "changed since"}
    else:
        text = request.preview
    record = deps.transcript.append("", [Message(role="tool", name=call.name, content=text)])
    deps.journal.finish(key, call, _approved(request, answer, text, record))
    return _over(state, "succeed", "decided")


def _refused(answer: Answer) -> ToolResult:
    if answer.choice == "cancel":
        stopped = cancelled(render("plan/cancelled"))
        return stopped.model_copy(update={"stop": "cancelled by the user", "meta": {"plan": "cancel"}})
    prompt = "plan/rejected" if answer.feedback else "plan/rejected_silently"
    values = {"feedback": answer.feedback} if answer.feedback else {}
    meta: dict[str, JsonValue] = {"plan": "reject", "feedback": answer.feedback, "summary": "rejected"}
    return ToolResult(status="success", content=render(prompt, **values), meta=meta)


def _approved(request: ApprovalRequest, answer: Answer, text: str, record: str) -> ToolResult:
    asked = (answer.args or {}).get("approval_mode") if answer.choice == "modify" else None
    automatic = asked == "auto_edit" or answer.choice == "proceed_always"
    mode = "auto_edit" if automatic else "default"
    path = request.files[0].path
    meta: dict[str, JsonValue] = {
        "plan": f"approve_{mode}",
        "plan_file": path,
        "plan_text": record,
        "plan_steps": [{"text": s["text"], "done": s["done"]} for s in parse_steps(text)],
        "summary": f"approved, into {mode}",
    }
    return ToolResult(status="success", content=render("plan/approved", file=path, plan=text), meta=meta)


@node(reads=(*CALL, "hooked"), writes=("approval",), labels=("asked", "notify"))
async def ask_outcome(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Only a person can tell whether it happened; the preview is what was about to run."""
    deps, key, call = attempt_at(state, runtime)
    reason = (
        "The run, or what ran this, was killed or fell silent meanwhile, so it may or may not have taken effect. "
        "Look, then answer redo (run it again) or skip (tell the model that the outcome is unknown)."
    )
    request = ApprovalRequest(
        key=f"{key}:outcome:1",
        kind="outcome",
        call=call,
        reason=reason,
        preview=deps.toolset.summary(call),
        choices=("proceed_once", "reject"),
        questions=({"question": reason, "options": ["redo", "skip"]},),
    )
    put_request(runtime, request)
    return {"label": asked(state), "approval": request.key}


@node(reads=(*CALL, "approval", "status"), writes=("attempt", "approval", "status"), labels=("redo", "skip"))
async def apply_outcome(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Redo is a new attempt with the same arguments; skip closes this one."""
    deps, key, call = attempt_at(state, runtime)
    _, answer = answered(deps, state["approval"])
    redo = answer.choice == "proceed_once"
    note_person(runtime, key, state["approval"], answer, key.next.attempt if redo else 0)
    text = load("run/call_unknown_outcome").text()
    deps.journal.finish(key, call, failure("unknown_outcome", text))
    await deps.snapshots.after(key)
    if redo:
        deps.journal.amend(key.next, call)
        return {"label": "redo", "attempt": key.next.attempt, "approval": "", "status": "scheduled"}
    return {"label": "skip", "status": moved("scheduled", "execute", "fail")}


def after_subagent(state: ExecuteState) -> Literal["done", "hooks"]:
    return "hooks" if is_result_for_hooks(state) else "done"
