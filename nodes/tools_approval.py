"""tools_approval: calls a person decides on: write the request, apply the decision, mark the call `ready`."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from langgraph.runtime import Runtime

from interlock.nodes.guessed_encodings import encoding_note
from interlock.nodes.requests import (
    has_server_changed,
    rejection_result,
    require_request_and_answer,
    write_request_and_route,
)
from interlock.nodes.tools_results import (
    CALL,
    MODES,
    WITHOUT_RUN,
    answer_call_without_running,
    call_status_after_events,
    find_seen_files,
    load_deps_key_and_call,
    load_earlier_calls,
    record_person_decision,
)
from interlock.prompts import load_prompt
from interlock.state.calls import (
    EDITS_ONLY,
    Answer,
    ApprovalRequest,
    CallOutcome,
    CallView,
    Preview,
    Risk,
    SessionRule,
    ToolResult,
    Verdict,
    cancelled_result,
    error_result,
)
from interlock.state.deps import Deps, await_despite_cancel
from interlock.state.errors import RunError
from interlock.state.events import Emit, ErrorEvent
from interlock.state.node import node
from interlock.state.tooling import ToolInfo
from interlock.state.tools import DecideState, ExecuteState

_STALE = "It was asked before; the files have changed since, so the preview is new."
_ANOTHER = "It was asked before; the MCP server of this name is another program or address now."
_CORRECTED = "What the edit looked for isn't in the file; a helper model corrected it, as the preview shows."
_BY_HOOK = "A hook changed the arguments that the model gave; the preview is of the changed ones."


@node(
    reads=(
        *(*CALL, *MODES, "approval", "asks", "by_hook", "hook_reason", "verdict", "hooked"),
        *("edit_status", "status"),
    ),
    writes=("asks", "approval", "status"),
    labels=("asked", "notify", "answered"),
    group="questions",
    moves=("ask", "ask_again", "fail", "schedule execute succeed"),
)
async def request_approval(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """The request's reason names the rule, heuristic or hook that asks."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    risk = require_tool_info(deps, call).risk
    verdict = Verdict.model_validate(state["verdict"])
    earlier = load_earlier_calls(deps, key.message, key.index)
    preview = await deps.toolset.preview_call(call, earlier, find_seen_files(deps, key))
    if preview.problem is not None:
        refusal = _preview_problem_result(preview, can_trust_previews(deps, earlier))
        return answer_call_without_running(deps, state, call, refusal, "answered")
    if preview.done and not state.get("hook_reason"):
        done = ToolResult(status="success", content=preview.done)
        return answer_call_without_running(deps, state, call, done, "answered", *WITHOUT_RUN)
    asks = state["asks"] + 1
    mode = effective_approval_mode(deps, risk, state)
    choices = await asyncio.to_thread(deps.policy.offered_choices, call, risk, verdict, mode)
    rules = ((c, deps.policy.session_rule_for_choice(call, risk, c, mode)) for c in choices if "always" in c)
    request = ApprovalRequest(
        attempt=key,
        asked=asks,
        kind="approval",
        call=call,
        reason=_approval_request_reason(state, verdict),
        preview=preview.text,
        parts=verdict.parts,
        files=preview.files,
        choices=choices,
        always={choice: rule.scope_text for choice, rule in rules if rule is not None},
        parameters=_editable_parameter_names(deps, call),
        note=" ".join(filter(None, (_approval_request_note(deps, state), encoding_note(preview)))) or None,
        confirms=preview.confirms,
    )
    event = "ask_again" if state["asks"] and state["status"] == "awaiting_approval" else "ask"
    status = call_status_after_events(state["status"], event)
    return {**write_request_and_route(runtime, state, request), "asks": asks, "status": status}


def _editable_parameter_names(deps: Deps, call: CallView) -> tuple[str, ...]:
    """The arguments that the tool's schema declares, and those that the call has; empty: the schema takes any."""
    names = (call.name, require_tool_info(deps, call).name)
    declared = (d.parameters for d in deps.toolset.declare_tools() if d.name in names)
    schema: dict[str, Any] = next(declared, dict[str, Any]())
    if "properties" not in schema or schema.get("additionalProperties") or schema.get("patternProperties"):
        return ()
    return tuple(dict.fromkeys((*schema["properties"], *call.args)))


def _preview_problem_result(preview: Preview, is_final: bool) -> ToolResult:
    """What can't be previewed can't be approved, so it isn't run, even if earlier calls might make it possible."""
    later = "" if is_final else " " + load_prompt("run/call_too_early").render()
    result = error_result(preview.code or "not_possible", f"{preview.problem}{later}")
    return result.model_copy(update={"seen": preview.seen})


def _approval_request_reason(state: DecideState, verdict: Verdict) -> str:
    by_policy = verdict.reason if verdict.decision == "ask" else ""
    return " ".join(part for part in (state.get("hook_reason"), by_policy) if part) or verdict.reason


def _approval_request_note(deps: Deps, state: DecideState) -> str | None:
    if state["asks"] and state["status"] == "awaiting_approval":
        before = deps.approvals.find_request(state["approval"])
        return _ANOTHER if before is not None and has_server_changed(deps, before) else _STALE
    if state.get("by_hook"):
        return _BY_HOOK
    return _CORRECTED if state.get("edit_status") else None


