"""_refused: the call that somebody said no to and that nothing made up for since."""

from collections.abc import Callable, Sequence

from interlock.state.calls import CallView, ToolResult
from interlock.state.refused import Refused

_WHO = {"policy_violation": "policy", "rejected": "person", "blocked_by_hook": "hook"}
"""Type of a result's error → who refused."""
_HARMLESS = frozenset({"read", "question", "state"})
_REASON = 500
"""Characters of a reason in the state."""


def standing(
    before: Refused, batch: Sequence[tuple[CallView, ToolResult]], risk: Callable[[str], str]
) -> Refused:
    """After a batch, in the calls' order. A refused call with an effect is made up for by a later one that succeeds;

    one without by any. A harmless refusal doesn't hide one that matters.
    """
    now = before
    for call, result in batch:
        effect = risk(call.name) not in _HARMLESS
        if result.status == "success":
            now = Refused() if effect or not now.get("effect") else now
        elif (who := _WHO.get((result.error or {}).get("type", ""))) and (effect or not now.get("effect")):
            now = _refused(call, result, who, effect)
    return now


def _refused(call: CallView, result: ToolResult, who: str, effect: bool) -> Refused:
    meta = result.meta
    by = meta.get("rule") or meta.get("by") or meta.get("hook") or ""
    why = meta.get("why") if "why" in meta else (result.error or {}).get("message")
    reason = " ".join(str(why or "").split())[:_REASON]
    return {"tool": call.name, "who": who, "by": str(by), "reason": reason, "effect": effect}
