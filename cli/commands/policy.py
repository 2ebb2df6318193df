"""policy: what policy says of a call in this folder, and which rule decides it."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from interlock.cli import tables
from interlock.cli.flags import existing_file, existing_folder, permission_flags
from interlock.cli.inputs import batch_lines, json_object, read_spec
from interlock.cli.parsing import Parser, one_of
from interlock.cli.render.paint import Paint, one_line
from interlock.cli.render.policy_view import decision_lines
from interlock.cli.render.stdout import write_json
from interlock.cli.tool_rules import tool_rules
from interlock.engine.options import Options
from interlock.engine.store.database import state_home
from interlock.state.errors import InputError, UserError

if TYPE_CHECKING:
    from interlock.engine.check.policy import Checked, PolicyCheck

_ABOUT = """\
What policy says of a call here: allow, ask or deny, which rule decides and why, and for a shell line each
command by itself. It counts what a run in this folder counts: settings, trust, .env, rules of every place.
Nobody is asked, and nothing is run but safety checkers. Exit code 0 whatever the decision is (scripts read
--json), 42 for a question that can't be answered: no such tool, wrong arguments."""


def parser() -> Parser:
    made = Parser(
        "policy",
        "check TOOL [JSON] [FLAGS]   |   interlock policy check --batch FILE.jsonl",
        _ABOUT,
        [
            (
                'interlock policy check run_shell_command \'{"command": "git push"}\'',
                "which part of it asks, by which rule",
            ),
            ("interlock policy check write_file @call.json --mode plan --all", "with every rule considered"),
            (
                'interlock policy check search \'{"q": "x"}\' --server docs --annotations \'{"readOnlyHint": true}\'',
                "a tool of an MCP server",
            ),
            (
                "interlock policy check --batch calls.jsonl",
                'one {"tool", "args", "mode"?, "agent"?, "server"?, "annotations"?} a line, one decision a line',
            ),
        ],
    )
    made.add_argument("action", metavar="check", help="the only action there is")
    made.add_argument("tool", nargs="?", metavar="TOOL", help="a tool's name; see: interlock tools")
    made.add_argument("args", nargs="?", metavar="JSON|@FILE|-", help="its arguments; -: from stdin")
    made.add_argument("--batch", metavar="FILE.jsonl", help="one question a line; -: from stdin")
    made.add_argument("--agent", metavar="NAME", help="as a call of this sub-agent")
    made.add_argument("--server", metavar="NAME", help="as a tool of this connected MCP server")
    made.add_argument("--annotations", metavar="JSON|@FILE|-", help="what the MCP server says of its tool")
    made.add_argument("--all", "--verbose", action="store_true", help="list every rule that was considered")
    made.add_argument("--json", action="store_true", help="for programs")
    made.add_argument("-C", "--workspace", "--cd", metavar="DIR", help="as a run in DIR")
    group = made.add_argument_group("as a run with these flags")
    permission_flags(group)
    mode = one_of(("default", "auto_edit", "plan", "yolo"), {"autoEdit": "auto_edit"})
    group.add_argument("--mode", dest="approval_mode", type=mode, help=argparse.SUPPRESS)
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    if args.action != "check":
        raise UserError(f"No action {args.action!r}, expected check. See: interlock policy --help")
    if (args.tool is None) is (args.batch is None):
        raise UserError("Give a TOOL with its arguments, or --batch FILE.jsonl. See: interlock policy --help")
    import asyncio

    from interlock.engine.check.policy import PolicyCheck

    options = _options(args)
    if args.batch is not None:
        return _batch(PolicyCheck(options), args)
    question = _question(args)
    check = PolicyCheck(options)
    shown = _shown(asyncio.run(check.check(question)), args)
    if args.json:
        tables.show_json({**shown, "warnings": list(check.warnings)})
        return 0
    _warn(check)
    paint = Paint(sys.stdout)
    for line in decision_lines(shown, paint):
        paint.print(line)
    return 0


def _options(args: argparse.Namespace) -> Options:
    denied = tool_rules(args.disallowed_tools)
    return Options(
        home=state_home(os.environ),
        workspace=existing_folder(args.workspace, "--workspace") if args.workspace else None,
        approval_mode="yolo" if args.yolo else None,
        allowed_tools=tuple(tool_rules(args.allowed_tools)),
        overrides={"tools": {"exclude": denied}} if denied else {},
        policy_files=tuple(existing_file(p, "--policy") for p in args.policy),
        skip_trust=args.skip_trust,
        env=dict(os.environ),
    )


def _question(args: argparse.Namespace) -> dict[str, Any]:
    if args.args == "-" == args.annotations:
        raise UserError("Standard input can be read once. Give JSON or --annotations in another way.")
    found: dict[str, Any] = {"tool": args.tool}
    if args.args is not None:
        found["args"] = json_object(read_spec(args.args, "JSON"), f"What stands after {args.tool}")
    if args.annotations is not None:
        found["annotations"] = json_object(read_spec(args.annotations, "--annotations"), "--annotations")
    return {**found, **_scope(args)}


def _scope(args: argparse.Namespace) -> dict[str, Any]:
    given = {"mode": args.approval_mode, "agent": args.agent, "server": args.server}
    return {key: value for key, value in given.items() if value is not None}


def _batch(check: "PolicyCheck", args: argparse.Namespace) -> int:
    """What a line says of itself goes before what the flags say of all."""
    import asyncio

    _warn(check)
    exit_code = 0
    for line in batch_lines(args.batch):
        try:
            if isinstance(line, InputError):
                raise line
            write_json(_shown(asyncio.run(check.check({**_scope(args), **line})), args))
        except InputError as error:
            write_json({"error": {"type": error.kind, "field": error.field, "message": str(error)}})
            exit_code = error.exit_code
    return exit_code


def _warn(check: "PolicyCheck") -> None:
    for line in check.warnings:
        print(f"warning: {one_line(line)}", file=sys.stderr)


def _shown(checked: "Checked", args: argparse.Namespace) -> dict[str, Any]:
    """One flat object: the decision first."""
    found = checked.explanation.model_dump(mode="json")
    verdict = found.pop("verdict")
    verdict.pop("parts")  # the explanation has them with more
    if not args.all:
        found.pop("considered")
    shown = {"decision": verdict.pop("decision"), "tool": found.pop("tool"), **verdict, **found}
    shown["checkers"] = [said.model_dump() for said in checked.checkers]
    return shown | ({"agent": checked.agent} if checked.agent is not None else {})
