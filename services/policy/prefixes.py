"""prefixes: the leading words of a command that an always-choice stands for."""

import shlex

from interlock.services.shell.model import ShellCommand, names

_READERS = names(
    "cat cd cut diff du echo file grep head id ls nl paste pwd rg stat tail tr tree uname uniq wc which"
)
"""Programs that only read, whatever their arguments (their dangerous forms ask anyway)."""
_SUBCOMMANDS = {
    "git": "add blame branch commit describe diff fetch log ls-files rev-parse show stash status switch",
    "npm": "test ls outdated",
    "pnpm": "test ls outdated",
    "yarn": "test",
    "cargo": "build check clippy doc fmt test tree",
    "go": "build doc fmt list test version vet",
    "pip": "check freeze list show",
    "uv": "lock tree",
    "docker": "images inspect logs ps",
    "kubectl": "describe get logs",
    "gh": "status",
    "terraform": "fmt plan validate",
}
"""Programs whose second word says what they do, and the ones of it whose arguments don't change that."""
_RUNNERS = frozenset(("npm", "pnpm", "yarn"))
_PROGRAMS = names("pytest ruff mypy pyright black isort flake8 eslint tsc prettier jest vitest")
"""Checkers and test runners: what they run is the project's own."""


def leading_words(command: ShellCommand) -> str | None:
    """The prefix, quoted for bash; null when it can't be told, or would stand for more than was shown."""
    if not command.words or command.danger or command.opaque:
        return None
    size = _size(command.argv)
    lead = command.words[:size]
    return shlex.join(w.text for w in lead) if all(w.literal for w in lead) else None


def works_alike_everywhere(prefix: str) -> bool:
    """It runs nothing that the folder it is run in brings along."""
    program = shlex.split(prefix)[0]
    return program in _READERS or program == "git"


def _size(argv: tuple[str, ...]) -> int:
    program, second = argv[0], argv[1] if len(argv) > 1 else ""
    if program in _READERS or program in _PROGRAMS:
        return 1
    if second in _SUBCOMMANDS.get(program, "").split():
        return 2
    if program in _RUNNERS and second == "run" and len(argv) > 2:
        return 3
    return len(argv)
