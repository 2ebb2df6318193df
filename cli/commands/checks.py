"""checks: how policy decides on a call in this folder, and by which rule; which hooks apply, and what an event runs."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import MODE, options_here, permission_flags, permissions
from interlock.cli.inputs import batch_lines, json_object, read_spec
from interlock.cli.near import nearest
from interlock.cli.parsing import Args, Parser, option, takes, word
from interlock.cli.render.output import (
    DECIDED,
    Paint,
    abbreviate_home,
    format_count,
    one_line,
    out,
    show_json,
    show_table,
    visible,
    warn,
    write_json,
)
from interlock.state.errors import InputError, UserError
from interlock.state.text import visible_json
from interlock.state.tooling import SHELL

if TYPE_CHECKING:
    from interlock.engine.client.configuration_checks import HookCheck, PolicyAnswer, PolicyCheck

_LABEL = 12
"""Columns of the label before each line."""
_ANSWERS = {
    "proceed_once": "approve",
    "proceed_always_edits": "approve all edits of the session",
    "proceed_always": "approve always in this run",
    "proceed_always_tool": "approve the tool in this run",
    "proceed_always_server": "approve the server in this run",
    "proceed_always_and_save": "approve always, and save it",
    "modify": "change it",
    "reject": "reject",
    "cancel": "stop the run",
}


Shown = Mapping[str, Any]


def _as_for_a_run(made: Parser) -> None:
    group = made.add_argument_group("check as for a run with")
    permission_flags(group)
    group.add_argument("--mode", dest="approval_mode", type=MODE, help=argparse.SUPPRESS)


@takes(
    word("action", metavar="check", help="the only action"),
    word("tool", nargs="?", metavar="TOOL", help="tool name; see: interlock tools"),
    word(
        "args",
        nargs="?",
        metavar="JSON|@FILE|-",
        help="arguments of the call, or a shell line; -: read stdin",
    ),
    option("--batch FILE.jsonl", "one check per line; -: read stdin"),
    option("--agent NAME", "check it as a call of this sub-agent"),
    option("--server NAME", "check it as a tool of this MCP server"),
    option("--annotations JSON|@FILE|-", "annotations that the MCP server gives its tool"),
    option("--all --verbose", "list every rule considered"),
    Parser.json_flag,
    option("-C --workspace --cd DIR", "check as for a run in DIR", type=Path),
    _as_for_a_run,
)
def policy(args: Args) -> int | None:
    if args.action != "check":
        raise UserError(f"No action {args.action!r}, expected check. See: interlock policy --help")
    if (args.tool is None) is (args.batch is None):
        raise UserError("Give a TOOL with its arguments, or --batch FILE.jsonl. See: interlock policy --help")
    from interlock.engine.client.configuration_checks import PolicyCheck

    mode = "yolo" if args.yolo else None
    options = options_here(args, approval_mode=mode, **permissions(args))
    if args.batch is not None:
        return _batch(PolicyCheck(options), args)
    question = _question(args)
    check = PolicyCheck(options)
    shown = _shown(asyncio.run(check.check(question)), args)
    if args.json:
        return show_json({**shown, "warnings": list(check.warnings)})
    warn(check.warnings)
    paint = out()
    paint.print_all(_lines(shown, paint))


def _question(args: Args) -> dict[str, Any]:
    if args.args == "-" == args.annotations:
        raise UserError("Standard input can be read only once. Pass JSON or --annotations another way.")
    found: dict[str, Any] = {"tool": args.tool}
    if args.args is not None:
        as_written = not args.args.lstrip().startswith(("{", "@", "[")) and args.args != "-"
        if as_written and args.tool not in SHELL:
            raise InputError(
                f"{args.args!r} isn't a JSON object. Only run_shell_command and execute_command take a shell line.",
                "args",
            )
        found["args"] = (
            {"command": args.args}
            if as_written
            else json_object(read_spec(args.args, "JSON"), f"What stands after {args.tool}")
        )
    if args.annotations is not None:
        found["annotations"] = json_object(read_spec(args.annotations, "--annotations"), "--annotations")
    return {**found, **_scope(args)}


def _scope(args: Args) -> dict[str, Any]:
    scope = {"mode": args.approval_mode, "agent": args.agent, "server": args.server}
    return {key: value for key, value in scope.items() if value is not None}


def _batch(check: "PolicyCheck", args: Args) -> int:
    """Check each line of a batch; its own fields override the flags."""
    warn(check.warnings)
    exit_code = 0
    for _, line in batch_lines(args.batch):
        try:
            if isinstance(line, InputError):
                raise line
            write_json(_shown(asyncio.run(check.check({**_scope(args), **line})), args))
        except InputError as error:
            write_json({"error": {"type": error.kind, "field": error.field, "message": str(error)}})
            exit_code = error.exit_code
    return exit_code


def _shown(checked: "PolicyAnswer", args: Args) -> dict[str, Any]:
    """One flat object, the decision first."""
    found = checked.explanation.model_dump(mode="json")
    verdict = found.pop("verdict")
    verdict.pop("parts")  # the explanation has them in more detail
    if not args.all:
        found.pop("considered")
    shown = {"decision": verdict.pop("decision"), "tool": found.pop("tool"), **verdict, **found}
    shown["checkers"] = [opinion.model_dump() for opinion in checked.checkers]
    return shown | ({"agent": checked.agent} if checked.agent is not None else {})


def _lines(shown: Shown, paint: Paint) -> Iterator[str]:
    decision = shown["decision"]
    scope = f"mode {shown['mode']}" + (f", sub-agent {shown['agent']}" if shown.get("agent") else "")
    yield f"{paint(f'{decision:<{_LABEL}}', 'bold', DECIDED[decision])}{visible(shown['tool'])}  ({scope})"
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
        verdict = paint(f"{part['decision']:<5}", DECIDED[part["decision"]])
        yield f"{label}{verdict} {one_line(part['text'], 60)}   {paint(one_line(_at_home(part['rule'])), 'dim')}"
        for what, label in (("danger", "danger"), ("opaque", "opaque"), ("lets", "the rule lets through")):
            if part.get(what):
                yield f"{'':<{_LABEL + 6}}{label}: {one_line(part[what])}"


def _answers(shown: Shown) -> Iterator[str]:
    choices: Sequence[str] = shown.get("choices") or ()
    if choices:
        yield _line("answers", ", ".join(_ANSWERS.get(c, c) for c in choices))
    if shown.get("covers"):
        yield _line("always", f"would cover: {shown['covers']}")
    if shown.get("not_always"):
        yield _line("no always", shown["not_always"])


def _considered(rules: Sequence[Shown], paint: Paint) -> Iterator[str]:
    for number, rule in enumerate(rules):
        label = f"{'considered' if number == 0 else '':<{_LABEL}}"
        verdict = paint(f"{rule['decision']:<5}", DECIDED[rule["decision"]])
        text = f"{rule['rank']:<7.6g} {verdict} met: {rule['met']:<5} {_at_home(rule['rule'])}"
        yield label + visible(text)


def _at_home(rule: str) -> str:
    """Shorten a rule's paths in the home directory to `~/…`."""
    words: list[str] = rule.split(" ")
    return " ".join([abbreviate_home(word) for word in words])


