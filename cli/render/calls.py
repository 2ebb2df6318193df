"""calls: a run's tool calls and who decided on each, in one line and in full."""

from collections.abc import Iterator

from interlock.cli.render.output import Paint, cut, elapsed, one_line
from interlock.engine.client import Call, Client
from interlock.engine.client.deciders import DecisionRow, came_to, change, clock, sentence, who_decided
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
        unknown = call.state == "intent" and not call.under_way
        mark = "✗" if call.failed else _MARKS.get(call.status or "", "?" if unknown else "·")
        took = f" · {elapsed(call.ms / 1000)}" if call.ms else ""
        what = call.summary if call.state == "done" else came_to(call)
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
    said = sentence(decision) or change(decision) or nothing
    yield f"     {clock(decision['at'])} {paint(said, 'bold')}{mode}"
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
