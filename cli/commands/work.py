"""work: drives a run: a prompt or a session, any workflow with its inputs as flags, and resuming what waits."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin

from interlock.cli.catalog import build_parser
from interlock.cli.decisions import add_decision_flags, build_decisions
from interlock.cli.driving import (
    SCREEN_READER,
    is_plain_terminal_or_screen_reader,
    make_view,
    resume_run,
    run_batch,
    start_run,
)
from interlock.cli.flags import add_run_flags, build_folder_options, build_run_options, move_tools_from_words
from interlock.cli.inputs import (
    STDIN,
    parse_json,
    parse_json_object,
    read_argument_text,
    read_follow_up_prompt,
    read_piped_text,
    read_prompt,
)
from interlock.cli.other_programs import SANDBOX_HINT, SANDBOXES
from interlock.cli.parsing import (
    Args,
    Parser,
    add_flag,
    argparse_argument,
    choice_parser,
    declare_arguments,
    flag_argument,
    number_parser,
)
from interlock.cli.render.output import remark_paint, to_one_line
from interlock.engine.client import ENDED, PIPELINES, Client, Decision, Options
from interlock.services.process.stdout import redirect_stdout_to_stderr
from interlock.state.errors import UserError

_NEWEST_CONVERSATION = "-c"
"""As the run of -r, without a value."""

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from interlock.graphs.pipeline import Pipeline


@declare_arguments(
    argparse_argument("words", nargs="*", metavar="PROMPT", help="task or question"),
    argparse_argument(
        "-p", "--prompt", "--print", nargs="?", const="", help="run PROMPT without a session; -: read stdin"
    ),
    flag_argument("-i --prompt-interactive PROMPT", "open a session with a first prompt", dest="first"),
    flag_argument(
        "-r --resume RUN",
        "resume this run: id, prefix or latest (default: as -c)",
        nargs="?",
        const=_NEWEST_CONVERSATION,
        default="",
    ),
    flag_argument("-c --continue", "resume the latest conversation of this folder", dest="latest"),
    flag_argument("--screen-reader", "work line by line; also with INTERLOCK_SCREEN_READER=1"),
    add_run_flags,
)
def prompt(args: Args) -> int | None:
    if args.latest and args.resume:
        raise UserError("-c resumes the latest conversation, -r the run you name. Give only one of them.")
    move_tools_from_words(args)
    if args.resume == _NEWEST_CONVERSATION:
        args.resume, args.latest = "", True
    if args.sandbox and (theirs := {*args.words} & {*SANDBOXES}):
        raise UserError(f"Unexpected argument {theirs.pop()!r}. {SANDBOX_HINT} See: interlock --help")
    words = " ".join(filter(None, [args.prompt, args.first, *args.words]))
    options = build_run_options(args, is_resumed=bool(args.latest or args.resume))
    found, client = None, Client(options)
    if args.latest or args.resume:
        found = (
            client.find_run_to_continue(has_prompt=bool(words))
            if args.latest
            else client.find_run(args.resume)
        )
    if args.screen_reader:
        os.environ[SCREEN_READER] = "1"
    if _should_open_session(args):
        from interlock.cli.session.model_setup import hide_and_keep_typed_input

        workflow, options = "task" if args.mode else "main", replace(options, interactive=True)
        with hide_and_keep_typed_input():
            from interlock.cli.session import model_setup
            from interlock.engine.client import first_model

            if not found and first_model.needs_first_model(options):
                model_setup.ask_for_and_store_model(options)
            elif package := first_model.find_missing_model_package(options):
                model_setup.offer_missing_package(package)
            if is_plain_terminal_or_screen_reader():
                from interlock.cli.session.line_session import run_line_session as session
            else:
                from interlock.cli.session.app import run_session as session

            entered = None if found else Client(options).enter_worktree()
            for line in entered.notes if entered else ():
                remark_paint().print_line(to_one_line(line))
            code = session(entered.options if entered else options, workflow, words, found and found.run)
            if entered and entered.remove_if_unused():
                remark_paint().print_line("Removed the worktree: nothing was done in it.")
            return code
    if found:
        follow_up = read_follow_up_prompt(words, found.status in ENDED)
        if follow_up and args.latest:
            found = client.find_run_to_continue(has_prompt=True)  # the piped text is a prompt, too
        return resume_run(found.run, (), follow_up, options, make_view(args, found.title))
    prompt = read_prompt(words)
    return start_run("main", {"prompt": prompt}, options, make_view(args, prompt))


def _should_open_session(args: Args) -> bool:
    """Whether a person is at a terminal and didn't ask for just an answer."""
    if args.first is not None and not _is_at_terminal():
        raise UserError(
            "-i opens a session, which needs a terminal. Without one, use: interlock -p 'what to do'"
        )
    return args.prompt is None and args.output_format in (None, "text") and _is_at_terminal()


