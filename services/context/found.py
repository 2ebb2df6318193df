"""found: the files of a folder and a home that are meant for an agent: which are used here, which aren't, and why."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.services.context.commands import command_files, load_commands
from interlock.services.context.memory import load_memory
from interlock.state.text import estimate_tokens

_MEMORY = (
    "GEMINI.md",
    "AGENTS.md",
    "AGENT.md",
    "CLAUDE.md",
    ".github/copilot-instructions.md",
    ".cursorrules",
)
"""Names that agents know; which of them count is a setting."""
_IGNORE = (".geminiignore", ".rooignore")
_OF_MODES = (".roomodes", ".roo/rules", ".roo/rules-*", ".roo/system-prompt-*", ".clinerules", ".roorules")


class Found(NamedTuple):
    """One file or kind of file."""

    used: bool
    what: str
    text: str
    """What it is, or why it isn't used, for people."""


def found(root: Path, home: Path, names: Sequence[str], trusted: bool) -> Iterator[Found]:
    """In a fixed order; nothing is changed and nothing is run."""
    yield from _memory(root, home, names)
    yield from _commands(root, home, trusted)
    for name in _IGNORE:
        if (root / name).is_file():
            yield Found(True, "ignore", f"{name}: kept from tools and references")
    for pattern in _OF_MODES:
        for path in sorted(root.glob(pattern)):
            what = f"{path.relative_to(root)}: not used; rules of modes count in the task loop only"
            yield Found(False, "modes", what)


def _memory(root: Path, home: Path, names: Sequence[str]) -> Iterator[Found]:
    files = load_memory(roots=[root], home=home, names=names)
    for file in files:
        if "<!-- not read" in file.text or "<!-- not imported" in file.text:
            lines = [line.strip() for line in file.text.splitlines() if "<!-- not " in line]
            yield Found(False, "memory", f"{file.path}: {lines[0]}")
        else:
            yield Found(
                True, "memory", f"{file.path}: {file.level}, about {estimate_tokens(file.text):,} tokens"
            )
    for name in _MEMORY:
        if name not in names and (root / name).is_file():
            yield Found(False, "memory", f"{name}: not used; context.fileName names {', '.join(names)}")


def _commands(root: Path, home: Path, trusted: bool) -> Iterator[Found]:
    commands, problems = load_commands(root, home, trusted)
    yield from (Found(False, "commands", problem) for problem in problems)
    if commands:
        yield Found(True, "commands", ", ".join(f"/{name}" for name in sorted(commands)))
    if not trusted and (count := len(command_files(root))):
        yield Found(False, "commands", f"{count} of this folder not used: it isn't trusted (interlock trust)")
