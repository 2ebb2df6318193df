"""policy: what policy says of a call in this folder, and which rule decides it."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import MODE, options_here, permission_flags, permissions
from interlock.cli.inputs import batch_lines, json_object, read_spec
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import Paint, one_line, place, show_json, visible, warn, write_json
from interlock.state.errors import InputError, UserError

if TYPE_CHECKING:
    from interlock.engine.check.policy import Checked, PolicyCheck

_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}
_LABEL = 12
"""Columns of what stands before each line."""
_ANSWERS = {
    "proceed_once": "approve",
    "proceed_always": "approve always in this run",
    "proceed_always_tool": "approve the tool in this run",
    "proceed_always_server": "approve the server in this run",
    "proceed_always_and_save": "approve always, and save it",
    "modify": "change it",
    "reject": "reject",
    "cancel": "stop the run",
}

_ABOUT = """\
What the policy says about a call here: allow, ask or deny, which rule decides and why, and for a shell line each
command by itself. It counts what a run in this folder counts: settings, trust, .env, rules of every place.
Nobody is asked, and nothing is run but safety checkers. Exit code 0 whatever the decision is (scripts read
--json), 42 for a question that can't be answered: no such tool, wrong arguments."""

Shown = Mapping[str, Any]


def policy_parser() -> Parser:
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
    made.add_argument("action", metavar="check", help="the only action")
    made.add_argument("tool", nargs="?", metavar="TOOL", help="a tool's name; see: interlock tools")
    made.add_argument("args", nargs="?", metavar="JSON|@FILE|-", help="its arguments; -: from stdin")
    flag(made, "--batch FILE.jsonl", "one question a line; -: from stdin")
    flag(made, "--agent NAME", "as a call by this sub-agent")
    flag(made, "--server NAME", "as a tool of this connected MCP server")
    flag(made, "--annotations JSON|@FILE|-", "what the MCP server says about its tool")
    flag(made, "--all --verbose", "list every rule that was considered")
    made.json_flag()
    flag(made, "-C --workspace --cd DIR", "as for a run in DIR", type=Path)
    group = made.add_argument_group("as a run with these flags")
    permission_flags(group)
    group.add_argument("--mode", dest="approval_mode", type=MODE, help=argparse.SUPPRESS)
    return made


def policy(arguments: list[str]) -> int:
    args = policy_parser().parse(arguments)
    if args.action != "check":
        raise UserError(f"No action {args.action!r}, expected check. See: interlock policy --help")
    if (args.tool is None) is (args.batch is None):
        raise UserError("Give a TOOL with its arguments, or --batch FILE.jsonl. See: interlock policy --help")
    import asyncio

    from interlock.engine.check.policy import PolicyCheck

    mode = "yolo" if args.yolo else None
    options = options_here(args, approval_mode=mode, **permissions(args))
    if args.batch is not None:
        return _batch(PolicyCheck(options), args)
    question = _question(args)
    check = PolicyCheck(options)
    shown = _shown(asyncio.run(check.check(question)), args)
    if args.json:
        show_json({**shown, "warnings": list(check.warnings)})
        return 0
    warn(check.warnings)
    paint = Paint(sys.stdout)
    paint.print_all(_lines(shown, paint))
    return 0


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

    warn(check.warnings)
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


def _lines(shown: Shown, paint: Paint) -> Iterator[str]:
    decision = shown["decision"]
    scope = f"mode {shown['mode']}" + (f", sub-agent {shown['agent']}" if shown.get("agent") else "")
    yield f"{paint(f'{decision:<{_LABEL}}', 'bold', _STYLES[decision])}{visible(shown['tool'])}  ({scope})"
    yield _line("rule", _at_home(shown["rule"]))
    yield _line("why", _at_home(shown["reason"]))
    if shown.get("deny_message") and shown["deny_message"] != shown["reason"]:
        yield _line("model", f"is told: {shown['deny_message']}")
    yield from _parts(shown.get("parts") or (), paint)
    if shown.get("unseen"):
        yield _line("not seen", shown["unseen"])
    if shown.get("redirects"):
        yield _line("redirects", ", ".join(shown["redirects"]))
    for checker in shown.get("checkers") or ():
        yield _line("checker", f"{checker['decision']}: {checker['reason']}")
    yield from _answers(shown)
    if shown.get("considered") is not None:
        yield from _considered(shown["considered"], paint)


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{one_line(text)}"


def _parts(parts: Sequence[Shown], paint: Paint) -> Iterator[str]:
    for number, part in enumerate(parts):
        label = f"{'parts' if number == 0 else '':<{_LABEL}}"
        verdict = paint(f"{part['decision']:<5}", _STYLES[part["decision"]])
        yield f"{label}{verdict} {one_line(part['text'], 60)}   {paint(one_line(_at_home(part['rule'])), 'dim')}"
        for what in ("danger", "opaque"):
            if part.get(what):
                yield f"{'':<{_LABEL + 6}}{what}: {one_line(part[what])}"


def _answers(shown: Shown) -> Iterator[str]:
    choices: Sequence[str] = shown.get("choices") or ()
    if choices:
        yield _line("answers", ", ".join(_ANSWERS.get(c, c) for c in choices))
    if always := shown.get("always"):
        about = " | ".join(always["command_prefixes"]) or always.get("server") or always.get("path") or ""
        yield _line("always", f"would stand for: {always['tool']} {about}".rstrip())
    if shown.get("not_always"):
        yield _line("no always", shown["not_always"])


def _considered(rules: Sequence[Shown], paint: Paint) -> Iterator[str]:
    for number, rule in enumerate(rules):
        label = f"{'considered' if number == 0 else '':<{_LABEL}}"
        verdict = paint(f"{rule['decision']:<5}", _STYLES[rule["decision"]])
        text = f"{rule['rank']:<7.6g} {verdict} met: {rule['met']:<5} {_at_home(rule['rule'])}"
        yield label + visible(text)


def _at_home(rule: str) -> str:
    """Files below the home directory as `~/…`."""
    words: list[str] = rule.split(" ")
    return " ".join([place(word) for word in words])
