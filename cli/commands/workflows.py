"""workflows: what can be run."""

from interlock.cli import tables
from interlock.cli.parsing import Parser


def parser() -> Parser:
    made = Parser("workflows", "[--json]", "What can be run with: interlock run WORKFLOW")
    made.add_argument("--json", action="store_true", help="for programs")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.graphs import PIPELINES

    if args.json:
        tables.show_json([{"name": name, "summary": what} for name, what in PIPELINES.items()])
    else:
        tables.show(list(PIPELINES.items()))
    return 0
