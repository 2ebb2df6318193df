"""schema: a workflow's input and output as JSON Schema."""

from interlock.cli import tables
from interlock.cli.parsing import Parser


def parser() -> Parser:
    made = Parser("schema", "WORKFLOW [--input|--output]", "A workflow's input and output as JSON Schema.")
    made.add_argument("workflow", metavar="WORKFLOW", help="see: interlock workflows")
    which = made.add_mutually_exclusive_group()
    which.add_argument("--input", action="store_true", help="only the input's")
    which.add_argument("--output", action="store_true", help="only the output's")
    made.add_argument("--json", action="store_true", help="as everywhere; it is JSON anyway")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.graphs import pipeline

    workflow = pipeline(args.workflow)
    if args.input:
        tables.show_json(workflow.input.model_json_schema())
    elif args.output:
        tables.show_json(workflow.output.model_json_schema(mode="serialization"))
    else:
        given, made = (
            workflow.input.model_json_schema(),
            workflow.output.model_json_schema(mode="serialization"),
        )
        tables.show_json({"input": given, "output": made})
    return 0
