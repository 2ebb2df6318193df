"""agents: the kinds of sub-agents, from the package's and the user's Markdown files."""

from interlock.services.agents.definitions import (
    AGENT_TOOLS,
    ONLY_AGENTS,
    agent_tools,
    load_agents,
    own_tools,
)

__all__ = ["AGENT_TOOLS", "ONLY_AGENTS", "agent_tools", "load_agents", "own_tools"]
