"""agents: the kinds of sub-agents, from the package's and the user's Markdown files."""

from interlock.services.agents.load import load_agents
from interlock.services.agents.tools import AGENT_TOOLS, ONLY_AGENTS, agent_tools, own_tools

__all__ = ["AGENT_TOOLS", "ONLY_AGENTS", "agent_tools", "load_agents", "own_tools"]
