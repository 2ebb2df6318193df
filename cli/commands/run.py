"""run: any workflow, with words, JSON or a batch of JSON lines as its input."""

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args, get_origin

from interlock.cli.driving import notified, start, tell_trace, view_for
from interlock.cli.flags import add_running_flags, options_from, options_here
from interlock.cli.inputs import batch_lines, json_object, piped_text, prompt_from, read_spec
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import write_json
from interlock.engine.options import Options
from interlock.state.errors import InputError, InterlockError, RunError, UserError

if TYPE_CHECKING:
    from interlock.graphs._pipeline import Pipeline

_CANCELLED = 130


def parser() -> Parser:
    made = Parser(
        "run",
        "WORKFLOW [PROMPT] [FLAGS]",
        "Run a workflow. Its input is PROMPT, or JSON (see: interlock schema WORKFLOW); a workflow's own "
        "scalar\ninputs are flags, too.",
        [
            ("interlock run main 'fix the failing test'", "the same as interlock -p"),
            ('interlock run turn --input \'{"request": "hello"}\' -o json', "one model turn, input as JSON"),
            ("interlock run search 'where are retries delayed'", "code found by what it does"),
            ("interlock run main --batch tasks.jsonl > results.jsonl", "one input a line, one output a line"),
        ],
    )
    made.add_argument("workflow", metavar="WORKFLOW", help="see: interlock workflows")
    made.add_argument("words", nargs="*", metavar="PROMPT", help="what to do")
    flag(made, "-p --prompt PROMPT", "what to do; same as the words")
    flag(made, "--input JSON|@FILE|-", "the input as a JSON object; -: from stdin")
    flag(made, "--batch FILE.jsonl", "one input a line; -: from stdin")
    flag(
        made,
        "--json",
        "same as -o json",
        action="store_const",
        dest="output_format",
        const="json",
        default="text",
    )
    add_running_flags(made)
    return made


def execute(arguments: list[str]) -> int:
    made = parser()
    first, _ = made.parse_known_intermixed_args(arguments)
    from interlock.engine.workflows import find_workflow

    workflow, _ = find_workflow(first.workflow, options_here(first))
    own = _add_own_flags(made, workflow)
    args = made.parse(arguments)
    options = options_from(args)
    given = {name: vars(args)[name] for name in own if vars(args)[name] is not None}
    if args.batch:
        if args.words or args.prompt or args.input:
            raise UserError("--batch brings its own inputs. Leave out PROMPT and --input.")
        return _run_batch(workflow.name, args.batch, given, options)
    given = {**_input(args, workflow), **given}
    title = str(given.get(workflow.prompt_field or "") or "")
    return start(workflow.name, given, options, view_for(args, title))


def _input(args: argparse.Namespace, workflow: "Pipeline") -> dict[str, Any]:
    words = " ".join(filter(None, [args.prompt, *args.words]))
    given = json_object(read_spec(args.input, "--input"), "--input") if args.input else {}
    field = workflow.prompt_field
    if field is None:
        if words:
            raise UserError(
                f"Workflow {workflow.name!r} takes no PROMPT. Give --input; see: interlock schema {workflow.name}"
            )
        return given
    if words and args.input:
        return {**given, field: words}
    if args.input:
        return given
    needed = workflow.input.model_fields[field].is_required()
    words = words if words or needed else piped_text(expected=False)
    return {field: prompt_from(words)} if words or needed else {}


def _add_own_flags(made: Parser, workflow: "Pipeline") -> list[str]:
    """A flag for each scalar input that isn't one already; their names."""
    taken = {a.dest for a in made._actions}  # pyright: ignore[reportPrivateUsage]
    group = made.add_argument_group(f"inputs of {workflow.name}")
    added: list[str] = []
    for name, field in workflow.input.model_fields.items():
        kind = _scalar(field.annotation)
        if kind is None or name in taken or name == workflow.prompt_field:
            continue
        typed = "--" + name.replace("_", "-")
        if kind is bool:
            group.add_argument(typed, action=argparse.BooleanOptionalAction, help=field.description)
        else:
            flag(group, f"{typed} {kind.__name__.upper()}", field.description or "", type=kind)
        added.append(name)
    return added


def _scalar(annotation: Any) -> type | None:
    """str, int, float or bool of `T`, `T | None` or a Literal of strings; None for anything else."""
    if annotation in (str, int, float, bool):
        return annotation
    if str(get_origin(annotation)) == "typing.Literal":
        return str
    kinds = {_scalar(a) for a in get_args(annotation) if a is not type(None)}
    return kinds.pop() if len(kinds) == 1 else None


def _run_batch(workflow: str, name: str, defaults: Mapping[str, Any], options: Options) -> int:
    """One output a line, in order; a bad line doesn't stop the rest.

    42 when a line was bad, else the first exit code that isn't 0. Ctrl-C ends the batch with the line it hits.
    """
    from interlock.cli.render.structured import error_object, outcome_object
    from interlock.engine import run_sync

    exit_code = 0
    for number, line in enumerate(batch_lines(name), 1):
        print(f"batch: line {number}", file=sys.stderr)
        code = InputError.exit_code
        try:
            if isinstance(line, InputError):
                raise line
            outcome = run_sync(workflow, {**defaults, **line}, options=options)
            outcome = notified(outcome, [outcome.notifying])
            write_json(outcome_object(outcome))
            tell_trace(outcome, options)
            code = outcome.exit_code
        except RunError:
            raise  # of the store: no line could run
        except InterlockError as error:  # its model or workspace can't be used, or its input
            told = error_object(error)
            del told["code"]
            write_json({"error": {"field": "", **told}})
        if code == _CANCELLED:
            return code
        exit_code = code if code == InputError.exit_code else exit_code or code
    return exit_code
