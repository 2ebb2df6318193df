"""_refusal: the error of a run that ended without what somebody refused it."""

from interlock.state.refused import Refused

_WHO = {"policy": "a rule", "person": "a person", "hook": "a hook"}
_NEXT = {
    "policy": "Change the rule",
    "person": "Approve it next time",
    "hook": "Change the hook",
}


def refusal(refused: Refused, run: str) -> dict[str, str]:
    """`{type, message}`: what was refused and by whom, and how to go on."""
    by = f" ({refused['by']})" if refused["by"] else ""
    reason = f": {refused['reason']}" if refused["reason"] else ""
    message = (
        f"{refused['tool']!r} was refused by {_WHO[refused['who']]}{by}{reason.rstrip('.')}. "
        f"The run ended without it. {_NEXT[refused['who']]}, or say another way: "
        f"interlock resume {run} -p 'what to do instead'"
    )
    return {"type": "refused", "message": message}