def _is_at_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


class RunParser(Parser):
    """Turns a workflow's scalar inputs into flags once the workflow is known."""

    workflow: "Pipeline"
    own: tuple[str, ...] = ()

    def add_dynamic_flags(self, words: Sequence[str]) -> None:
        first, _ = self.parse_known_intermixed_args(list(words))
        self.workflow = Client(build_folder_options(first)).load_workflow(first.workflow)
        self.own = tuple(add_input_flags(self, self.workflow))

    def parse(self, arguments: Sequence[str]) -> Args:
        """With `--help`, print the help of the workflow that is named, else of the command."""
        end = arguments.index("--") if "--" in arguments else len(arguments)
        words = [w for w in arguments[:end] if w not in ("-h", "--help")]
        if len(words) == end:
            self.add_dynamic_flags(arguments)
        elif (expected := self.find_next_argument(words)[0]) is None or expected.dest not in (
            "cron",
            "workflow",
        ):
            self.add_dynamic_flags(words)
            rewrite_help_for_workflow(self, self.workflow, self.own)
        args = super().parse(arguments)
        args.typed, args.workflow = args.workflow, self.workflow
        args.own = {name: vars(args)[name] for name in self.own if vars(args)[name] is not None}
        return args


def add_workflow_run_arguments(parser: Parser) -> None:
    """Add a workflow, its input, and the flags of a run."""
    parser.add_argument("workflow", metavar="WORKFLOW", help="see: interlock workflows")
    parser.add_argument("words", nargs="*", default=[], metavar="PROMPT", help="task or question")
    add_flag(parser, "-p --prompt PROMPT", "same as the argument PROMPT")
    add_flag(parser, "--input JSON|@FILE|-", "input as a JSON object; -: read stdin")
    add_flag(parser, "--batch FILE.jsonl", "one JSON input per line; -: read stdin")
    add_flag(parser, "--resume", "with --batch: go on with a batch that was stopped", dest="go_on")
    add_flag(parser, "--context JSON|@FILE", "runtime context of a LangGraph graph, as a JSON object")
    add_flag(parser, "--guard", "ask before a LangGraph graph's tools run, by policy")
    as_json: dict[str, Any] = {"dest": "output_format", "const": "json"}
    add_flag(parser, "--json", "same as -o json", action="store_const", **as_json)
    add_run_flags(parser)


def workflow_run_options(args: Args) -> Options:
    context = (
        parse_json_object(read_argument_text(args.context, "--context"), "--context")
        if args.context
        else None
    )
    return replace(build_run_options(args), context=context, guard=args.guard)


