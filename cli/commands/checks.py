"""checks: how policy decides on a call in this folder, and by which rule; which hooks apply, and what an event runs."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import MODE, add_permission_flags, build_folder_options, build_permission_options
from interlock.cli.inputs import parse_json_object, read_argument_text, read_batch_lines
from interlock.cli.parsing import Args, Parser, argparse_argument, declare_arguments, flag_argument
from interlock.cli.render.output import (
    DECISION_COLOURS,
    Paint,
    abbreviate_home,
    format_count,
    make_visible,
    print_json,
    print_table,
    print_warnings,
    result_paint,
    to_one_line,
    write_json,
)
from interlock.cli.suggestions import nearest_names_hint
from interlock.state.errors import InputError, UserError
from interlock.state.text import to_visible_json
from interlock.state.tooling import SHELL

if TYPE_CHECKING:
    from interlock.engine.client.configuration_checks import HookTester, PolicyAnswer, PolicyCheck

_LABEL = 12
"""Columns of the label before each line."""
_ANSWERS = {
    "proceed_once": "approve",
    "proceed_always_edits": "approve all edits in this run",
    "proceed_always": "approve, and don't ask again in this run",
    "proceed_always_tool": "approve the whole tool in this run",
    "proceed_always_server": "approve the whole server in this run",
    "proceed_always_and_save": "approve, and don't ask again in later runs",
    "modify": "change it",
    "reject": "reject",
    "cancel": "stop the run",
}


JsonFields = Mapping[str, Any]


def _add_policy_check_flags(parser: Parser) -> None:
    group = parser.add_argument_group("check as for a run with")
    add_permission_flags(group)
    group.add_argument("--mode", dest="approval_mode", type=MODE, help=argparse.SUPPRESS)


@declare_arguments(
    argparse_argument("action", metavar="check", help="the only action"),
    argparse_argument("tool", nargs="?", metavar="TOOL", help="tool name; see: interlock tools"),
    argparse_argument(
        "args",
        nargs="?",
        metavar="JSON|@FILE|-",
        help="arguments of the call, or a shell line; -: read stdin",
    ),
    flag_argument("--batch FILE.jsonl", "one check per line; -: read stdin"),
    flag_argument("--agent NAME", "check it as a call of this sub-agent"),
    flag_argument("--server NAME", "check it as a tool of this MCP server"),
    flag_argument("--annotations JSON|@FILE|-", "annotations that the MCP server gives its tool"),
    flag_argument("--all --verbose", "list every rule considered"),
    Parser.add_json_flag,
    flag_argument("-C --workspace --cd DIR", "check as for a run in DIR", type=Path),
    _add_policy_check_flags,
)
def policy(args: Args) -> int | None:
    if args.action != "check":
        raise UserError(f"No action {args.action!r}, expected check. See: interlock policy --help")
    if (args.tool is None) is (args.batch is None):
        raise UserError("Give a TOOL with its arguments, or --batch FILE.jsonl. See: interlock policy --help")
    from interlock.engine.client.configuration_checks import PolicyCheck

    mode = "yolo" if args.yolo else None
    options = build_folder_options(args, approval_mode=mode, **build_permission_options(args))
    if args.batch is not None:
        return _check_and_print_batch(PolicyCheck(options), args)
    question = _build_policy_query(args)
    check = PolicyCheck(options)
    shown = _policy_answer_fields(asyncio.run(check.evaluate_call(question)), args)
    if args.json:
        return print_json({**shown, "warnings": list(check.warnings)})
    print_warnings(check.warnings)
    paint = result_paint()
    paint.print_lines(_policy_answer_lines(shown, paint))


def _build_policy_query(args: Args) -> dict[str, Any]:
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
            else parse_json_object(read_argument_text(args.args, "JSON"), f"What stands after {args.tool}")
        )
    if args.annotations is not None:
        found["annotations"] = parse_json_object(
            read_argument_text(args.annotations, "--annotations"), "--annotations"
        )
    return {**found, **_policy_scope(args)}


def _policy_scope(args: Args) -> dict[str, Any]:
    scope = {"mode": args.approval_mode, "agent": args.agent, "server": args.server}
    return {key: value for key, value in scope.items() if value is not None}


def _check_and_print_batch(check: "PolicyCheck", args: Args) -> int:
    """Check each line of a batch; its own fields override the flags."""
    print_warnings(check.warnings)
    exit_code = 0
    for _, line in read_batch_lines(args.batch):
        try:
            if isinstance(line, InputError):
                raise line
            write_json(
                _policy_answer_fields(asyncio.run(check.evaluate_call({**_policy_scope(args), **line})), args)
            )
        except InputError as error:
            write_json({"error": {"type": error.kind, "field": error.field, "message": str(error)}})
            exit_code = error.exit_code
    return exit_code


def _policy_answer_fields(answer: "PolicyAnswer", args: Args) -> dict[str, Any]:
    """One flat object, the decision first."""
    found = answer.explanation.model_dump(mode="json")
    verdict = found.pop("verdict")
    verdict.pop("parts")  # the explanation has them in more detail
    if not args.all:
        found.pop("considered")
    shown = {"decision": verdict.pop("decision"), "tool": found.pop("tool"), **verdict, **found}
    shown["checkers"] = [opinion.model_dump() for opinion in answer.checkers]
    return shown | ({"agent": answer.agent} if answer.agent is not None else {})


def _policy_answer_lines(answer: JsonFields, paint: Paint) -> Iterator[str]:
    decision = answer["decision"]
    scope = f"mode {answer['mode']}" + (f", sub-agent {answer['agent']}" if answer.get("agent") else "")
    said = paint(f"{decision:<{_LABEL}}", "bold", DECISION_COLOURS[decision])
    yield f"{said}{make_visible(answer['tool'])}  ({scope})"
    yield _labelled_line("rule", _abbreviate_home_in_rule(answer["rule"]))
    yield _labelled_line("why", _abbreviate_home_in_rule(answer["reason"]))
    if answer.get("deny_message") and answer["deny_message"] != answer["reason"]:
        yield _labelled_line("model", f"is told: {answer['deny_message']}")
    yield from _shell_part_lines(answer.get("parts") or (), paint)
    if answer.get("unseen"):
        yield _labelled_line("not seen", answer["unseen"])
    if answer.get("redirects"):
        yield _labelled_line("redirects", ", ".join(answer["redirects"]))
    for checker in answer.get("checkers") or ():
        yield _labelled_line("checker", f"{checker['decision']}: {checker['reason']}")
    yield from _approval_choice_lines(answer)
    if answer.get("considered") is not None:
        yield from _considered_rule_lines(answer["considered"], paint)


def _labelled_line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{to_one_line(text)}"


def _shell_part_lines(parts: Sequence[JsonFields], paint: Paint) -> Iterator[str]:
    for number, part in enumerate(parts):
        label = f"{'parts' if number == 0 else '':<{_LABEL}}"
        verdict = paint(f"{part['decision']:<5}", DECISION_COLOURS[part["decision"]])
        rule = paint(to_one_line(_abbreviate_home_in_rule(part["rule"])), "dim")
        yield f"{label}{verdict} {to_one_line(part['text'], 60)}   {rule}"
        for what, label in (("danger", "danger"), ("opaque", "opaque"), ("lets", "the rule lets through")):
            if part.get(what):
                yield f"{'':<{_LABEL + 6}}{label}: {to_one_line(part[what])}"


def _approval_choice_lines(answer: JsonFields) -> Iterator[str]:
    choices: Sequence[str] = answer.get("choices") or ()
    if choices:
        yield _labelled_line("answers", ", ".join(_ANSWERS.get(c, c) for c in choices))
    if answer.get("covers"):
        yield _labelled_line("always", f"would allow: {answer['covers']}")
    if answer.get("not_always"):
        yield _labelled_line("no always", answer["not_always"])


def _considered_rule_lines(rules: Sequence[JsonFields], paint: Paint) -> Iterator[str]:
    for number, rule in enumerate(rules):
        label = f"{'considered' if number == 0 else '':<{_LABEL}}"
        verdict = paint(f"{rule['decision']:<5}", DECISION_COLOURS[rule["decision"]])
        text = (
            f"{rule['rank']:<7.6g} {verdict} met: {rule['met']:<5} {_abbreviate_home_in_rule(rule['rule'])}"
        )
        yield label + make_visible(text)


def _abbreviate_home_in_rule(rule: str) -> str:
    """Shorten a rule's paths in the home directory to `~/…`."""
    words: list[str] = rule.split(" ")
    return " ".join([abbreviate_home(word) for word in words])