@takes(
    word("action", nargs="?", default="list", metavar="list|test", help="default: list"),
    word("event", nargs="?", metavar="EVENT", help="event name"),
    option("--input JSON|@FILE|-", "fields of the event, as hooks and matchers see them"),
    option("--run", "run the hooks and show their answers"),
    Parser.folder_flags,
    Parser.json_flag,
)
def hooks(args: Args) -> int | None:
    if args.action not in ("list", "test"):
        raise UserError(f"No action {args.action!r}, expected list or test. See: interlock hooks --help")
    if args.action == "list" and (args.run or args.input is not None):
        raise UserError("--run and --input need an event: interlock hooks test EVENT")
    event = _event(args.event) if args.action == "test" else None
    payload = json_object(read_spec(args.input, "--input"), "--input") if args.input is not None else {}
    from interlock.engine.client.configuration_checks import HookCheck

    check = HookCheck(options_here(args))
    if event is None:
        _list(check, args.json)
    else:
        _try(check, event, payload, args)


def _event(name: str | None) -> Any:
    from interlock.services.hooks.hook_settings import ALIASES, EVENTS, find_event

    if name is None:
        raise UserError(f"Name an event: {', '.join(EVENTS)}. See: interlock hooks --help")
    found = find_event(name)
    if found is None:
        near = nearest(name, [*EVENTS, *ALIASES], 0.4) or f" There are {', '.join(EVENTS)}."
        raise UserError(f"No event {name!r}.{near} See: interlock hooks --help")
    return found


