"""conversation: state shared by the graphs around turns and calls: resets, sizes, and refused calls."""

from collections.abc import Mapping
from typing import Any, cast

from typing_extensions import TypedDict

from interlock.state.loop_check import FIRST_CHECK, INTERVAL, LoopWatch


class Refused(TypedDict, total=False):
    """The newest call of one kind refused by policy, a person or a hook."""

    tool: str
    who: str
    """policy | person | hook"""
    by: str
    """The rule, the person or the hook."""
    reason: str
    times: int
    """Number of refused calls of this kind."""
    open: bool
    """No later call made up for it: a run that ends now fails because of it."""


Refusals = dict[str, Refused]
"""Kind of call (its tool's risk) → its refusals."""
EFFECTS = ("write", "execute", "network")
"""Kinds with effects outside the run: only a later call of the same kind makes up for a refusal."""


def find_open_refusal(refusals: Refusals) -> Refused | None:
    """The refusal that fails a run ending now; kinds with effects first."""
    found = [refused for kind, refused in refusals.items() if refused["open"] and kind in EFFECTS]
    return (found or [refused for refused in refusals.values() if refused["open"]] or [None])[-1]


def refusals_from_state(values: Mapping[str, Any]) -> Refusals:
    """Refusals in a state. Stores from before 0.2 hold a single open refusal, with `effect`."""
    stored: dict[str, Any] = values.get("refused") or {}
    if "effect" not in stored:
        return stored
    kind = "write" if stored["effect"] else "read"
    return {kind: cast(Refused, {**stored, "times": 1, "open": True})}


_WHO = {"policy": ("A rule", "denied"), "person": ("A person", "refused"), "hook": ("A hook", "blocked")}


def format_refusal(refused: Refused) -> str:
    """One line such as `A person (ann@host) refused 'write_file': not b`."""
    by = f" ({refused['by']})" if refused["by"] else ""
    reason = f": {refused['reason']}" if refused["reason"] else ""
    who, verb = _WHO[refused["who"]]
    return f"{who}{by} {verb} {refused['tool']!r}{reason.rstrip('.')}"


def settled_refusal_warnings(refusals: Refusals) -> list[str]:
    """One line for each kind of call that the run had to do without."""
    shown = [refused for refused in refusals.values() if not refused["open"]]
    more = [f", and {r['times'] - 1} more of its kind" if r["times"] > 1 else "" for r in shown]
    return [
        f"{format_refusal(refused)}{rest}. The run went on without it."
        for refused, rest in zip(shown, more, strict=True)
    ]


class Sized(TypedDict, total=False):
    """Inputs to the conversation's size, and what compression changes."""

    head: str
    """Newest record of the conversation."""
    model: str
    """As requested: alias or id."""
    sticky_model: str
    """The model answering this prompt; empty until the first turn chooses it."""
    last_prompt_tokens: int
    """As counted by the provider; 0: unknown or stale, so the conversation's size is estimated."""
    compress_failed_at: int
    """Tokens at which the last compression failed, or that it left where they are still too many; 0: neither."""
    todos: str
    """Chain record (detached) of the newest todo list; empty: none."""


class Conversation(LoopWatch, Sized, total=False):
    """State a turn shares with its parent graph."""

    unavailable: dict[str, str]
    """Model → how long it is unavailable: `run` or `prompt`."""
    max_turns: int
    """Per prompt; a sub-agent has its own limit, plus one for the last chance."""
    max_session_turns: int
    turn_no: int
    """Model turns in this prompt so far."""
    session_turns: int
    """Model turns in the run so far."""
    ide_given: str
    """Chain record (detached) of the input's `ide`; empty: none."""
    ide_told: str
    """Chain record (detached) of the editor state last sent to the model; empty: none."""
    turn_status: str
    """How the last turn ended (`TurnOutput.status`)."""
    reply: str
    """Chain record of the last turn's answer."""
    finish_reason: str
    error: dict[str, str]
    """`{type, message}`; empty: none."""


def initial_prompt_state() -> Conversation:
    """State reset for each prompt: limits, model choice, loop detection."""
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


def initial_conversation_state() -> Conversation:
    return {
        **initial_prompt_state(),
        "session_turns": 0,
        "last_prompt_tokens": 0,
        "compress_failed_at": 0,
        "todos": "",
        "ide_told": "",
        "unavailable": {},
    }


class BatchEnd(TypedDict, total=False):
    """How a batch of calls ended, and what was refused in it."""

    stop: str
    """Why the run must end after this batch; empty: it continues."""
    stopped_by: str
    """`person` or `hook`, if the run must end."""
    refused: Refusals
    """Refusals since the prompt."""


MISTAKES = frozenset(
    {
        *("invalid_tool_params", "tool_not_registered", "mode_restriction", "repeated_call"),
        *("open_todos", "mcp_unavailable"),
        *("no_occurrence", "occurrence_mismatch", "no_change", "invalid_diff", "omission_placeholder"),
    }
)
"""Error types that count as mistakes: an attentive model doesn't cause them."""


class LoopEnd(TypedDict, total=False):
    """What a batch reports to the task loop."""

    completed: str
    """Chain record (detached) of the submitted result; empty: none."""
    subtask: str
    """Chain record (detached) of the requested subtask as JSON; empty: none."""
    mistaken: bool
    """Any call of the batch was a mistake (`MISTAKES`)."""


LOOP_END = ("completed", "subtask", "mistaken")