@declare_arguments(
    argparse_argument("action", nargs="?", default="list", metavar="list|test", help="default: list"),
    argparse_argument("event", nargs="?", metavar="EVENT", help="event name"),
    flag_argument("--input JSON|@FILE|-", "fields of the event, as hooks and matchers see them"),
    flag_argument("--run", "run the hooks and show their answers"),
    Parser.add_folder_flags,
    Parser.add_json_flag,
)
def hooks(args: Args) -> int | None:
    if args.action not in ("list", "test"):
        raise UserError(f"No action {args.action!r}, expected list or test. See: interlock hooks --help")
    if args.action == "list" and (args.run or args.input is not None):
        raise UserError("--run and --input need an event: interlock hooks test EVENT")
    event = _require_hook_event(args.event) if args.action == "test" else None
    payload = (
        parse_json_object(read_argument_text(args.input, "--input"), "--input")
        if args.input is not None
        else {}
    )
    from interlock.engine.client.configuration_checks import HookTester

    check = HookTester(build_folder_options(args))
    if event is None:
        _print_hooks(check, args.json)
    else:
        _run_or_plan_hooks_and_show(check, event, payload, args)


def _require_hook_event(name: str | None) -> Any:
    from interlock.services.hooks.hook_settings import ALIASES, EVENTS, find_hook_event

    if name is None:
        raise UserError(f"Name an event: {', '.join(EVENTS)}. See: interlock hooks --help")
    found = find_hook_event(name)
    if found is None:
        near = nearest_names_hint(name, [*EVENTS, *ALIASES], 0.4) or f" There are {', '.join(EVENTS)}."
        raise UserError(f"No event {name!r}.{near} See: interlock hooks --help")
    return found


