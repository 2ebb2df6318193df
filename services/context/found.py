"""found: the files of a folder and a home that are meant for an agent: which are used here, which aren't, and why."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.services.context.definitions import command_files, load_commands
from interlock.services.context.memory import load_memory, load_rules, problem_in, rules_of
from interlock.services.files.protected import RULES
from interlock.state.context import IGNORE_FILE, RuleFile
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
_UNTRUSTED = "the folder isn't trusted (interlock trust)"
_PROMPT = "system-prompt-"


class Found(NamedTuple):
    """One file or kind of file."""

    used: bool
    what: str
    text: str
    """What it is, or why it isn't used, for people."""


def found(
    root: Path, home: Path, names: Sequence[str], modes: Collection[str], trusted: bool
) -> Iterator[Found]:
    """In a fixed order; nothing is changed and nothing is run. `modes`: slugs of those that there are."""
    yield from _memory(root, home, names)
    yield from _commands(root, home, trusted)
    for name in _IGNORE:
        if (root / name).is_file():
            yield Found(True, "ignore", f"{name}: kept from tools and references")
    yield from _rules(root, home, modes)
    for path in sorted((root / ".roo").glob(f"{_PROMPT}*")):
        name = path.relative_to(root).as_posix()
        problem = _no_mode(path.name.removeprefix(_PROMPT), modes) or ("" if trusted else _UNTRUSTED)
        what = f"not used; {problem}" if problem else "in place of the mode's system prompt"
        yield Found(not problem, "prompt", f"{name}: {what}")


def _rules(root: Path, home: Path, modes: Collection[str]) -> Iterator[Found]:
    """Of every mode that has some, and of all."""
    places = [base / ".roo" / "rules" for base in dict.fromkeys((home, root))]
    places += [root / name for name in RULES]
    slugs = {path.name.partition("-")[2] for p in places for path in p.parent.glob(f"{p.name}-*")}
    used: set[str] = set()
    for slug in (*sorted(slugs), ""):
        files = rules_of(f"-{slug}", root, home) if slug else load_rules(root, home, "")
        used |= {file.shown for file in files}
        yield from (_rule(file, slug, modes) for file in files if file.shown != IGNORE_FILE)
    for name in (f"{name}{suffix}" for suffix in ("", *(f"-{s}" for s in sorted(slugs))) for name in RULES):
        if name not in used and (root / name).is_file():
            yield Found(False, "rules", f"{name}: not used; there are rules that come before it")


def _rule(file: RuleFile, slug: str, modes: Collection[str]) -> Found:
    if problem := _no_mode(slug, modes) or file.problem or ("" if file.text else "it is empty"):
        return Found(False, "rules", f"{file.shown}: not used; {problem}")
    where = f"mode {slug} of the task loop" if slug else "every mode of the task loop"
    return Found(True, "rules", f"{file.shown}: {where}, about {estimate_tokens(file.text):,} tokens")


def _no_mode(slug: str, modes: Collection[str]) -> str:
    return "" if not slug or slug in modes else f"there is no mode {slug!r}"


def _memory(root: Path, home: Path, names: Sequence[str]) -> Iterator[Found]:
    files = load_memory(roots=[root], home=home, names=names)
    for file in files:
        size = f"{file.level}, about {estimate_tokens(file.text):,} tokens"
        problem = problem_in(file.text)
        yield Found(not problem, "memory", f"{file.path}: {size}{f'; {problem}' if problem else ''}")
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
