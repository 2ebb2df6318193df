"""diff: what changed in a run's state between two steps."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, cast

from interlock.cli import tables
from interlock.cli.parsing import Parser, number
from interlock.cli.render.paint import Paint, one_line
from interlock.engine.listing import find_run
from interlock.engine.store_file import state_home


def parser() -> Parser:
    made = Parser(
        "diff",
        "RUN STEP STEP [--json]",
        "What changed in a run's state, and what was said, between two steps of: interlock history RUN",
        [("interlock diff latest 2 5", "")],
    )
    made.add_argument("run", metavar="RUN", help="id, the beginning of one, or latest")
    made.add_argument("old", type=number(int, -1), metavar="STEP")
    made.add_argument("new", type=number(int, -1), metavar="STEP")
    made.add_argument("--json", action="store_true", help="for programs")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    home = state_home(os.environ)
    run = find_run(home, args.run).run
    from interlock.engine.snapshot import messages_at, state_at

    old, new = state_at(home, run, args.old), state_at(home, run, args.new)
    changes = changed(old, new)
    before = messages_at(home, run, str(old.get("head") or ""))
    after = messages_at(home, run, str(new.get("head") or ""))
    shared = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    if args.json:
        said = [m.model_dump(mode="json", exclude_defaults=True) for m in after[shared:]]
        tables.show_json(
            {"run": run, "changed": changes, "messages": said, "messages_dropped": len(before) - shared}
        )
        return 0
    paint = Paint(sys.stdout)
    for key, (was, now) in changes.items():
        print(paint(f"- {key}: {was}", "red") if was is not None else "", end="\n" if was is not None else "")
        print(
            paint(f"+ {key}: {now}", "green") if now is not None else "", end="\n" if now is not None else ""
        )
    for message in after[shared:]:
        calls = ", ".join(call.name for call in message.tool_calls)
        print(f"+ {message.role}: {one_line(message.text, 90)}" + (f" [calls {calls}]" if calls else ""))
    if not changes and len(after) == shared == len(before):
        print("Nothing changed.", file=sys.stderr)
    return 0


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    """Dotted key → (before, after) as JSON; None: not there."""
    was, now = _flat(old), _flat(new)
    return {
        k: (was.get(k), now.get(k))
        for k in [*was, *(k for k in now if k not in was)]
        if was.get(k) != now.get(k)
    }


def _flat(value: Any, key: str = "") -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        return {key: json.dumps(value, ensure_ascii=False)}
    found: dict[str, str] = {}
    for name, part in cast(dict[str, Any], value).items():
        found |= _flat(part, f"{key}.{name}" if key else name)
    return found
