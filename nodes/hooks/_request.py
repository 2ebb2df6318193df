"""_request: what a person is asked about hooks whose effect a kill hid."""

from langgraph.runtime import Runtime

from interlock.nodes.tools._requests import put_request
from interlock.state.calls import ApprovalRequest, CallView
from interlock.state.deps import Deps


def ask_about(unknown: str, runtime: Runtime[Deps]) -> None:
    """Write the request that `HookOutcome.unknown` names. Only a person can tell; firing again reads the answer."""
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
