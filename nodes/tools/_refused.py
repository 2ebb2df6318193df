"""_refused: what a batch's refusals and successes make of a run's refusals."""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from interlock.state.calls import CallView, ToolResult
from interlock.state.refused import EFFECTS, Refusals, Refused

_WHO = {"policy_violation": "policy", "rejected": "person", "blocked_by_hook": "hook"}
"""Type of a result's error → who refused."""
_REASON = 300
"""Characters of a reason in the state."""


def refusals_after(
    before: Refusals, batch: Sequence[tuple[CallView, ToolResult]], risk: Callable[[str], str]
) -> Refusals:
    """A refused call with an effect is made up for by one of its kind that succeeds in a later batch, once the model
    knows of the refusal; one without by any. Nobody needs an answer to a question. A person who lets another call of
    the batch change something has chosen among them: that no fails nothing."""
    worked = {risk(call.name) for call, result in batch if _worked(result)}
    after = {kind: _settled(kind, refused, worked) for kind, refused in before.items()}
    for call, result in batch:
        for kind, found in _refusals(call, result, risk(call.name)):
            earlier = after.pop(kind, None)  # the newest stands last
            chosen = found["who"] == "person" and not worked.isdisjoint(EFFECTS)
            after[kind] = _added(earlier, {**found, "open": found["open"] and not chosen})
    return after


def _added(earlier: Refused | None, found: Refused) -> Refused:
    """One that is open isn't hidden by one that isn't."""
    if earlier is None:
        return found
    shown = earlier if earlier["open"] and not found["open"] else found
    return {**shown, "times": earlier["times"] + found["times"]}


def _settled(kind: str, refused: Refused, worked: set[str]) -> Refused:
    made_up = kind in worked if kind in EFFECTS else bool(worked)
    return {**refused, "open": refused["open"] and not made_up}


def _worked(result: ToolResult) -> bool:
    """A command that ended with another code than 0, or by a signal, made up for nothing."""
    ended = (result.meta.get("exit_code") or 0, result.meta.get("signal"))
    return result.status == "success" and ended == (0, None)


def _refusals(call: CallView, result: ToolResult, kind: str) -> Iterator[tuple[str, Refused]]:
    """The call's own, or those of a sub-agent."""
    inside = result.meta.get("refused")
    if isinstance(inside, dict):
        yield from cast(Refusals, inside).items()
    elif who := _WHO.get((result.error or {}).get("type", "")):
        yield kind, _refused(call, result, who, kind)


def _refused(call: CallView, result: ToolResult, who: str, kind: str) -> Refused:
    meta = result.meta
    by = meta.get("rule") or meta.get("by") or meta.get("hook") or ""
    why = meta.get("why") if "why" in meta else (result.error or {}).get("message")
    reason = " ".join(str(why or "").split())[:_REASON]
    needed = kind != "question"
    return {"tool": call.name, "who": who, "by": str(by), "reason": reason, "times": 1, "open": needed}
