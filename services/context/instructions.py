"""instructions: the memory and rule files of a folder together: what the model sees of them, and a row about each."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.services.context.imports import IncludedTexts, first_omission_note
from interlock.services.context.memory import UNTRUSTED, MemoryFile, MemoryNames, load_memory_files
from interlock.services.context.nested_instructions import find_nested_instructions
from interlock.services.context.rules import (
    AgentRule,
    load_agent_rules,
    load_rule_files,
    load_rules_of_folders_or_single_file,
)
from interlock.services.files.agent_files import find_unread_agent_files
from interlock.services.files.protected import RULES
from interlock.state.context import AGENT_FILES, IGNORE_FILE, RuleFile
from interlock.state.file_names import format_file_name
from interlock.state.settings import ContextSettings
from interlock.state.text import estimate_tokens

_MOST_PATTERNS = 3
"""Patterns of a rule that its row names."""


class FoundFile(NamedTuple):
    """One file or kind of file."""

    used: bool
    what: str
    text: str
    """What it is, or why it isn't used; shown to people."""
    path: Path | None = None
    """Where it is, of one of Roo Code's rules."""


class Instructions(NamedTuple):
    """The memory and rule files that apply in a folder, also those that aren't used."""

    memory: list[MemoryFile]
    rules: list[AgentRule]
    included: IncludedTexts

    def used_memory(self) -> list[MemoryFile]:
        return [file for file in self.memory if not file.unused]

    def used_rules(self, when: str) -> list[AgentRule]:
        """Return the rules that count at a time: always, matching, described."""
        return [rule for rule in self.rules if not rule.unused and rule.condition.when == when]

    def list_sources(self) -> Iterator[Path]:
        """Yield the real paths of the files that are used, and of their imports."""
        for file in (*self.memory, *self.rules):
            yield from file.sources


def load_instructions(
    roots: Sequence[Path],
    home: Path,
    settings: ContextSettings,
    *,
    trusted: bool,
    untrusted_parents: Collection[Path] = (),
) -> Instructions:
    """Load the memory and rule files of workspace directories, as far as settings and trust let them count.

    `untrusted_parents`: folders above the workspace that count only once they are trusted, too."""
    included = IncludedTexts()
    memory: list[MemoryFile] = []
    rules: list[AgentRule] = []
    if settings.read.memory:
        memory = load_memory_files(
            roots=roots,
            home=home,
            names=settings.chosen_file_names,
            trusted=trusted,
            included=included,
            untrusted_parents=untrusted_parents,
        )
    if settings.read.rules:
        known: set[Path] = set()
        for root in roots:
            found = load_agent_rules(
                root, home, trusted=trusted, included=included, untrusted_parents=untrusted_parents
            )
            rules += [rule for rule in found if rule.path not in known]
            known |= {rule.path for rule in found}
    return Instructions(memory, rules, included)


def describe_instructions(
    root: Path,
    home: Path,
    settings: ContextSettings,
    mode_slugs: Collection[str],
    *,
    trusted: bool,
    untrusted_parents: Collection[Path] = (),
) -> Iterator[FoundFile]:
    """Yield a row for each memory and rule file: used or not, and why not. `mode_slugs`: of existing modes."""
    found = load_instructions([root], home, settings, trusted=trusted, untrusted_parents=untrusted_parents)
    nested = [*find_nested_instructions(root, settings, found.included, trusted=trusted)]
    for file in (*found.memory, *(one for one in nested if isinstance(one, MemoryFile))):
        row = f"{_format_path_from_root(file.path, root)}: {describe_memory_file(file, root)}"
        yield FoundFile(not (file.unused or first_omission_note(file.text)), "memory", row)
    yield from _describe_unread_memory(root, settings)
    others = [rule for rule in found.rules if rule.row.program != "Roo Code"]
    for rule in (*others, *(one for one in nested if isinstance(one, AgentRule))):
        yield FoundFile(
            not rule.unused,
            "rules",
            f"{_format_path_from_root(rule.path, root)}: {describe_rule(rule, root)}",
        )
    if not settings.read.rules:
        yield FoundFile(False, "rules", "none is used; the setting context.read.rules is false")
        return
    for row, path in find_unread_agent_files("rules", root):
        yield FoundFile(False, "rules", f"{_format_path_from_root(path, root)}: not used; {row.unread}")
    described = {rule.path for rule in others}
    yield from describe_roo_rules(root, home, mode_slugs, trusted, described)


def describe_memory_file(file: MemoryFile, root: Path) -> str:
    """Return when a memory file counts and how much it says, or why it doesn't count."""
    if file.unused:
        return f"not used; {_remove_root_from_text(file.unused, root)}"
    below = (
        file.level == "project" and file.path.is_relative_to(root) and _folder_described_by(file.path) != root
    )
    when = (
        f"files in {_format_path_from_root(_folder_described_by(file.path), root)}" if below else file.level
    )
    problem = first_omission_note(file.text)
    return f"{when}, about {estimate_tokens(file.text):,} tokens{f'; {problem}' if problem else ''}"


