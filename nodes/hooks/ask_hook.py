"""ask_hook: write the request about hooks whose effect a kill hid."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._requests import put_request
from interlock.state.calls import ApprovalRequest, CallView
from interlock.state.deps import Deps


class AskHookIn(TypedDict, total=False):
    approval: str
    """`HookOutcome.unknown`, as the node that fired wrote it."""


class AskHookOut(TypedDict, total=False):
    approval: str


async def ask_hook(state: AskHookIn, runtime: Runtime[Deps]) -> AskHookOut:
    """Only a person can tell; `await_person` stops for the answer, and the hook's own node reads it by firing again."""
    unknown = state["approval"]
    found = runtime.context.hooks.unsettled(unknown)
    commands = "\n".join(found.commands)
    subject = f" for {found.subject}" if found.subject else ""
    reason = (
        f"The run was killed while hooks of {found.event}{subject} ran, so they may or may not have taken effect. "
        "Look, then answer redo (run them again) or skip (go on as if they hadn't been there)."
    )
    request = ApprovalRequest(
        key=unknown,
        kind="outcome",
        call=CallView(id=unknown, name=found.event, args={"command": commands}),
        reason=reason,
        preview=commands,
        choices=("proceed_once", "reject"),
        questions=({"question": reason, "options": ["redo", "skip"]},),
    )
    put_request(runtime, request)
    return {"approval": unknown}
