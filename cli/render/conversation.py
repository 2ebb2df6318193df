"""conversation: what `show` prints of a run's state and records."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.cli import tables
from interlock.cli.render.paint import Paint, one_line

if TYPE_CHECKING:
    from interlock.state.messages import Message


def show_state(home: Path, run: str, step: int, as_json: bool) -> None:
    """The state and the conversation after a step."""
    from interlock.engine.read.snapshot import messages_at, state_at

    state = state_at(home, run, step)
    messages = messages_at(home, run, str(state.get("head") or ""))
    if as_json:
        dumped = [m.model_dump(mode="json", exclude_defaults=True) for m in messages]
        tables.show_json({"run": run, "step": step, "state": state, "messages": dumped})
        return
    tables.show([(key, one_line(str(value), 100)) for key, value in state.items()])
    print()
    for message in messages:
        _show_message(message, 2000)


def show_dropped(home: Path, run: str, as_json: bool) -> None:
    """What compression and masking took out of the conversation."""
    from interlock.engine.read.snapshot import dropped

    parts = dropped(home, run)
    if as_json:
        messages = [[m.model_dump(mode="json", exclude_defaults=True) for m in part] for part in parts]
        tables.show_json({"run": run, "dropped": messages})
        return
    if not parts:
        print(f"Run {run}: nothing was taken out of the conversation.")
    for number_, part in enumerate(parts, 1):
        print(f"— taken out, {number_} of {len(parts)}: {len(part)} messages —")
        for message in part:
            _show_message(message, None)


def _show_message(message: "Message", limit: int | None) -> None:
    text = message.text.strip()
    cut_off = f" … ({len(text)} characters)" if limit and len(text) > limit else ""
    paint = Paint(sys.stdout)
    paint.print(f"{message.role}: {text[:limit]}{cut_off}", reading=True)
    for call in message.tool_calls:
        paint.print(f"  calls {call.name} {one_line(str(call.args), 100)}")


def verify(home: Path, run: str) -> int:
    """Check that no record was lost or changed; the exit code."""
    from interlock.engine.store.damage import damage

    problems = list(damage(home, run))
    for problem in problems:
        Paint(sys.stdout).print(problem)
    if not problems:
        print(f"Run {run}: every record is there and unchanged.")
    return 1 if problems else 0
