"""subagent: what sub-agents and their parents are told."""