@node(
    reads=(*CALL, *MODES, "approval", "rules", "status"),
    writes=("attempt", "by_person", "by_hook", "hook_reason", "status"),
    labels=("proceed", "modify", "changed since", "reject", "cancel"),
    group="questions",
    moves=("modify", "fail", "cancel"),
)
async def apply_decision(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """A decision is bound to what was shown: if a file changed since, the request is made again."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    request, answer = require_request_and_answer(deps, state["approval"])
    amends = answer.choice == "modify"
    record_person_decision(runtime, key, state["approval"], answer, key.next_attempt.attempt if amends else 0)
    if answer.choice == "reject":
        return answer_call_without_running(deps, state, call, rejection_result(answer), "reject")
    if answer.choice == "cancel":
        text = load_prompt("run/call_cancelled").render(reason="the user cancelled it")
        return answer_call_without_running(deps, state, call, cancelled_result(text), "cancel", "cancel")
    if request.confirms:
        deps.toolset.confirm_encoding(request.confirms)
    # Files that changed on disk since the request was shown.
    if any(
        deps.toolset.current_file_digest(file.path) != file.on_disk for file in request.files
    ) or has_server_changed(deps, request):
        return {"label": "changed since"}
    if amends:
        deps.journal.record_changed_arguments(
            key.next_attempt, CallView(id=call.id, name=call.name, args=answer.args or {})
        )
        status = call_status_after_events(state["status"], "modify")
        theirs: DecideState = {"by_person": True, "by_hook": False, "hook_reason": ""}
        return {**theirs, "label": "modify", "attempt": key.next_attempt.attempt, "status": status}
    if await _is_denied_by_current_rules(deps, state, call):
        return {"label": "changed since"}
    if info := deps.toolset.find_tool_info(call.name):
        mode, emit = effective_approval_mode(deps, info.risk, state), runtime.stream_writer
        rule = deps.policy.session_rule_for_choice(call, info.risk, answer.choice, mode)
        await store_always_choice(deps, state["approval"], info.risk, rule, answer, emit)
    return {"label": "proceed"}


async def _is_denied_by_current_rules(deps: Deps, state: DecideState, call: CallView) -> bool:
    """Days may pass between question and answer: a deny rule added meanwhile applies."""
    info = deps.toolset.find_tool_info(call.name)
    if info is None:
        return False  # reported when the call runs
    if state.get("rules") == deps.policy.rules_fingerprint():
        return False
    mode = effective_approval_mode(deps, info.risk, state)
    return (await deps.policy.decide_by_rules_and_checkers(call, info.risk, mode, ())).decision == "deny"


async def store_always_choice(
    deps: Deps, request: str, risk: Risk, rule: SessionRule | None, answer: Answer, emit: Emit
) -> None:
    """Keep an always-choice as a rule of this run, and of later ones if the person wanted that; None: it is none."""
    if rule is None:
        return
    deps.approvals.add_session_rule(request, rule)
    if answer.choice == "proceed_always_and_save":
        at = datetime.fromtimestamp(answer.at, UTC).isoformat(timespec="seconds")
        note = f"{at}, run {deps.info.run}" + (f", by {answer.by}" if answer.by else "")
        try:
            saved = await await_despite_cancel(asyncio.to_thread(deps.policy.save_rule, risk, rule, note))
            if saved:
                deps.approvals.accept_saved_rules(saved)
        except RunError as error:  # the decision stands; later runs will ask again
            emit(ErrorEvent(severity="warning", message=str(error)))


def effective_approval_mode(deps: Deps, risk: Risk, state: DecideState | ExecuteState) -> str:
    """Return the approval mode that decides on calls of a risk: a person who allowed all edits of a run or of a plan,
    and didn't choose the mode, allowed nothing else.
    """
    mode = state["approval_mode"]
    chosen = (
        state.get("chosen_mode") or deps.info.approval_mode
    )  # a run of an earlier version keeps only options
    granted = mode == "auto_edit" != chosen
    return EDITS_ONLY if granted and risk != "write" else mode


def require_tool_info(deps: Deps, call: CallView) -> ToolInfo:
    info = deps.toolset.find_tool_info(call.name)
    if info is None:
        raise RunError(
            f"Tool {call.name!r} was removed after the call was decided. Put it back, then resume."
        )
    return info


def can_trust_previews(deps: Deps, earlier: Sequence[CallView]) -> bool:
    """Whether previews of later calls hold: not if a command may change any file before they run."""
    infos = (deps.toolset.find_tool_info(call.name) for call in earlier)
    return not any(info is not None and info.effect == "other" for info in infos)


@node(
    reads=("index", "attempt", "by_hook", "by_person", "approval", "status"),
    writes=("status", "decided"),
    moves=("schedule",),
)
async def ready(state: DecideState) -> DecideState:
    outcome: CallOutcome = {
        "word": "ready",
        "attempt": state["attempt"],
        "approval": state["approval"],
        "by_hook": state.get("by_hook", False),
        "by_person": state["by_person"],
    }
    status = call_status_after_events(state["status"], "schedule")
    return {"status": status, "decided": {str(state["index"]): outcome}}
