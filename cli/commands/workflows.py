"""workflows: what can be run."""

from interlock.cli.parsing import Parser
from interlock.cli.render.output import show_json, show_table


def parser() -> Parser:
    made = Parser("workflows", "[--json]", "What can be run with: interlock run WORKFLOW")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.graphs import PIPELINES

    if args.json:
        show_json([{"name": name, "summary": what} for name, what in PIPELINES.items()])
    else:
        show_table(list(PIPELINES.items()))
    return 0
