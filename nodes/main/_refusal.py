"""_refusal: the error of a run that ended without what somebody refused it."""

from interlock.state.refused import Refused, said

_NEXT = {
    "policy": "Change the rule",
    "person": "Approve it next time",
    "hook": "Change the hook",
}


def refusal(refused: Refused, run: str) -> dict[str, str]:
    """`{type, message}`: what was refused and by whom, and how to go on."""
    message = (
        f"{said(refused)}. The run ended without it. {_NEXT[refused['who']]}, or say another way: "
        f"interlock resume {run} -p 'what to do instead'"
    )
    return {"type": "refused", "message": message}
