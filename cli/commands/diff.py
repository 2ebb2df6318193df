"""diff: what changed in a run's state between two steps."""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from interlock.cli.commands.fork import tell_unkept
from interlock.cli.parsing import Parser, flag, number
from interlock.cli.render.output import Paint, one_line, show_json, visible
from interlock.cli.render.pending import marked
from interlock.engine.read.runs import RunRow, find_run
from interlock.engine.store.database import state_home
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.state.messages import Message

_HASH = re.compile(r"\b[0-9a-f]{64}\b")
"""Ids of records, which nobody reads to their end."""


def parser() -> Parser:
    made = Parser(
        "diff",
        "RUN STEP STEP [--json] | RUN --files [--call ID]",
        "What changed in a run's state, and what was said, between two steps of: interlock history RUN.\n"
        "With --files: what it did to the workspace's files.",
        [
            ("interlock diff latest 2 5", ""),
            ("interlock diff latest --files", "as git shows it"),
            (
                "interlock diff latest --files --call 3",
                "one call, by its number in: interlock show latest --calls",
            ),
        ],
    )
    made.run_flag()
    made.add_argument("steps", type=number(int, -1), metavar="STEP", nargs="*")
    flag(made, "--files", "what the run did to files")
    flag(made, "--call ID", "number or id of one call of: interlock show RUN --calls")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    home = state_home()
    if args.files or args.call:
        return _files(find_run(home, args.run), args)
    if len(args.steps) != 2:
        raise UserError("`diff` takes RUN STEP STEP, or RUN --files. See: interlock diff --help")
    run = find_run(home, args.run).run
    from interlock.engine.read.snapshot import messages_at, state_at

    old, new = (state_at(home, run, step) for step in args.steps)
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


def _files(run: RunRow, args: argparse.Namespace) -> int:
    """Of all its calls as one, without what others did in between to other files."""
    from interlock.engine.travel.files import chosen_of, diff_of

    tell_unkept(run)
    paint = Paint(sys.stdout)
    text = diff_of(state_home(), run, chosen_of(state_home(), run, args.call))
    if args.json:
        show_json({"run": run.run, "diff": text})
    elif text:
        paint.print_all(marked(text, paint)) if paint.on else paint.print(text.rstrip("\n"), reading=True)
    else:
        print("No file changed.", file=sys.stderr)
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
