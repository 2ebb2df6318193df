"""hooks: which hooks count in this folder, and what an event would run."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from interlock.cli import tables
from interlock.cli.catalog import nearest
from interlock.cli.flags import existing_folder
from interlock.cli.inputs import json_object, read_spec
from interlock.cli.parsing import Parser
from interlock.cli.render.hooks_view import list_rows, test_lines
from interlock.cli.render.paint import Paint, one_line
from interlock.engine.options import Options
from interlock.engine.store.database import state_home
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.check.hooks import HookCheck

_ABOUT = """\
Which hooks count here, with the settings and the trust of a run; with test, which of them an event would run, in
which order, and the JSON that each gets on stdin. Nothing is run without --run."""


def parser() -> Parser:
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
    made.add_argument("--input", metavar="JSON|@FILE|-", help="the event's own fields; matchers look at them")
    made.add_argument("--run", action="store_true", help="run the hooks, and show what they say")
    made.add_argument("--json", action="store_true", help="for programs")
    made.add_argument("-C", "--workspace", "--cd", metavar="DIR", help="as a run in DIR")
    made.add_argument("--skip-trust", action="store_true", help="count the folder's own hooks, this once")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    if args.action not in (None, "test"):
        raise UserError(f"No action {args.action!r}, expected test. See: interlock hooks --help")
    if args.action is None and (args.run or args.input is not None):
        raise UserError("An event is needed for that: interlock hooks test EVENT")
    event = _event(args.event) if args.action else None
    given = json_object(read_spec(args.input, "--input"), "--input") if args.input is not None else {}
    from interlock.engine.check.hooks import HookCheck

    check = HookCheck(_options(args))
    return _listed(check, args) if event is None else _tested(check, event, given, args)


def _options(args: argparse.Namespace) -> Options:
    return Options(
        home=state_home(os.environ),
        workspace=existing_folder(args.workspace, "--workspace") if args.workspace else None,
        skip_trust=args.skip_trust,
        env=dict(os.environ),
    )


def _event(name: str | None) -> Any:
    from interlock.services.hooks.configured import ALIASES, EVENTS, event_named

    if name is None:
        raise UserError(f"Name an event: {', '.join(EVENTS)}. See: interlock hooks --help")
    found = event_named(name)
    if found is None:
        near = nearest(name, [*EVENTS, *ALIASES], 0.4) or f" There are {', '.join(EVENTS)}."
        raise UserError(f"No event {name!r}.{near} See: interlock hooks --help")
    return found


def _listed(check: "HookCheck", args: argparse.Namespace) -> int:
    hooks = check.listed()
    if args.json:
        tables.show_json({"hooks": hooks, "warnings": list(check.warnings)})
        return 0
    _warn(check)
    if hooks:
        tables.show(list_rows(hooks), ("event", "for", "hook", "manner", "from"), flexible=2)
    else:
        print('No hooks count here. Settings files define them under "hooks".')
    return 0


def _tested(check: "HookCheck", event: Any, given: dict[str, Any], args: argparse.Namespace) -> int:
    import asyncio

    shown = asyncio.run(check.run(event, given)) if args.run else check.planned(event, given)
    if args.json:
        tables.show_json({**shown, "warnings": list(check.warnings)})
        return 0
    _warn(check)
    paint = Paint(sys.stdout)
    for line in test_lines(shown, paint):
        paint.print(line)
    return 0


def _warn(check: "HookCheck") -> None:
    for line in check.warnings:
        print(f"warning: {one_line(line)}", file=sys.stderr)
