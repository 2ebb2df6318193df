"""hooks: which hooks count in this folder, and what an event would run."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.catalog import nearest
from interlock.cli.flags import options_here
from interlock.cli.inputs import json_object, read_spec
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import Paint, one_line, place, show_json, show_table, warn
from interlock.state.errors import UserError
from interlock.state.text import visible_json

if TYPE_CHECKING:
    from interlock.engine.check.hooks import HookCheck

_ABOUT = """\
Which hooks count here, with the settings and the trust of a run; with test, which of them an event would run, in
which order, and the JSON that each gets on stdin. Nothing is run without --run."""
_STYLES = {"none": "dim", "allow": "green", "ask": "yellow", "block": "red"}
_LABEL = 10
"""Columns of what stands before each line."""

Shown = Mapping[str, Any]


def hooks_parser() -> Parser:
    made = Parser(
        "hooks",
        "[--json]   |   interlock hooks test EVENT [--input JSON|@FILE] [--run] [--json]",
        _ABOUT,
        [
            (
                'interlock hooks test BeforeTool --input \'{"tool_name": "write_file", "tool_input": {}}\'',
                "what would run before a file is written",
            ),
            (
                "interlock hooks test Stop --run",
                "run what runs after an answer; Claude Code's names work, too",
            ),
        ],
    )
    made.add_argument(
        "action", nargs="?", metavar="test", help="try an event; without it all hooks are listed"
    )
    made.add_argument("event", nargs="?", metavar="EVENT", help="an event's name")
    flag(made, "--input JSON|@FILE|-", "the event's own fields; matchers look at them")
    flag(made, "--run", "run the hooks, and show what they say")
    made.json_flag()
    flag(made, "-C --workspace --cd DIR", "as for a run in DIR", type=Path)
    flag(made, "--skip-trust", "count the folder's own hooks, this once")
    return made


def hooks(arguments: list[str]) -> int:
    args = hooks_parser().parse(arguments)
    if args.action not in (None, "test"):
        raise UserError(f"No action {args.action!r}, expected test. See: interlock hooks --help")
    if args.action is None and (args.run or args.input is not None):
        raise UserError("An event is needed for that: interlock hooks test EVENT")
    event = _event(args.event) if args.action else None
    given = json_object(read_spec(args.input, "--input"), "--input") if args.input is not None else {}
    from interlock.engine.check.hooks import HookCheck

    check = HookCheck(options_here(args))
    if event is None:
        _list(check, args.json)
    else:
        _test(check, event, given, args)
    return 0


def _event(name: str | None) -> Any:
    from interlock.services.hooks.configured import ALIASES, EVENTS, event_named

    if name is None:
        raise UserError(f"Name an event: {', '.join(EVENTS)}. See: interlock hooks --help")
    found = event_named(name)
    if found is None:
        near = nearest(name, [*EVENTS, *ALIASES], 0.4) or f" There are {', '.join(EVENTS)}."
        raise UserError(f"No event {name!r}.{near} See: interlock hooks --help")
    return found


def _list(check: "HookCheck", as_json: bool) -> None:
    hooks = check.listed()
    if as_json:
        show_json({"hooks": hooks, "warnings": list(check.warnings)})
        return
    warn(check.warnings)
    if not hooks:
        print('No hooks count here. Settings files define them under "hooks".')
        return
    rows = [
        (h["event"], h["matcher"] or "*", one_line(_title(h), 60), _manner(h), place(h["source"]))
        for h in hooks
    ]
    show_table(rows, ("event", "for", "hook", "manner", "from"), flexible=2)


def _test(check: "HookCheck", event: Any, given: dict[str, Any], args: argparse.Namespace) -> None:
    import asyncio

    shown = asyncio.run(check.run(event, given)) if args.run else check.planned(event, given)
    if args.json:
        show_json({**shown, "warnings": list(check.warnings)})
        return
    warn(check.warnings)
    paint = Paint(sys.stdout)
    paint.print_all(_lines(shown, paint))


def _lines(shown: Shown, paint: Paint) -> Iterator[str]:
    hooks: Sequence[Shown] = shown["hooks"]
    subject = shown["subject"]
    about = f" for {one_line(subject)}" if subject else ""
    many = "no hook" if not hooks else "1 hook" if len(hooks) == 1 else f"{len(hooks)} hooks"
    order = ", one after the other" if shown["order"] == "sequential" else ", side by side"
    yield paint(f"{shown['event']}{about}: {many}{order if len(hooks) > 1 else ''}", "bold")
    for number, hook in enumerate(hooks, 1):
        yield f"{number}. {one_line(_title(hook))}"
        yield from _details(hook, paint)
    if "outcome" in shown:
        yield from _outcome(shown["outcome"], paint)


def _details(hook: Shown, paint: Paint) -> Iterator[str]:
    if hook["broken"]:
        yield _line("broken", hook["broken"])
        return
    if hook["name"]:
        yield _line("command", hook["command"])
    yield _line("from", f"{place(hook['source'])}, {hook['place']}")
    yield _line("matcher", hook["matcher"] or "* (everything)")
    yield _line("manner", _manner(hook))
    yield _line("input", visible_json(hook["input"]))
    if verdict := hook.get("verdict"):
        ended = "ended" if verdict["exit_code"] is None else f"exit {verdict['exit_code']}"
        said = paint(verdict["decision"], _STYLES[verdict["decision"]])
        yield f"{'   says':<{_LABEL + 3}}{said}  ({ended}, {verdict['duration_ms']} ms)"
        for what in ("reason", "warning"):
            if verdict[what]:
                yield _line(what, verdict[what])


def _outcome(outcome: Shown, paint: Paint) -> Iterator[str]:
    yield f"{paint('together', 'bold')}: {paint(outcome['decision'], _STYLES[outcome['decision']])}"
    for what in ("reason", "stop", "context"):
        if outcome[what]:
            yield _line(what, outcome[what])
    for message in outcome["messages"]:
        yield _line("message", message)
    if outcome["output"]:
        yield _line("output", visible_json(outcome["output"]))


def _title(hook: Shown) -> str:
    return hook["name"] or hook["command"] or hook["place"]


def _manner(hook: Shown) -> str:
    words = [f"{hook['timeout_s']:g} s"]
    words += [word for word in ("sequential", "required", "idempotent") if hook[word]]
    return ", ".join([*words, *(["broken"] if hook["broken"] else [])])


def _line(label: str, text: str) -> str:
    return f"   {label:<{_LABEL}}{one_line(text)}"