@declare_arguments(add_workflow_run_arguments, parser_type=RunParser)
def run(args: Args) -> int:
    workflow: Pipeline = args.workflow
    options, inputs = workflow_run_options(args), args.own
    if args.batch:
        if args.words or args.prompt or args.input:
            raise UserError("--batch reads its inputs from a file. Leave out PROMPT and --input.")
        with redirect_stdout_to_stderr():
            given = partial(_parse_input, workflow)
            return run_batch(workflow.name, args.batch, given, inputs, options, is_resumed=args.go_on)
    if args.go_on:
        raise UserError("--resume belongs to --batch FILE. A single run goes on with: interlock resume RUN")
    inputs = read_run_input(args, workflow)
    title = str(inputs.get(workflow.prompt_field or "") or "")
    return start_run(workflow.name, inputs, options, make_view(args, title))


def read_run_input(args: Args, workflow: "Pipeline") -> dict[str, Any]:
    return {**_read_prompt_and_json_input(args, workflow), **args.own}


def _read_prompt_and_json_input(args: Args, workflow: "Pipeline") -> dict[str, Any]:
    words = " ".join(filter(None, [args.prompt, *args.words]))
    inputs = (
        _parse_input(workflow, read_argument_text(args.input, "--input"), "--input") if args.input else {}
    )
    field = workflow.prompt_field
    if field is None:
        if words:
            raise UserError(
                f"Workflow {workflow.name!r} takes no PROMPT. Give --input; see: interlock schema {workflow.name}"
            )
        return inputs
    how = f"interlock run {workflow.name}"
    if words and args.input:
        return {**inputs, field: read_prompt(words, how) if words == STDIN else words}
    if args.input:
        return inputs
    needed = workflow.input.model_fields[field].is_required()
    words = words if words or needed else read_piped_text(should_wait=False)
    return {field: read_prompt(words, how)} if words or needed else {}


def _parse_input(workflow: "Pipeline", text: str, label: str) -> dict[str, Any]:
    """An input's JSON: an object, or any value for a graph whose input has no fields."""
    if not workflow.accepts_non_object_input:
        return parse_json_object(text, label)
    value = parse_json(text, label)
    is_wrapped = isinstance(value, dict) and value.keys() == {"input"}
    return cast("dict[str, Any]", value) if is_wrapped else {"input": value}


@declare_arguments(
    Parser.add_run_argument,
    add_decision_flags,
    flag_argument("-p --prompt PROMPT", "another prompt, once the run has answered; -: read stdin"),
    flag_argument("--compress", "compress the conversation instead of sending a prompt"),
    flag_argument("--new-rules", "use current policies and settings, not the recorded ones"),
    add_run_flags,
)
def resume(args: Args) -> int | None:
    options = replace(
        build_run_options(args, is_resumed=True), new_rules=args.new_rules, compress=args.compress
    )
    client = Client(options)
    run = client.find_run(args.run)
    prompt = read_follow_up_prompt(args.prompt, run.status in ENDED, bool(args.decisions) or args.compress)
    decisions = _build_requested_decisions(args, client, run.run) if args.decisions else []
    view = make_view(args, run.title, [d.approval for d in decisions])
    return resume_run(run.run, decisions, prompt, options, view)


def _build_requested_decisions(args: Args, client: Client, run: str) -> list[Decision]:
    waiting = [request.fields for request in client.waiting_requests(run)]
    why = "" if waiting else client.explain_why_no_request_waits(run)
    return build_decisions(args.decisions, waiting, client.describe_past_requests(run), why)


class _InitParser(Parser):
    def parse(self, arguments: Sequence[str]) -> Args:
        super().parse(arguments)
        return build_parser("run").parse(["init", *arguments])


@declare_arguments(
    argparse_argument("words", nargs="*", metavar="HINT", help="what to explore or mention"),
    flag_argument("--file NAME", "file from `context.fileName`; default: the existing one, else the first"),
    add_run_flags,
    parser_type=_InitParser,
)
def init(args: Args) -> int:
    return run(args)


_TYPES = {str: "TEXT", int: "N", float: "NUMBER", bool: "BOOLEAN", list: "LIST", tuple: "LIST", set: "LIST"}


