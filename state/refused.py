"""refused: the calls that somebody said no to since the prompt, and whether the run could do without them."""

from collections.abc import Mapping
from typing import Any, cast

from typing_extensions import TypedDict


class Refused(TypedDict, total=False):
    """The newest call of one kind that policy, a person or a hook said no to."""

    tool: str
    who: str
    """policy | person | hook"""
    by: str
    """The rule, the person or the hook."""
    reason: str
    times: int
    """Calls of the kind that were refused."""
    open: bool
    """Nothing made up for it: a run that ends now has failed for it."""


Refusals = dict[str, Refused]
"""Kind of call (its tool's risk) → what was refused of it."""
EFFECTS = ("write", "execute", "network")
"""Kinds that change something outside the run: only a later call of the same kind makes up for a refusal."""


def open_refusal(refusals: Refusals) -> Refused | None:
    """What a run that ends now has failed for, first what would have had an effect."""
    found = [refused for kind, refused in refusals.items() if refused["open"] and kind in EFFECTS]
    return (found or [refused for refused in refusals.values() if refused["open"]] or [None])[-1]


def refusals_in(values: Mapping[str, Any]) -> Refusals:
    """Those of a state. A store of before 0.2 holds one open refusal instead, with `effect`."""
    stored: dict[str, Any] = values.get("refused") or {}
    if "effect" not in stored:
        return stored
    kind = "write" if stored["effect"] else "read"
    return {kind: cast(Refused, {**stored, "times": 1, "open": True})}


_WHO = {"policy": "a rule", "person": "a person", "hook": "a hook"}


def said(refused: Refused) -> str:
    """`'write_file' was refused by a person (ann@host): not b`"""
    by = f" ({refused['by']})" if refused["by"] else ""
    reason = f": {refused['reason']}" if refused["reason"] else ""
    return f"{refused['tool']!r} was refused by {_WHO[refused['who']]}{by}{reason.rstrip('.')}"


def warnings_of(refusals: Refusals) -> list[str]:
    """A line for each kind of call that the run did without."""
    shown = [refused for refused in refusals.values() if not refused["open"]]
    more = [f", as were {r['times'] - 1} more of its kind" if r["times"] > 1 else "" for r in shown]
    return [
        f"{said(refused)}{rest}. The run went on without it."
        for refused, rest in zip(shown, more, strict=True)
    ]