def _list(check: "HookCheck", as_json: bool) -> None:
    hooks = check.listed()
    if as_json:
        return show_json({"hooks": hooks, "warnings": list(check.warnings)})
    warn(check.warnings)
    if not hooks:
        return out().print('No hooks apply here. Define hooks in a settings file under "hooks".')
    rows = [
        (h["event"], h["matcher"] or "*", one_line(_title(h), 60), _manner(h), abbreviate_home(h["source"]))
        for h in hooks
    ]
    show_table(rows, ("event", "for", "hook", "manner", "from"), flexible=(2,))


def _try(check: "HookCheck", event: Any, payload: dict[str, Any], args: Args) -> None:
    shown = asyncio.run(check.run(event, payload)) if args.run else check.planned(event, payload)
    if args.json:
        return show_json({**shown, "warnings": list(check.warnings)})
    warn(check.warnings)
    paint = out()
    paint.print_all(_tried(shown, paint))


def _tried(shown: Shown, paint: Paint) -> Iterator[str]:
    hooks: Sequence[Shown] = shown["hooks"]
    subject = shown["subject"]
    about = f" for {one_line(subject)}" if subject else ""
    many = format_count(len(hooks), "hook") if hooks else "no hook"
    order = ", one after the other" if shown["order"] == "sequential" else ", side by side"
    yield paint(f"{shown['event']}{about}: {many}{order if len(hooks) > 1 else ''}", "bold")
    for number, hook in enumerate(hooks, 1):
        yield f"{number}. {one_line(_title(hook))}"
        yield from _details(hook, paint)
    if "outcome" in shown:
        yield from _outcome(shown["outcome"], paint)


def _details(hook: Shown, paint: Paint) -> Iterator[str]:
    if hook["broken"]:
        yield _indented("broken", hook["broken"])
        return
    if hook["name"]:
        yield _indented("command", hook["command"])
    yield _indented("from", f"{abbreviate_home(hook['source'])}, {hook['place']}")
    yield _indented("matcher", hook["matcher"] or "* (everything)")
    yield _indented("manner", _manner(hook))
    yield _indented("input", visible_json(hook["input"]))
    if verdict := hook.get("verdict"):
        ended = "ended" if verdict["exit_code"] is None else f"exit {verdict['exit_code']}"
        decision = paint(verdict["decision"], DECIDED[verdict["decision"]])
        yield f"   {'says':<10}{decision}  ({ended}, {verdict['duration_ms']} ms)"
        for what in ("reason", "warning"):
            if verdict[what]:
                yield _indented(what, verdict[what])


def _outcome(outcome: Shown, paint: Paint) -> Iterator[str]:
    yield f"{paint('together', 'bold')}: {paint(outcome['decision'], DECIDED[outcome['decision']])}"
    for what in ("reason", "stop", "context"):
        if outcome[what]:
            yield _indented(what, outcome[what])
    for message in outcome["messages"]:
        yield _indented("message", message)
    if outcome["output"]:
        yield _indented("output", visible_json(outcome["output"]))


def _title(hook: Shown) -> str:
    return hook["name"] or hook["command"] or hook["place"]


def _manner(hook: Shown) -> str:
    words = [f"{hook['timeout_s']:g} s"]
    words += [word for word in ("sequential", "required", "idempotent") if hook[word]]
    return ", ".join([*words, *(["broken"] if hook["broken"] else [])])


def _indented(label: str, text: str) -> str:
    return f"   {label:<10}{one_line(text)}"
