"""catalog: every command, by the name that is typed: where it is, what `--help` shows and "did you mean" knows."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from interlock.cli.parsing import Parser


class Command(NamedTuple):
    """One command."""

    module: str
    """Of `cli/commands/`: there `NAME` executes it, and `NAME_parser` says what it takes."""
    group: str
    usage: str
    summary: str


COMMANDS = {
    "run": Command(
        "work", "Work", "run WORKFLOW [PROMPT]", "run any workflow, with JSON input or a batch of them"
    ),
    "resume": Command(
        "work", "Work", "resume RUN", "decide what waits, and go on; also after a crash or Ctrl-C"
    ),
    "init": Command(
        "work", "Work", "init [HINT]", "write GEMINI.md from a look at this repository; asks first"
    ),
    "approvals": Command(
        "runs", "Decide", "approvals [RUN]", "everything that waits for a person, over all runs"
    ),
    "trust": Command(
        "folder", "Decide", "trust [DIR]", "let a folder's own settings, hooks and policies count"
    ),
    "fork": Command(
        "travel", "Travel", "fork RUN --at STEP", "a new run from there, with the files as they were then"
    ),
    "rewind": Command(
        "travel", "Travel", "rewind RUN --at STEP", "fork in place, after showing what will change"
    ),
    "undo": Command(
        "travel", "Travel", "undo RUN [--call ID]", "take back what a run, or one call, did to the files"
    ),
    "replay": Command(
        "travel", "Travel", "replay RUN", "run it again offline, from its record; names the first difference"
    ),
    "export": Command("draw", "Travel", "export RUN", "a run as one HTML page, as Markdown or as JSON"),
    "runs": Command("runs", "Look", "runs", "list runs; `runs rm RUN` deletes one"),
    "show": Command("show", "Look", "show RUN", "status, path through the graph, calls, tokens, what waits"),
    "history": Command("runs", "Look", "history RUN", "every step: node, time, what it changed"),
    "diff": Command(
        "runs", "Look", "diff RUN STEP STEP", "what changed in the state, or with --files in the files"
    ),
    "diagram": Command(
        "draw", "Look", "diagram WORKFLOW", "draw a workflow's graph, or the path that a run took through it"
    ),
    "workflows": Command("workflows", "Learn", "workflows", "what can be run"),
    "schema": Command(
        "workflows", "Learn", "schema WORKFLOW", "a workflow's input and output as JSON Schema"
    ),
    "memory": Command(
        "folder", "Learn", "memory [show|add|refresh]", "the files that every conversation begins with"
    ),
    "tools": Command("tools", "Learn", "tools", "what the model can call"),
    "modes": Command("tools", "Learn", "modes", "the modes of work: which tools each has, on which files"),
    "agents": Command("tools", "Learn", "agents", "the sub-agents that a model can ask"),
    "doctor": Command(
        "doctor", "Learn", "doctor [--store]", "check this machine, the settings and the store"
    ),
    "policy": Command(
        "policy", "Learn", "policy check TOOL JSON", "may this call run here, and which rule decides"
    ),
    "hooks": Command(
        "hooks", "Learn", "hooks [test EVENT]", "which hooks count here, and what an event would run"
    ),
    "mcp": Command(
        "mcp", "Learn", "mcp list|test|add|remove", "MCP servers: which there are, and what they offer"
    ),
    "completion": Command(
        "completion", "Learn", "completion bash|zsh|fish", "print the script for TAB completion in your shell"
    ),
    "new": Command("workflows", "Develop", "new workflow NAME", "start a workflow of your own, with a test"),
    "diagrams": Command("draw", "Develop", "diagrams --write|--check", "regenerate or verify diagrams/"),
}


def parser_of(name: str) -> "Parser":
    """Of a command, or of `prompt`, which nobody types."""
    return _part(name, f"{name}_parser")()


def execute(name: str, arguments: list[str]) -> int:
    """Run one command; its exit code."""
    return _part(name, name)(arguments)


def _part(name: str, part: str) -> Any:
    module = COMMANDS[name].module if name in COMMANDS else "work"
    return getattr(import_module(f"interlock.cli.commands.{module}"), part)


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

usage: interlock [PROMPT]                 a session in this folder: ask, watch, decide, go on
       interlock -p 'what to do'          one prompt, without a session
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
