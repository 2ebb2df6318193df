"""_refused: the call that somebody said no to and that nothing made up for since."""

from collections.abc import Callable, Sequence

from pydantic import JsonValue

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
        found = _refusal(call, result, effect)
        if found is None and result.status == "success":
            now = Refused() if effect or not now.get("effect") else now
        elif found is not None and (found["effect"] or not now.get("effect")):
            now = found
    return now


def refused_meta(refused: Refused) -> dict[str, JsonValue]:
    """For the result of a sub-agent that a call was refused to."""
    return {
        "tool": refused["tool"],
        "who": refused["who"],
        "by": refused["by"],
        "reason": refused["reason"],
        "effect": refused["effect"],
    }


def _refusal(call: CallView, result: ToolResult, effect: bool) -> Refused | None:
    inside = result.meta.get("refused")  # of a sub-agent that could not do without it
    if isinstance(inside, dict):
        tool, who, by, reason = (str(inside[key]) for key in ("tool", "who", "by", "reason"))
        return {"tool": tool, "who": who, "by": by, "reason": reason, "effect": bool(inside["effect"])}
    who = _WHO.get((result.error or {}).get("type", ""))
    return None if who is None else _refused(call, result, who, effect)


def _refused(call: CallView, result: ToolResult, who: str, effect: bool) -> Refused:
    meta = result.meta
    by = meta.get("rule") or meta.get("by") or meta.get("hook") or ""
    why = meta.get("why") if "why" in meta else (result.error or {}).get("message")
    reason = " ".join(str(why or "").split())[:_REASON]
    return {"tool": call.name, "who": who, "by": str(by), "reason": reason, "effect": effect}
