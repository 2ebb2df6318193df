"""conversation: what the graphs around turns and calls share of their state: how it begins, and what was refused."""

from collections.abc import Mapping
from typing import Any, cast

from typing_extensions import TypedDict

from interlock.state.loop_check import FIRST_CHECK, INTERVAL, LoopWatch


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


def refusal_line(refused: Refused) -> str:
    """`'write_file' was refused by a person (ann@host): not b`"""
    by = f" ({refused['by']})" if refused["by"] else ""
    reason = f": {refused['reason']}" if refused["reason"] else ""
    return f"{refused['tool']!r} was refused by {_WHO[refused['who']]}{by}{reason.rstrip('.')}"


def warnings_of(refusals: Refusals) -> list[str]:
    """A line for each kind of call that the run did without."""
    shown = [refused for refused in refusals.values() if not refused["open"]]
    more = [f", as were {r['times'] - 1} more of its kind" if r["times"] > 1 else "" for r in shown]
    return [
        f"{refusal_line(refused)}{rest}. The run went on without it."
        for refused, rest in zip(shown, more, strict=True)
    ]


class Sized(TypedDict, total=False):
    """What the size of a conversation is taken from, and what compression changes of it."""

    head: str
    """Newest record of the conversation."""
    model: str
    """As asked for: alias or id."""
    sticky_model: str
    """The model that this prompt is answered by; empty until the first turn chose it."""
    last_prompt_tokens: int
    """As the provider counted them; 0: not known, or no longer true: the conversation is estimated."""
    compress_failed_at: int
    """Tokens at which the last compression failed; 0: none failed since the last that didn't."""
    todos: str
    """Chain record (detached) of the newest list of steps; empty: none."""


class Conversation(LoopWatch, Sized, total=False):
    """What a turn shares with the graph that it is a part of."""

    unavailable: dict[str, str]
    """Model → for how long nobody may choose it: `run` or `prompt`."""
    max_turns: int
    """Of one prompt; for a sub-agent its own limit, and one more for the last chance."""
    max_session_turns: int
    turn_no: int
    """Model turns of this prompt so far."""
    session_turns: int
    """Model turns of the run so far."""
    ide_given: str
    """Chain record (detached) of the input's `ide`; empty: there is none."""
    ide_told: str
    """Chain record (detached) of what was last told of the user's editor; empty: nothing."""
    turn_status: str
    """How the last turn ended (`TurnOutput.status`)."""
    reply: str
    """Chain record of the last turn's answer."""
    finish_reason: str
    error: dict[str, str]
    """`{type, message}`; empty: none."""


def fresh_prompt() -> Conversation:
    """What begins anew with each prompt: limits, the model's choice, loop detection."""
    return {
        "turn_no": 0,
        "sticky_model": "",
        "turn_status": "",
        "error": {},
        "loop_keys": [],
        "loop_count": 0,
        "loop_interval": INTERVAL,
        "loop_next": FIRST_CHECK,
        "loop_found": {},
    }


def fresh_conversation() -> Conversation:
    """What begins anew with a conversation."""
    return {
        **fresh_prompt(),
        "session_turns": 0,
        "last_prompt_tokens": 0,
        "compress_failed_at": 0,
        "todos": "",
        "ide_told": "",
        "unavailable": {},
    }


class BatchEnd(TypedDict, total=False):
    """What a batch of calls tells of its end, and of what was refused in it."""

    stop: str
    """Why the run must end after this batch; empty: it goes on."""
    stopped_by: str
    """`person` or `hook`, when it must."""
    refused: Refusals
    """What somebody refused since the prompt."""


MISTAKES = frozenset(
    {
        *(
            "invalid_tool_params",
            "tool_not_registered",
            "mode_restriction",
            "repeated_call",
            "mcp_unavailable",
        ),
        *("no_occurrence", "occurrence_mismatch", "no_change", "invalid_diff", "omission_placeholder"),
    }
)
"""Types of a call's error that count: what a model that pays attention doesn't do."""


class LoopEnd(TypedDict, total=False):
    """What a batch tells the task loop."""

    completed: str
    """Chain record (detached) of the result that was handed over; empty: none was."""
    subtask: str
    """Chain record (detached) with the subtask that was asked for, as JSON; empty: none was."""
    mistaken: bool
    """A call of the batch was a mistake (`MISTAKES`), and none was without."""


LOOP_END = ("completed", "subtask", "mistaken")