def _print_hooks(check: "HookTester", as_json: bool) -> None:
    hooks = check.list_hooks()
    if as_json:
        return print_json({"hooks": hooks, "warnings": list(check.warnings)})
    print_warnings(check.warnings)
    if not hooks:
        return result_paint().print_line(
            'No hooks apply here. Define hooks in a settings file under "hooks".'
        )
    rows = [
        (
            h["event"],
            h["matcher"] or "*",
            to_one_line(_hook_title(h), 60),
            _hook_properties(h),
            abbreviate_home(h["source"]),
        )
        for h in hooks
    ]
    print_table(rows, ("event", "for", "hook", "manner", "from"), flexible=(2,))


def _run_or_plan_hooks_and_show(check: "HookTester", event: Any, payload: dict[str, Any], args: Args) -> None:
    shown = asyncio.run(check.run_hooks(event, payload)) if args.run else check.plan_hooks(event, payload)
    if args.json:
        return print_json({**shown, "warnings": list(check.warnings)})
    print_warnings(check.warnings)
    paint = result_paint()
    paint.print_lines(_hook_trial_lines(shown, paint))


def _hook_trial_lines(trial: JsonFields, paint: Paint) -> Iterator[str]:
    hooks: Sequence[JsonFields] = trial["hooks"]
    subject = trial["subject"]
    about = f" for {to_one_line(subject)}" if subject else ""
    many = format_count(len(hooks), "hook") if hooks else "no hook"
    order = ", one after the other" if trial["order"] == "sequential" else ", side by side"
    yield paint(f"{trial['event']}{about}: {many}{order if len(hooks) > 1 else ''}", "bold")
    for number, hook in enumerate(hooks, 1):
        yield f"{number}. {to_one_line(_hook_title(hook))}"
        yield from _hook_detail_lines(hook, paint)
    if "outcome" in trial:
        yield from _hook_outcome_lines(trial["outcome"], paint)


def _hook_detail_lines(hook: JsonFields, paint: Paint) -> Iterator[str]:
    if hook["broken"]:
        yield _indented_line("broken", hook["broken"])
        return
    if hook["name"]:
        yield _indented_line("command", hook["command"])
    yield _indented_line("from", f"{abbreviate_home(hook['source'])}, {hook['place']}")
    yield _indented_line("matcher", hook["matcher"] or "* (everything)")
    yield _indented_line("manner", _hook_properties(hook))
    yield _indented_line("input", to_visible_json(hook["input"]))
    if verdict := hook.get("verdict"):
        ended = "ended" if verdict["exit_code"] is None else f"exit {verdict['exit_code']}"
        decision = paint(verdict["decision"], DECISION_COLOURS[verdict["decision"]])
        yield f"   {'says':<10}{decision}  ({ended}, {verdict['duration_ms']} ms)"
        for what in ("reason", "warning"):
            if verdict[what]:
                yield _indented_line(what, verdict[what])


def _hook_outcome_lines(outcome: JsonFields, paint: Paint) -> Iterator[str]:
    yield f"{paint('together', 'bold')}: {paint(outcome['decision'], DECISION_COLOURS[outcome['decision']])}"
    for what in ("reason", "stop", "context"):
        if outcome[what]:
            yield _indented_line(what, outcome[what])
    for message in outcome["messages"]:
        yield _indented_line("message", message)
    if outcome["output"]:
        yield _indented_line("output", to_visible_json(outcome["output"]))


def _hook_title(hook: JsonFields) -> str:
    return hook["name"] or hook["command"] or hook["place"]


def _hook_properties(hook: JsonFields) -> str:
    words = [f"{hook['timeout_s']:g} s"]
    words += [word for word in ("sequential", "required", "idempotent") if hook[word]]
    return ", ".join([*words, *(["broken"] if hook["broken"] else [])])


def _indented_line(label: str, text: str) -> str:
    return f"   {label:<10}{to_one_line(text)}"
