"""edit_rights: whether the edit that was found may be made, as for a call inside `tools`: by rules, or by a person."""

from langgraph.runtime import Runtime

from interlock.nodes.edit_subject import as_tried, problem
from interlock.nodes.tools_results import answered, by_policy, note, note_person, put_request, rejected
from interlock.prompts import load
from interlock.state.calls import ApprovalRequest, CallKey, CallView, Choice, Verdict
from interlock.state.deps import Deps
from interlock.state.edit import EditState
from interlock.state.node import node

_CHOICES: tuple[Choice, ...] = ("proceed_once", "reject", "cancel")
"""It is one edit, and whoever wants another writes another."""


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role", "approval_mode", "asks"),
    writes=("approval", "asks", "error"),
    labels=("allowed", "asked", "denied"),
)
async def check_rights(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """What a person is asked about is the edit as it would be made: with a helper's strings, if it is the helper's."""
    deps = runtime.context
    key, call = as_tried(deps, state)
    mode = state["approval_mode"]
    verdict = await deps.policy.decide(call, "write", mode, deps.approvals.session_rules())
    note(runtime, key, by_policy(verdict, mode))
    if verdict.decision == "deny":
        text = load("run/call_denied").text(tool=call.name, reason=verdict.deny_message or verdict.reason)
        return {"label": "denied", "error": problem("denied", text)}
    if verdict.decision == "allow":
        return {"label": "allowed", "error": {}}
    return await _asked(runtime, key, call, verdict, (state.get("asks") or 0) + 1)


async def _asked(
    runtime: Runtime[Deps], key: CallKey, call: CallView, verdict: Verdict, asks: int
) -> EditState:
    preview = await runtime.context.toolset.preview(call, [])
    if preview.problem is not None:
        return {"label": "denied", "error": problem(preview.code or "not_possible", preview.problem)}
    request = ApprovalRequest(
        key=f"{key}:approval:{asks}",
        kind="approval",
        call=call,
        reason=verdict.reason,
        preview=preview.text,
        files=preview.files,
        choices=_CHOICES,
    )
    put_request(runtime, request)
    return {"label": "asked", "approval": request.key, "asks": asks}


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role", "approval"),
    writes=("error",),
    labels=("proceed", "changed since", "refused"),
)
async def take_approval(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """A decision binds what was shown: when the file changed since, the edit is found anew."""
    deps = runtime.context
    key, _ = as_tried(deps, state)
    request, answer = answered(deps, state["approval"])
    note_person(runtime, key, state["approval"], answer)
    if answer.choice not in _CHOICES[1:]:
        changed = any(deps.toolset.now(file.path) != file.on_disk for file in request.files)
        return {"label": "changed since" if changed else "proceed", "error": {}}
    return {"label": "refused", "error": problem("rejected", rejected(answer).content)}
