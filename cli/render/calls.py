"""calls: a run's tool calls, each with who decided that it may run."""

from collections.abc import Iterator
from pathlib import Path

from interlock.cli.render.decided import in_full, who_decided
from interlock.cli.render.figures import elapsed
from interlock.cli.render.paint import Paint, cut, one_line
from interlock.cli.render.pending import brief
from interlock.engine.listing_calls import calls

_CALLS = 30
_MARKS = {"success": "✓", "cancelled": "–"}


def call_lines(home: Path, run: str, paint: Paint) -> Iterator[str]:
    """What each call was and came to, and below it who decided; the newest ones."""
    made = calls(home, run)
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


def calls_in_full(home: Path, run: str, paint: Paint) -> Iterator[str]:
    made = calls(home, run)
    if not made:
        yield f"Run {run} has made no call."
    for number, call in enumerate(made, 1):
        yield from in_full(number, call, paint)
