"""catalog: every command by its typed name: its module, its line in `--help`, and which one a command line means."""

import re
import shlex
import sys
from functools import cache
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.cli.other_programs import SUBCOMMANDS, find_other_programs_command
from interlock.cli.suggestions import close_matches, did_you_mean_hint
from interlock.state.entry_points import EntryPoint, find_entry_point, find_entry_points
from interlock.state.errors import THEIR_ERRORS, SetupError, UserError

if TYPE_CHECKING:
    from interlock.cli.parsing import Parser


class Command(NamedTuple):
    module: str
    """Module in `cli/commands/` whose `NAME` runs the command, or `ROOM/`, which registers it."""
    usage: str
    summary: str


_LISTED = {
    "Work": (
        ("work", "run WORKFLOW [PROMPT]", "Run any workflow, from a prompt, JSON or a batch file"),
        ("work", "resume RUN", "Decide open requests and resume; also after a crash"),
        ("worktrees", "worktrees", "List, merge or remove the git worktrees of runs"),
        ("work", "init [HINT]", "Explore this repository and write GEMINI.md; asks first"),
        ("web/", "serve [--open]", "Serve a page to follow, decide and start runs"),
        ("acp/", "acp", "Serve an editor: Zed, JetBrains, Neovim, Emacs, Toad"),
    ),
    "Fleet": (
        ("fleet/", "worker", "Drive detached runs and schedules, on this host"),
        ("fleet/", "fleet [init]", "Show workers, jobs and open requests, or set up the database"),
        ("top", "top", "Watch the runs that wait, run or are queued; open or stop one"),
        ("top", "attach RUN", "Open a run in a session, whoever drives it; decide what it asks"),
        ("fleet", "logs RUN [-f]", "Print what a run did, and follow it"),
        ("fleet", "wait RUN…", "Wait until runs end or park"),
        ("fleet", "cancel RUN", "Stop a run that is driven elsewhere, or end one that waits"),
        ("schedule", "schedule add|list|remove", "Let workers start runs at set times"),
        ("fleet", "limits [KIND=NAME]", "Show or set limits of users, workflows and models"),
        ("store", "store copy RUN… --to URL", "Copy runs to another store, or migrate this one"),
    ),
    "Decide": (
        ("runs", "approvals [RUN]", "List open requests, across all runs"),
        ("folder", "trust [DIR]", "Let a folder's own settings, hooks and policies apply"),
    ),
    "Time travel": (
        ("travel", "fork RUN --at STEP", "Start a new run at a step, with the files of that step"),
        ("travel", "rewind RUN --at STEP", "Fork in the same folder; shows the changes first"),
        ("travel", "undo RUN [--call ID]", "Undo the file changes of a run, or of one call"),
        ("travel", "replay RUN", "Repeat a run offline and report the first difference"),
        ("draw", "export RUN", "Export a run as HTML, Markdown or JSON"),
        (
            "travel",
            "import --agent NAME",
            "Take over another agent's files, or a LangGraph thread",
        ),
    ),
    "Inspect": (
        ("runs", "runs", "List runs; `runs rm RUN` deletes one"),
        ("show", "show RUN", "Show status, path, calls, tokens and open requests"),
        ("runs", "history RUN", "List the steps of a run: node, time, changed state"),
        ("runs", "diff RUN STEP STEP", "Compare two steps, or with --files show file changes"),
        ("store", "stats", "Add up runs, tokens, cost and approvals by day or model"),
        ("engine/audit/", "audit verify|log|export", "Show or check the record of who decided what"),
        ("engine/diagrams/", "diagram WORKFLOW", "Draw a workflow's graph, or the path of a run"),
    ),
    "Discover": (
        ("listing", "workflows", "List workflows"),
        ("listing", "schema WORKFLOW", "Print a workflow's input and output as JSON Schema"),
        ("listing", "tools", "List the tools available to the model"),
        ("listing", "models", "List models of configured providers and local servers"),
        ("listing", "modes", "List modes of work, with their tools and files"),
        ("listing", "agents", "List sub-agents"),
    ),
    "Configure": (
        ("folder", "memory [show|add|refresh]", "Show or extend the memory files, such as GEMINI.md"),
        ("auth", "auth [test|set|remove]", "Show, test, change or remove keys and model servers"),
        ("install", "install [PART…]", "Install optional parts and packages of model providers"),
        ("doctor", "doctor [WORKFLOW]", "Check this machine, the settings and the store"),
        ("checks", "policy check TOOL JSON", "Show whether a call may run, and which rule decides"),
        ("checks", "hooks [test EVENT]", "List hooks, or show which hooks an event runs"),
        ("services/mcp/", "mcp list|test|add|remove", "Manage MCP servers, or serve workflows over MCP"),
        ("store", "store prune [--dry-run]", "Delete ended runs that are old, or take too much"),
        ("warm", "warm [--for TIME|--stop]", "Keep a process ready, so that commands start at once"),
        ("completion", "completion bash|zsh|fish", "Print the completion script for your shell"),
    ),
    "Develop": (
        ("listing", "new workflow NAME", "Create your own workflow, with a test"),
        ("engine/diagrams/", "diagrams --write|--check", "Regenerate or verify diagrams/"),
    ),
}
_GROUP = "interlock.commands"
_ROWS = {row[1].partition(" ")[0]: Command(*row) for rows in _LISTED.values() for row in rows}
COMMANDS = {
    name: row for name, row in _ROWS.items() if not row.module.endswith("/") or find_entry_point(_GROUP, name)
}
"""Those that this installation has, without those of other packages."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")


def build_parser(name: str) -> "Parser":
    """The parser of a command, or of `prompt`, which nobody types."""
    return _build_prompt_parser() if name == "prompt" else _build_command_parser(name, name)


@cache
def _build_prompt_parser() -> "Parser":
    """Made once: the warm process has it before a prompt comes."""
    return _build_command_parser("prompt", "")


def _build_command_parser(name: str, shown_name: str) -> "Parser":
    command = _load_command_function(name)
    kind, parts = command.takes
    made = kind(shown_name)
    if not command.__module__.startswith("interlock.cli."):
        made.help_folder = Path(str(sys.modules[command.__module__].__file__)).parent / "help"
    for part in parts:
        part(made)
    return made


def execute_command(name: str, arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    return _load_command_function(name)(build_parser(name).parse(arguments)) or 0


def _load_command_function(name: str) -> Any:
    row = COMMANDS.get(name)
    if name != "prompt" and (row is None or row.module.endswith("/")):
        entry = find_entry_point(_GROUP, name)
        assert entry is not None, name
        return load_entry_point(entry)
    module = import_module(f"interlock.cli.commands.{row.module if row else 'work'}")
    return getattr(module, f"{name}_" if iskeyword(name) else name)


def load_entry_point(entry: EntryPoint) -> Any:
    """Import what an entry point names. Raises `SetupError` if that fails."""
    try:
        return entry.load()
    except THEIR_ERRORS as error:
        what = f"{type(error).__name__}: {error}"
        raise SetupError(f"Entry point {entry.value} of {entry.group}, {entry.name!r}: {what}") from error


def root_help_text() -> str:
    """The text of `interlock --help`; README shows the same."""
    lines: list[str] = []
    for group, rows in _available_commands_by_group().items():
        lines += [f"\n{group.lower()}:", *(f"  {usage:<26}{summary}" for usage, summary in rows)]
    text = Path(__file__).with_name("help") / "commands.txt"
    return text.read_text("utf-8").replace("COMMANDS", "\n".join(lines), 1)


def _available_commands_by_group() -> dict[str, list[tuple[str, str]]]:
    """Return usage and summary of each command that is here, by group; those of other packages come last."""
    found = {
        group: [(usage, summary) for _, usage, summary in rows if usage.partition(" ")[0] in COMMANDS]
        for group, rows in _LISTED.items()
    }
    others = {entry.name: entry for entry in find_entry_points(_GROUP) if entry.name not in COMMANDS}
    found["Added"] = [(name, f"Entry point {entry.value}") for name, entry in others.items()]
    return {group: rows for group, rows in found.items() if rows}


def split_command_and_arguments(argv: list[str]) -> tuple[str, list[str]]:
    """The command's name and its arguments, with flags allowed before it; `prompt` if there is none."""
    place = _index_of_command_word(argv)
    if place is None:
        return "prompt", argv
    word, rest = argv[place], [*argv[:place], *argv[place + 1 :]]
    if word in COMMANDS:
        if theirs := SUBCOMMANDS.get(" ".join([word, *rest[:1]])):
            raise UserError(f"No command '{word} {rest[0]}'. {theirs}")
        return word, rest
    if word in _ROWS:
        raise UserError(
            f"No command {word!r}: this installation lacks the folder interlock/{_ROWS[word].module}. "
            "Install Interlock again to get it."
        )
    if _NAME.fullmatch(word) and find_entry_point(_GROUP, word):
        return word, rest
    meant = [name for name in close_matches(word, [*COMMANDS, "help"], 0.7) if _accepts_arguments(name, rest)]
    theirs = find_other_programs_command(word, rest)
    if hint := f" {theirs}." if theirs else did_you_mean_hint(meant):
        prompt = shlex.quote(" ".join(argv))
        raise UserError(f"No command {word!r}.{hint} To send it as a prompt: interlock -p {prompt}")
    return "prompt", argv


def _accepts_arguments(name: str, arguments: list[str]) -> bool:
    """Whether a command accepts these words: `show` takes `latest`, but not `does the login work`."""
    words = [argument for argument in arguments if argument not in ("-h", "--help")]
    if not words or name == "help":
        return not words
    try:
        build_parser(name).parse(words)
    except UserError:
        return False
    return True


def _index_of_command_word(argv: list[str]) -> int | None:
    if argv and not argv[0].startswith("-"):
        return 0
    flags, words = None, enumerate(argv)
    for place, word in words:
        if word in ("-p", "--prompt", "--"):
            return None
        if not word.startswith("-") or word == "-":
            return place
        flags = flags or build_parser("prompt")  # built only where no -p comes first
        if flags.flag_takes_value(word):
            next(words, None)
    return None