def describe_rule(rule: AgentRule, root: Path) -> str:
    """Return when a rule counts and how much it says, or why it doesn't count."""
    notes = [rule.problem] if rule.problem else []
    if unknown := rule.condition.unknown:
        notes.append(f"Interlock doesn't know {', '.join(map(repr, unknown))} in it")
    if rule.unused:
        return "; ".join([f"not used; {_remove_root_from_text(rule.unused, root)}", *notes])
    patterns = rule.condition.patterns
    more = f" and {len(patterns) - _MOST_PATTERNS} more" if len(patterns) > _MOST_PATTERNS else ""
    nested = rule.base != root and rule.base.is_relative_to(root)
    when = {
        "always": f"files in {_format_path_from_root(rule.base, root)}" if nested else "every conversation",
        "matching": f"with files that match {', '.join(patterns[:_MOST_PATTERNS])}{more}",
        "described": "the model reads it where its description fits",
        "named": "only where a prompt names it with @",
    }[rule.condition.when]
    return "; ".join([f"{when}, about {estimate_tokens(rule.text):,} tokens", *notes])


def _folder_described_by(file: Path) -> Path:
    """Return the folder whose files a memory file is about."""
    return file.parent.parent if file.parent.name == ".claude" else file.parent


def _remove_root_from_text(text: str, root: Path) -> str:
    return text.replace(f"{root}/", "")


def _format_path_from_root(path: Path, root: Path) -> str:
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    return format_file_name(shown)


def _describe_unread_memory(root: Path, settings: ContextSettings) -> Iterator[FoundFile]:
    names = settings.chosen_file_names
    if not settings.read.memory:
        yield FoundFile(False, "memory", "none is used; the setting context.read.memory is false")
        return
    for row, path in find_unread_agent_files("memory", root):
        if names is None or path.name not in names:
            yield FoundFile(False, "memory", f"{_format_path_from_root(path, root)}: not used; {row.unread}")
    if names is not None:
        for name in MemoryNames.choose(None).names:
            if name not in names and (root / name).is_file():
                said = ", ".join(names) or "none"
                yield FoundFile(False, "memory", f"{name}: not used; context.fileName names {said}")


def describe_roo_rules(
    root: Path, home: Path, mode_slugs: Collection[str], trusted: bool, described: Collection[Path]
) -> Iterator[FoundFile]:
    """List Roo Code's rules for each mode that has any, then those for all modes. `described`: files that have a
    row."""
    places = [base / ".roo" / "rules" for base in dict.fromkeys((home, root))]
    places += [root / name for name in RULES]
    slugs = {path.name.partition("-")[2] for p in places for path in p.parent.glob(f"{p.name}-*")}
    used: set[str] = set()
    for slug in (*sorted(slugs), ""):
        files = (
            load_rules_of_folders_or_single_file(f"-{slug}", root, home, IncludedTexts())
            if slug
            else load_rule_files(root, home, "", trusted=True)
        )
        used |= {file.shown for file in files}
        for file in files:
            has_row = file.path in described or file.shown in (IGNORE_FILE, *AGENT_FILES[:-1])
            if not has_row:
                yield _describe_roo_rule(file, slug, mode_slugs, trusted)
    for name in (f"{name}{suffix}" for suffix in ("", *(f"-{s}" for s in sorted(slugs))) for name in RULES):
        if name not in used and root / name not in described and (root / name).is_file():
            yield FoundFile(
                False, "rules", f"{name}: not used; there are rules that come before it", root / name
            )


def _describe_roo_rule(
    file: RuleFile, mode_slug: str, known_slugs: Collection[str], trusted: bool
) -> FoundFile:
    if (
        problem := describe_unknown_mode(mode_slug, known_slugs)
        or file.problem
        or ("" if file.text else "it is empty")
    ):
        return FoundFile(False, "rules", f"{file.shown}: not used; {problem}", file.path)
    if not trusted and not file.shown.startswith("~/"):
        return FoundFile(False, "rules", f"{file.shown}: not used; {UNTRUSTED}", file.path)
    where = f"mode {mode_slug} of the task loop" if mode_slug else "every mode of the task loop"
    if mode_slug in ("", "code") and file.shown not in AGENT_FILES:
        where += ", every other conversation"
    text = f"{file.shown}: {where}, about {estimate_tokens(file.text):,} tokens"
    return FoundFile(True, "rules", text, file.path)


def describe_unknown_mode(mode_slug: str, known_slugs: Collection[str]) -> str:
    """Return what is wrong with a mode's slug, or an empty text."""
    return "" if not mode_slug or mode_slug in known_slugs else f"unknown mode {mode_slug!r}"
