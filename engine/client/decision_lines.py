"""decision_lines: who decided what of a call, and what it came to, in words."""

import time
from collections.abc import Mapping
from typing import Any

from interlock.engine.read.calls import Call
from interlock.state.clock import unix_time
from interlock.state.text import format_duration, to_one_line

_CHOICES = {
    "proceed_once": "once",
    "proceed_always_edits": "with all later edits",
    "proceed_always": "not asked again in this run",
    "proceed_always_tool": "this tool isn't asked about again in this run",
    "proceed_always_server": "this server isn't asked about again in this run",
    "proceed_always_and_save": "not asked again in later runs",
}
_CHANGERS = {"helper": "a helper model", "person": "a person", "program": "Interlock"}
_REASON = 100

DecisionRow = Mapping[str, Any]


def format_call_decisions(call: Call) -> str:
    """`allowed by default rule default.toml:12`, `approved by ann at 09:02 (once)`, `blocked by hook lint: …`."""
    lines: list[str] = []
    for number, decision in enumerate(call.decided):
        later = call.decided[number + 1 :]
        if decision["by"] == "policy" and not _is_policy_decision_shown(decision, later):
            continue
        lines += [text for text in (format_decision(decision), format_argument_change(decision)) if text]
    return " · ".join(dict.fromkeys(lines))


def _is_policy_decision_shown(decision: DecisionRow, later_decisions: list[dict[str, Any]]) -> bool:
    """Whether a policy verdict counts: an answered ask and a verdict on arguments changed later don't."""
    if any(other["by"] == "policy" for other in later_decisions):
        return False
    ended = any(
        other["by"] == "person" or other["decision"] in ("block", "stop") for other in later_decisions
    )
    return decision["decision"] != "ask" or not ended


def format_decision(decision: DecisionRow) -> str:
    """Who decided what, in a line; empty: nothing worth one."""
    by = {
        "policy": _format_policy_decision,
        "hook": _format_hook_decision,
        "person": _format_person_decision,
    }.get(str(decision.get("by")))
    return by(decision) if by else ""


def _format_policy_decision(decision: DecisionRow) -> str:
    if "session" in decision:
        giver = f", by {decision['who']}" if decision.get("who") else ""
        return f"allowed by an earlier decision ({decision['rule'].removeprefix('session: ')}{giver})"
    verb = {"allow": "allowed", "ask": "held for approval", "deny": "denied"}[decision["decision"]]
    return f"{verb} by {to_one_line(decision['rule'])}"


def _format_hook_decision(decision: DecisionRow) -> str:
    word, reason = decision["decision"], to_one_line(str(decision.get("reason", "")), _REASON)
    why = f": {reason}" if reason else ""
    if word == "ask":
        return f"{decision['who']} asked for a person{why}"
    if word == "stop":
        return f"run ended by {decision['who']}{why}"
    if word == "block":
        what = "result held back" if decision.get("event") == "AfterTool" else "blocked"
        return f"{what} by {decision['who']}{why}"
    return ""


def _format_person_decision(decision: DecisionRow) -> str:
    choice, kind = str(decision["decision"]), str(decision.get("request", "")).rsplit(":", 2)[-2:-1]
    words = to_one_line(str(decision.get("said", "")), _REASON)
    at = f"by {decision.get('who') or 'somebody'} at {format_local_time(decision.get('said_at') or decision['at'])}"
    quoted = f" “{words}”" if words else ""
    word, manner = choice_verb_and_suffix("".join(kind), choice)
    return f"{word} {at}{manner}{quoted}"


def choice_verb_and_suffix(kind: str, choice: str) -> tuple[str, str]:
    """What a person did with a request of this kind, and how: `("approved", " (once)")`."""
    if choice == "cancel":
        return "cancelled", ""
    if kind == "outcome":
        return ("run again" if choice == "proceed_once" else "left with its outcome unknown"), ""
    if kind == "question":
        return ("not answered" if choice == "reject" else "answered"), ""
    if choice == "reject":
        return "rejected", ""
    return "approved", f" ({'rewritten' if choice == 'modify' else _CHOICES.get(choice, choice)})"


def format_argument_change(decision: DecisionRow) -> str:
    if not decision.get("becomes") or decision.get("before") == decision.get("after"):
        return ""
    by = decision.get("who") if decision["by"] == "hook" else _CHANGERS.get(str(decision["by"]), "")
    return f"arguments changed by {by}"


def call_status_text(call: Call) -> str:
    """How the call ended, or `running for 9 s`, `outcome unknown`, `not run yet`."""
    if call.under_way and call.started:
        return f"running for {format_duration(unix_time() - call.started)}"
    open_ = {"intent": "outcome unknown", "scheduled": "not run yet"}
    return "failed" if call.failed else call.status or open_[call.state]


def format_local_time(at: float) -> str:
    """Local time as `09:02:41`, with the date unless it is today's."""
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)
