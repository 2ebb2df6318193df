"""agents: the sub-agents that there are here."""

from interlock.cli.commands.tools import first_sentence
from interlock.cli.flags import add_folder_flags, folder_of
from interlock.cli.parsing import Parser
from interlock.cli.render.output import show_json, show_table, warn


def parser() -> Parser:
    made = Parser(
        "agents",
        "[--json]",
        "The sub-agents that a model can ask: built in, your own (~/.interlock/agents/NAME.md) and a trusted folder's.",
        [("interlock agents", "name, where it is from, what it is for")],
    )
    add_folder_flags(made)
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.services.agents.definitions import load_agents

    agents, problems = load_agents(*folder_of(args))
    warn(problems)
    if args.json:
        show_json([agent.model_dump(mode="json") for agent in agents.values()])
        return 0
    rows = [(agent.name, agent.source, first_sentence(agent.description)) for agent in agents.values()]
    show_table(rows, ("agent", "source", "for"))
    return 0
