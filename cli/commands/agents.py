"""agents: the sub-agents that there are here."""

import os
from pathlib import Path

from interlock.cli.commands.tools import first_sentence
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import show_json, show_table, warn


def parser() -> Parser:
    made = Parser(
        "agents",
        "[--json]",
        "The sub-agents that a model can ask: built in, your own (~/.interlock/agents/NAME.md) and a trusted folder's.",
        [("interlock agents", "name, where it is from, what it is for")],
    )
    flag(made, "-C --workspace DIR", "of the folder DIR", type=Path)
    flag(made, "--skip-trust", "with this folder's own, trusted or not")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.services.agents.definitions import load_agents
    from interlock.services.trust import is_trusted

    root, home = Path(os.path.realpath(args.workspace or Path.cwd())), Path.home()
    agents, problems = load_agents(root, home, args.skip_trust or is_trusted(root, home))
    warn(problems)
    if args.json:
        show_json([agent.model_dump(mode="json") for agent in agents.values()])
        return 0
    rows = [(agent.name, agent.source, first_sentence(agent.description)) for agent in agents.values()]
    show_table(rows, ("agent", "source", "for"))
    return 0
