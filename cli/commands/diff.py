"""diff: what changed in a run's state between two steps."""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from interlock.cli.parsing import Parser, number
from interlock.cli.render.output import Paint, one_line, show_json, visible
from interlock.engine.read.runs import find_run
from interlock.engine.store.database import state_home

if TYPE_CHECKING:
    from interlock.state.messages import Message

_HASH = re.compile(r"\b[0-9a-f]{64}\b")
"""Ids of records, which nobody reads to their end."""


def parser() -> Parser:
    made = Parser(
        "diff",
        "RUN STEP STEP [--json]",
        "What changed in a run's state, and what was said, between two steps of: interlock history RUN",
        [("interlock diff latest 2 5", "")],
    )
    made.run_flag()
    made.add_argument("old", type=number(int, -1), metavar="STEP")
    made.add_argument("new", type=number(int, -1), metavar="STEP")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    home = state_home()
    run = find_run(home, args.run).run
    from interlock.engine.read.snapshot import messages_at, state_at

    old, new = state_at(home, run, args.old), state_at(home, run, args.new)
    before, after = (messages_at(home, run, str(state.get("head") or "")) for state in (old, new))
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    changes = changed(old, new)
    if args.json:
        said = [m.model_dump(mode="json", exclude_defaults=True) for m in after[shared:]]
        dropped = len(before) - shared
        show_json({"run": run, "changed": changes, "messages": said, "messages_dropped": dropped})
        return 0
    lines = [*_changes(changes), *_said(before[shared:], "-"), *_said(after[shared:], "+")]
    paint = Paint(sys.stdout)
    paint.print_all(paint(line, "green" if line.startswith("+") else "red") for line in lines)
    if not lines:
        print("Nothing changed.", file=sys.stderr)
    return 0


def _changes(changes: Mapping[str, tuple[str | None, str | None]]) -> Iterator[str]:
    for key, sides in changes.items():
        for sign, value in zip("-+", sides, strict=True):
            if value is not None:
                short = _HASH.sub(lambda name: f"{name[0][:12]}…", visible(value))
                yield f"{sign} {key}: {short}"


def _said(messages: "Sequence[Message]", sign: str) -> Iterator[str]:
    for message in messages:
        calls = ", ".join(call.name for call in message.tool_calls)
        called = f" [calls {calls}]" if calls else ""
        yield f"{sign} {message.role}: {one_line(message.text, 90)}{called}"


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    """Dotted key → (before, after) as JSON; None: not there."""
    was, now = _flat(old), _flat(new)
    return {k: (was.get(k), now.get(k)) for k in {**was, **now} if was.get(k) != now.get(k)}


def _flat(value: Any, key: str = "") -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        return {key: json.dumps(value, ensure_ascii=False)}
    found: dict[str, str] = {}
    for name, part in cast(dict[str, Any], value).items():
        found |= _flat(part, f"{key}.{name}" if key else name)
    return found
