"""tools: what a model can call, the modes that say which, and the sub-agents that it can ask."""

from interlock.cli.flags import add_folder_flags, folder_of
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import show_json, show_table, warn


def tools_parser() -> Parser:
    made = Parser("tools", "[--json]", "What a model can call, and what each call can do.")
    flag(made, "--json", "with the JSON Schema of the arguments")
    return made


def _first_sentence(text: str) -> str:
    return text.strip().partition(". ")[0].partition("\n")[0].rstrip(".")


def tools(arguments: list[str]) -> int:
    args = tools_parser().parse(arguments)
    from interlock.tools.table import TOOLS

    if args.json:
        shown = [{"name": t.name, "risk": t.risk, "description": t.description} for t in TOOLS.values()]
        schemas = [tool.args.model_json_schema() for tool in TOOLS.values()]
        show_json([{**a, "parameters": schema} for a, schema in zip(shown, schemas, strict=True)])
    else:
        rows = [(t.name, t.risk, _first_sentence(t.description)) for t in TOOLS.values()]
        show_table(rows, ("tool", "can", "what"))
    return 0


def modes_parser() -> Parser:
    made = Parser(
        "modes",
        "[--json]",
        "The modes of work: built in, your own (~/.interlock/custom_modes.yaml) and a trusted folder's (.roomodes).",
        [("interlock run task 'plan the release' --mode architect", "a task in a mode")],
    )
    add_folder_flags(made)
    return made


def modes(arguments: list[str]) -> int:
    args = modes_parser().parse(arguments)
    from interlock.services.policy.modes import load_modes
    from interlock.state.text import visible

    modes, problems = load_modes(*folder_of(args))
    warn(problems)
    if args.json:
        show_json([mode.model_dump() for mode in modes.all()])
        return 0
    rows = [
        (
            mode.slug,
            mode.source,
            ", ".join(_group(g.name, g.file_regex) for g in mode.groups),
            mode.when_to_use,
        )
        for mode in modes.all()
    ]
    show_table([tuple(map(visible, row)) for row in rows], ("mode", "source", "groups", "for"))
    return 0


def _group(name: str, pattern: str) -> str:
    return f"{name} ({pattern})" if pattern else name


def agents_parser() -> Parser:
    made = Parser(
        "agents",
        "[--json]",
        "The sub-agents that a model can ask: built in, your own (~/.interlock/agents/NAME.md) and a trusted folder's.",
        [("interlock agents", "name, where it is from, what it is for")],
    )
    add_folder_flags(made)
    return made


def agents(arguments: list[str]) -> int:
    args = agents_parser().parse(arguments)
    from interlock.services.agents.definitions import load_agents

    agents, problems = load_agents(*folder_of(args))
    warn(problems)
    if args.json:
        show_json([agent.model_dump(mode="json") for agent in agents.values()])
        return 0
    rows = [(agent.name, agent.source, _first_sentence(agent.description)) for agent in agents.values()]
    show_table(rows, ("agent", "source", "for"))
    return 0
