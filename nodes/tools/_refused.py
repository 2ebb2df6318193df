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
    """What stands after a batch. A refused call with an effect is made up for by one that succeeds in a later batch,
    once the model knows of the refusal; one without by any. A harmless refusal doesn't hide one that matters."""
    refusals: list[Refused] = []
    for call, result in batch:
        effect = risk(call.name) not in _HARMLESS
        found = _refusal(call, result, effect)
        if found is not None:
            refusals.append(found)
        elif _worked(result) and (effect or not before.get("effect")):
            before = Refused()
    last = next((r for r in reversed(refusals) if r["effect"]), refusals[-1] if refusals else None)
    if last is None or (before.get("effect") and not last["effect"]):
        return before
    return last


def _worked(result: ToolResult) -> bool:
    """A command that ended with another code than 0, or by a signal, made up for nothing."""
    ended = (result.meta.get("exit_code") or 0, result.meta.get("signal"))
    return result.status == "success" and ended == (0, None)


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
