"""schema: a workflow's input and output as JSON Schema."""

from pathlib import Path

from interlock.cli.flags import options_here
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import show_json


def parser() -> Parser:
    made = Parser("schema", "WORKFLOW [--input|--output]", "A workflow's input and output as JSON Schema.")
    made.add_argument("workflow", metavar="WORKFLOW", help="see: interlock workflows")
    which = made.add_mutually_exclusive_group()
    flag(which, "--input", "only the input's")
    flag(which, "--output", "only the output's")
    flag(made, "-C --workspace --cd DIR", "of the folder DIR", type=Path)
    flag(made, "--skip-trust", "of this folder, too, though nobody trusts it")
    flag(made, "--json", "as everywhere; it is JSON anyway")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.engine.workflows import find_workflow

    workflow, _ = find_workflow(args.workflow, options_here(args))
    given = workflow.input.model_json_schema()
    made = workflow.output.model_json_schema(mode="serialization")
    show_json(given if args.input else made if args.output else {"input": given, "output": made})
    return 0
