"""catalog: every command by its typed name: its module, its line in `--help`, and "did you mean"."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from interlock.cli.parsing import Parser


class Command(NamedTuple):
    module: str
    """Module in `cli/commands/`: its `NAME` runs the command, its `NAME_parser` makes the parser."""
    usage: str
    summary: str


_LISTED = {
    "Work": (
        ("work", "run WORKFLOW [PROMPT]", "run any workflow, with JSON input or a batch of them"),
        ("work", "resume RUN", "decide what waits, and go on; also after a crash or Ctrl-C"),
        ("work", "init [HINT]", "look at this repository and write GEMINI.md; asks first"),
        ("acp", "acp", "serve an editor: Zed, JetBrains, Neovim, Emacs, Toad"),
    ),
    "Decide": (
        ("runs", "approvals [RUN]", "everything that waits for a person, across all runs"),
        ("folder", "trust [DIR]", "let a folder's own settings, hooks and policies count"),
    ),
    "Travel": (
        ("travel", "fork RUN --at STEP", "a new run from there, with the files as they were then"),
        ("travel", "rewind RUN --at STEP", "fork in place, after showing what will change"),
        ("travel", "undo RUN [--call ID]", "take back what a run, or one call, did to the files"),
        ("travel", "replay RUN", "run it again offline, from its record; names the first difference"),
        ("draw", "export RUN", "a run as one HTML page, as Markdown or as JSON"),
    ),
    "Look": (
        ("runs", "runs", "list runs; `runs rm RUN` deletes one"),
        ("show", "show RUN", "status, path through the graph, calls, tokens, what waits"),
        ("runs", "history RUN", "every step: node, time, what it changed"),
        ("runs", "diff RUN STEP STEP", "what changed in the state, or with --files in the files"),
        ("draw", "diagram WORKFLOW", "draw a workflow's graph, or the path that a run took through it"),
    ),
    "Learn": (
        ("listing", "workflows", "what can be run"),
        ("listing", "schema WORKFLOW", "a workflow's input and output as JSON Schema"),
        ("folder", "memory [show|add|refresh]", "the files that every conversation begins with"),
        ("listing", "tools", "what the model can call"),
        ("listing", "models", "what the configured providers and local servers offer"),
        ("listing", "modes", "the modes of work: which tools each has, on which files"),
        ("listing", "agents", "the sub-agents that a model can ask"),
        ("doctor", "doctor [--store]", "check this machine, the settings and the store"),
        ("checks", "policy check TOOL JSON", "may this call run here, and which rule decides"),
        ("checks", "hooks [test EVENT]", "which hooks count here, and what an event would run"),
        ("mcp", "mcp list|test|add|remove", "MCP servers: which there are, and what they offer"),
        ("completion", "completion bash|zsh|fish", "print the script for TAB completion in your shell"),
    ),
    "Develop": (
        ("listing", "new workflow NAME", "start a workflow of your own, with a test"),
        ("draw", "diagrams --write|--check", "regenerate or verify diagrams/"),
    ),
}
COMMANDS = {
    usage.partition(" ")[0]: Command(module, usage, summary)
    for rows in _LISTED.values()
    for module, usage, summary in rows
}


def parser_of(name: str) -> "Parser":
    """The parser of a command, or of `prompt`, which nobody types."""
    return _part(name, f"{name}_parser")()


def execute(name: str, arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    return _part(name, name)(parser_of(name).parse(arguments)) or 0


def _part(name: str, part: str) -> Any:
    module = COMMANDS[name].module if name in COMMANDS else "work"
    return getattr(import_module(f"interlock.cli.commands.{module}"), part)


def nearest(word: str, known: list[str], cutoff: float = 0.6) -> str:
    """` Did you mean 'x'?`, or an empty string."""
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
    for group, rows in _LISTED.items():
        lines += [f"\n{group.lower()}:", *(f"  {usage:<26}{summary}" for _, usage, summary in rows)]
    return _INTRO + "\n".join(lines) + "\n\n" + _OUTRO
