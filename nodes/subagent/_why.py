"""_why: the reason for which an agent ended, in words."""

from interlock.state.subagent import AgentDefinition


def why(reason: str, definition: AgentDefinition, error: str = "") -> str:
    """One sentence, for models and people."""
    texts = {
        "goal": "It completed its task.",
        "max_turns": f"The limit of {definition.max_turns} turns is reached.",
        "timeout": f"The limit of {definition.max_time_minutes:g} minutes is reached.",
        "no_complete_task": "It stopped calling tools without calling complete_task.",
        "aborted": error or "A person stopped it.",
    }
    return texts.get(reason) or f"It failed: {error or 'no reason is known'}"
