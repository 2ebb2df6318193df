"""catalog: every command, by the name that is typed; what `--help` groups and what "did you mean" knows."""

from typing import NamedTuple


class Command(NamedTuple):
    """One command; its module is `cli/commands/<name>.py`."""

    group: str
    usage: str
    summary: str


COMMANDS = {
    "run": Command("Work", "run WORKFLOW [PROMPT]", "run any workflow, with JSON input or a batch of them"),
    "resume": Command("Work", "resume RUN", "decide what waits, and go on; also after a crash or Ctrl-C"),
    "approvals": Command("Decide", "approvals [RUN]", "everything that waits for a person, over all runs"),
    "trust": Command("Decide", "trust [DIR]", "let a folder's own settings, hooks and policies count"),
    "runs": Command("Look", "runs", "list runs; `runs rm RUN` deletes one"),
    "show": Command("Look", "show RUN", "status, path through the graph, calls, tokens, what waits"),
    "history": Command("Look", "history RUN", "every step: node, time, what it changed"),
    "diff": Command("Look", "diff RUN STEP STEP", "what changed in the state between two steps"),
    "diagram": Command(
        "Look", "diagram WORKFLOW", "draw a workflow's graph, or the path that a run took in it"
    ),
    "workflows": Command("Learn", "workflows", "what can be run"),
    "schema": Command("Learn", "schema WORKFLOW", "its input and output as JSON Schema"),
    "tools": Command("Learn", "tools", "what the model can call"),
    "doctor": Command("Learn", "doctor [--store]", "check this machine, the settings and the store"),
    "policy": Command("Learn", "policy check TOOL JSON", "may this call run here, and which rule decides"),
    "hooks": Command("Learn", "hooks [test EVENT]", "which hooks count here, and what an event would run"),
    "diagrams": Command("Develop", "diagrams --write|--check", "regenerate or verify diagrams/"),
}
LATER = {
    "modes": "Modes come with the task loop",
    "fork": "Forking a run comes later; `resume` and `show --at STEP` exist",
    "rewind": "Rewinding a run comes later; `resume` and `show --at STEP` exist",
    "replay": "Replaying a run comes later; `--record-responses` and `--fake-responses` exist",
    "export": "Exporting a run comes later; `show RUN --json` exists",
    "mcp": "MCP servers come later",
}
"""Commands of later versions: one clear line instead of being taken for a prompt."""


def nearest(word: str, known: list[str], cutoff: float = 0.6) -> str:
    """` Did you mean 'x'?`, or nothing."""
    return did_you_mean(near(word, known, cutoff))


def near(word: str, known: list[str], cutoff: float) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(word, known, 3, cutoff)


def did_you_mean(names: list[str]) -> str:
    return f" Did you mean {' or '.join(map(repr, names))}?" if names else ""