def add_input_flags(parser: Parser, workflow: "Pipeline") -> list[str]:
    """Add a flag for each scalar input that isn't one already; returns their names."""
    taken = {n for a in parser._actions for n in (a.dest, *a.option_strings)}  # pyright: ignore[reportPrivateUsage]
    group = parser.add_argument_group(f"inputs of {workflow.name}")
    added: list[str] = []
    for name, field in workflow.input.model_fields.items():
        kind = _flag_type(field.annotation)
        typed, about = "--" + name.replace("_", "-"), _input_help_text(field)
        if kind is None or name == workflow.prompt_field or taken & {name, typed, f"--no-{typed[2:]}"}:
            continue
        if kind is bool:
            group.add_argument(typed, action=argparse.BooleanOptionalAction, help=about)
        elif isinstance(kind, tuple):
            add_flag(group, f"{typed} {'|'.join(kind)}", about, type=choice_parser(kind))
        else:
            read = number_parser(kind) if kind in (int, float) else kind
            add_flag(group, f"{typed} {_TYPES[kind]}", about, type=read)
        added.append(name)
    return added


def rewrite_help_for_workflow(parser: Parser, workflow: "Pipeline", flags: Sequence[str]) -> None:
    """Turn the parser's help into this workflow's, with its own inputs first."""
    from interlock.state.run import WorkflowInput

    name, prompt, fields = workflow.name, workflow.prompt_field, workflow.input.model_fields
    summary = workflow.summary or PIPELINES.get(name, "")
    parser.usage = f"interlock run {name}{' [PROMPT]' if prompt else ''} [FLAGS]".replace("%", "%%")
    parser.description = f"{name}: {summary}"
    parser.epilog = f"every input as JSON Schema: interlock schema {name}"
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if action.dest == "words" and prompt is not None:
            action.help = f"{prompt}: {_input_help_text(fields[prompt])}"
        elif action.dest in ("workflow", "words"):
            action.help = argparse.SUPPRESS
    groups = parser._action_groups  # pyright: ignore[reportPrivateUsage]
    own, rest = groups.pop(), parser.add_argument_group(f"inputs of {name} without a flag, for --input")
    for other in (f for f in fields if f not in {*flags, prompt, *WorkflowInput.model_fields}):
        shown = argparse.Action(
            [], other, 0, metavar=f"{other} {_type_placeholder(fields[other].annotation)}"
        )
        shown.help = _input_help_text(fields[other])
        rest._group_actions.append(shown)  # pyright: ignore[reportPrivateUsage] - shown, not parsed
    groups[1:1] = [own, groups.pop()]


def _input_help_text(field: "FieldInfo") -> str:
    """What an input is, and its default unless the description says it."""
    text = " ".join((field.description or "").replace(" ★", "").split())
    default = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required():
        text = f"{text} (required)"
    elif default not in (None, False, "", [], {}) and "default" not in text:
        text = f"{text} (default: {'true' if default is True else default})"
    return text.strip().replace("%", "%%")


def _flag_type(annotation: Any) -> type | tuple[str, ...] | None:
    """str, int, float or bool for `T` or `T | None`, the values of a Literal of strings; None for anything else."""
    if annotation in (str, int, float, bool):
        return annotation
    values = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _flag_type(values[0])
    if get_origin(annotation) is Literal:
        return values if all(isinstance(value, str) for value in values) else None
    kinds = {_flag_type(a) for a in values if a is not type(None)}
    return kinds.pop() if _is_union(annotation) and len(kinds) == 1 else None


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _type_placeholder(annotation: Any) -> str:
    """The JSON type of an input, as help shows it."""
    if _is_union(annotation):
        return "|".join(
            dict.fromkeys(_type_placeholder(a) for a in get_args(annotation) if a is not type(None))
        )
    return _TYPES.get(get_origin(annotation) or annotation, "OBJECT")
