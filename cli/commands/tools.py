"""tools: what a model can call."""

from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import show_json, show_table


def parser() -> Parser:
    made = Parser("tools", "[--json]", "What a model can call, and what each call can do.")
    flag(made, "--json", "with the JSON Schema of the arguments")
    return made


def first_sentence(text: str) -> str:
    return text.strip().partition(". ")[0].partition("\n")[0].rstrip(".")


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.tools.table import TOOLS

    if args.json:
        shown = [{"name": t.name, "risk": t.risk, "description": t.description} for t in TOOLS.values()]
        schemas = [tool.args.model_json_schema() for tool in TOOLS.values()]
        show_json([{**a, "parameters": schema} for a, schema in zip(shown, schemas, strict=True)])
    else:
        rows = [(t.name, t.risk, first_sentence(t.description)) for t in TOOLS.values()]
        show_table(rows, ("tool", "can", "what"))
    return 0
