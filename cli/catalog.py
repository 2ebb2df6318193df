"""catalog: every command, by the name that is typed: what `--help` shows and what "did you mean" knows."""

from typing import NamedTuple


class Command(NamedTuple):
    """One command; its module is `cli/commands/<name>.py`."""

    group: str
    usage: str
    summary: str


COMMANDS = {
    "run": Command("Work", "run WORKFLOW [PROMPT]", "run any workflow, with JSON input or a batch of them"),
    "resume": Command("Work", "resume RUN", "decide what waits, and go on; also after a crash or Ctrl-C"),
    "init": Command("Work", "init [HINT]", "write GEMINI.md from a look at this repository; asks first"),
    "approvals": Command("Decide", "approvals [RUN]", "everything that waits for a person, over all runs"),
    "trust": Command("Decide", "trust [DIR]", "let a folder's own settings, hooks and policies count"),
    "fork": Command("Travel", "fork RUN --at STEP", "a new run from there, with the files as they were then"),
    "rewind": Command("Travel", "rewind RUN --at STEP", "fork in place, after showing what will change"),
    "undo": Command("Travel", "undo RUN [--call ID]", "take back what a run, or one call, did to the files"),
    "replay": Command(
        "Travel", "replay RUN", "once more, offline, from the record; names the first difference"
    ),
    "export": Command("Travel", "export RUN", "a run as one HTML page, as Markdown or as JSON"),
    "runs": Command("Look", "runs", "list runs; `runs rm RUN` deletes one"),
    "show": Command("Look", "show RUN", "status, path through the graph, calls, tokens, what waits"),
    "history": Command("Look", "history RUN", "every step: node, time, what it changed"),
    "diff": Command("Look", "diff RUN STEP STEP", "what changed in the state, or with --files in the files"),
    "diagram": Command(
        "Look", "diagram WORKFLOW", "draw a workflow's graph, or the path that a run took in it"
    ),
    "workflows": Command("Learn", "workflows", "what can be run"),
    "schema": Command("Learn", "schema WORKFLOW", "its input and output as JSON Schema"),
    "memory": Command("Learn", "memory [show|add|refresh]", "the files that every conversation begins with"),
    "tools": Command("Learn", "tools", "what the model can call"),
    "modes": Command("Learn", "modes", "the modes of work: which tools each has, on which files"),
    "agents": Command("Learn", "agents", "the sub-agents that a model can ask"),
    "doctor": Command("Learn", "doctor [--store]", "check this machine, the settings and the store"),
    "policy": Command("Learn", "policy check TOOL JSON", "may this call run here, and which rule decides"),
    "hooks": Command("Learn", "hooks [test EVENT]", "which hooks count here, and what an event would run"),
    "mcp": Command("Learn", "mcp list|test|add|remove", "MCP servers: which there are, and what they offer"),
    "completion": Command("Learn", "completion bash|zsh|fish", "TAB completion for your shell: a script"),
    "new": Command("Develop", "new workflow NAME", "begin a workflow of your own, with its test"),
    "diagrams": Command("Develop", "diagrams --write|--check", "regenerate or verify diagrams/"),
}


def nearest(word: str, known: list[str], cutoff: float = 0.6) -> str:
    """` Did you mean 'x'?`, or nothing."""
    return did_you_mean(near(word, known, cutoff))


def near(word: str, known: list[str], cutoff: float) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(word, known, 3, cutoff)


def did_you_mean(names: list[str]) -> str:
    return f" Did you mean {' or '.join(map(repr, names))}?" if names else ""


_INTRO = """\
Interlock: a coding agent for the terminal. Each run can be stopped at any moment, looked
into, decided on by somebody else tomorrow, and resumed; nothing it did is lost or done twice.

usage: interlock -p 'what to do'          work in this folder, answer, end
       … | interlock -p 'what to do'      piped text is put before the prompt
       interlock COMMAND …

start here:
  interlock -p 'fix the failing test'     asks before it changes anything; without a terminal: exit 75
  interlock approvals                     what waits for you, and the commands that decide it
  interlock resume latest --approve all   decide, and go on
  interlock show latest                   what happened
"""
_OUTRO = """\
RUN is an id, the beginning of one, or `latest`: the newest of this folder. Lists take --json. Flags for
running (model, approval mode, output format, limits): interlock run --help. A command's own help:
interlock COMMAND --help.

exit codes: 0 done, 1 error, 2 usage, 41 no key, 42 bad input, 44 no sandbox, 52 bad settings,
  53 turn limit, 54 tool failure, 55 folder not trusted, 56 refused, 57 budget, 58 loop,
  75 waits for a person, 124 time-out, 130 cancelled.
environment: GEMINI_API_KEY, GEMINI_MODEL, OPENAI_API_KEY, INTERLOCK_HOME, NO_COLOR.
"""


def root_help() -> str:
    """The text of `interlock --help`; README shows the same."""
    lines: list[str] = []
    group = ""
    for command in COMMANDS.values():
        if command.group != group:
            group = command.group
            lines.append(f"\n{group.lower()}:")
        lines.append(f"  {command.usage:<26}{command.summary}")
    return _INTRO + "\n".join(lines) + "\n\n" + _OUTRO
