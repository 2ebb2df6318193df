"""calls: a run's tool calls and who decided on each, in one line and in full."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from interlock.cli.render.output import Paint, cut, elapsed, one_line
from interlock.engine.client import Call, Client
from interlock.engine.client.requests import brief
from interlock.state.text import visible_json

_CALLS = 30
_MARKS = {"success": "✓", "cancelled": "–"}


def call_lines(client: Client, run: str, paint: Paint) -> Iterator[str]:
    """The newest calls with their results, each followed by who decided on it."""
    made = client.calls(run)
    if len(made) > _CALLS:
        yield paint(f"        … {len(made) - _CALLS} earlier calls: interlock show {run} --calls", "dim")
    for number, call in enumerate(made[-_CALLS:]):
        mark = "✗" if call.failed else _MARKS.get(call.status or "", "?" if call.state == "intent" else "·")
        took = f" · {elapsed(call.ms / 1000)}" if call.ms else ""
        what = {"intent": "outcome unknown", "scheduled": "not run yet"}.get(call.state, call.summary)
        about = f"{call.tool} {cut(brief(call.args), 60)} · {one_line(what, 80)}{took}"
        yield f"{'calls' if number == 0 else '':<8}{mark} {about}"
        if who := who_decided(call):
            yield paint(f"          {who}", "dim")


def calls_in_full(client: Client, run: str, paint: Paint) -> Iterator[str]:
    made = client.calls(run)
    if not made:
        yield f"Run {run} has made no call."
    for number, call in enumerate(made, 1):
        yield from call_in_full(number, call, paint)


_CHOICES = {
    "proceed_once": "once",
    "proceed_always": "always, here",
    "proceed_always_tool": "always, this tool",
    "proceed_always_server": "always, this server",
    "proceed_always_and_save": "always, saved",
}
_CHANGERS = {"helper": "a helper model", "person": "a person", "program": "Interlock"}
_REASON = 100

DecisionRow = Mapping[str, Any]


def who_decided(call: Call) -> str:
    """`allowed by default rule default.toml:12`, `approved by ann at 09:02 (once)`, `blocked by hook lint: …`."""
    lines: list[str] = []
    for number, decision in enumerate(call.decided):
        later = call.decided[number + 1 :]
        if decision["by"] == "policy" and not _stands(decision, later):
            continue
        lines += [text for text in (_sentence(decision), _change(decision)) if text]
    return " · ".join(dict.fromkeys(lines))


def _stands(decision: DecisionRow, later: list[dict[str, Any]]) -> bool:
    """Whether a policy verdict counts: an answered ask and a verdict on arguments changed later don't."""
    if any(other["by"] == "policy" for other in later):
        return False
    ended = any(other["by"] == "person" or other["decision"] in ("block", "stop") for other in later)
    return decision["decision"] != "ask" or not ended


def _sentence(decision: DecisionRow) -> str:
    by = {"policy": _policy, "hook": _hook, "person": _person}.get(str(decision["by"]))
    return by(decision) if by else ""


def _policy(decision: DecisionRow) -> str:
    if "session" in decision:
        giver = f", by {decision['who']}" if decision.get("who") else ""
        return f"allowed by an earlier always ({decision['rule'].removeprefix('session: ')}{giver})"
    verb = {"allow": "allowed", "ask": "asked about", "deny": "denied"}[decision["decision"]]
    return f"{verb} by {one_line(decision['rule'])}"


def _hook(decision: DecisionRow) -> str:
    word, reason = decision["decision"], one_line(str(decision.get("reason", "")), _REASON)
    why = f": {reason}" if reason else ""
    if word == "ask":
        return f"{decision['who']} asked for a person{why}"
    if word == "stop":
        return f"run ended by {decision['who']}{why}"
    if word == "block":
        what = "result held back" if decision.get("event") == "AfterTool" else "blocked"
        return f"{what} by {decision['who']}{why}"
    return ""


def _person(decision: DecisionRow) -> str:
    choice, kind = str(decision["decision"]), str(decision.get("request", "")).rsplit(":", 2)[-2:-1]
    words = one_line(str(decision.get("said", "")), _REASON)
    at = f"by {decision.get('who') or 'somebody'} at {clock(decision.get('said_at') or decision['at'])}"
    quoted = f" “{words}”" if words else ""
    word, manner = decision_words("".join(kind), choice)
    return f"{word} {at}{manner}{quoted}"


def decision_words(kind: str, choice: str) -> tuple[str, str]:
    """What a person did with a request of this kind, and how: `("approved", " (once)")`."""
    if kind == "outcome":
        return ("run again" if choice == "proceed_once" else "left with its outcome unknown"), ""
    if kind == "question":
        return ("not answered" if choice == "reject" else "answered"), ""
    if choice in ("reject", "cancel"):
        return ("rejected" if choice == "reject" else "cancelled"), ""
    return "approved", f" ({'rewritten' if choice == 'modify' else _CHOICES.get(choice, choice)})"


def _change(decision: DecisionRow) -> str:
    if not decision.get("becomes") or decision.get("before") == decision.get("after"):
        return ""
    by = decision.get("who") if decision["by"] == "hook" else _CHANGERS.get(str(decision["by"]), "")
    return f"arguments changed by {by}"


def came_to(call: Call) -> str:
    return "failed" if call.failed else call.status or call.state


def call_in_full(number: int, call: Call, paint: Paint) -> Iterator[str]:
    """Everything known about a call's decisions, one per line."""
    yield f"{number:>3}  {paint(call.tool, 'bold')} · {came_to(call)} · {one_line(call.summary, 100)}"
    yield f"     arguments {visible_json(call.args)}"
    for decision in call.decided:
        yield from _entry(decision, paint)
    if call.started:
        yield f"     {clock(call.started)} started"
    if call.ended:
        took = f" after {elapsed(call.ms / 1000)}" if call.ms is not None else ""
        yield f"     {clock(call.ended)} ended{took}"


def _entry(decision: DecisionRow, paint: Paint) -> Iterator[str]:
    mode = f" in mode {decision['mode']}" if decision.get("mode") else ""
    verdict = "no objection" if decision["by"] == "hook" else decision["decision"]
    nothing = f"{decision.get('who', decision['by'])}: {verdict}"
    sentence = _sentence(decision) or _change(decision) or nothing
    yield f"     {clock(decision['at'])} {paint(sentence, 'bold')}{mode}"
    if decision["by"] != "hook" and decision.get("reason"):
        yield f"              {one_line(decision['reason'])}"
    for part in decision.get("parts", ()):
        yield f"              {part['decision']:<5} {one_line(part['text'], 80)} · {one_line(part['reason'])}"
    for hook in decision.get("hooks", ()):
        warned = hook.get("warning") or hook.get("reason") or ""
        why = f" · {one_line(warned)}" if warned else ""
        took = elapsed(hook.get("duration_ms", 0) / 1000)
        name = f"{decision['event']} hook {hook['name']} ({hook['source']})"
        yield f"              {name}: {hook['decision']} in {took}{why}"
    if decision.get("becomes"):
        yield f"              - {visible_json(decision['before'])}"
        yield f"              + {visible_json(decision['after'])}"


def clock(at: float) -> str:
    """Local time as `09:02:41`, with the date unless it is today's."""
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)
