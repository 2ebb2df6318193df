"""load: rule files → rules and problems. What can't be read, or others could have written, never allows anything."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.services.config.settings import FOLDERS
from interlock.services.policy.checkers import to_checker
from interlock.services.policy.chunks import BadChunk, Chunk, chunks_of
from interlock.services.policy.names import canonical
from interlock.services.policy.rule import ADMIN, EXTENSION, SHIPPED, USER, WORKSPACE, Rule
from interlock.services.policy.rulebook import to_rule, usable_tool_name
from interlock.state.errors import SetupError

ADMIN_FOLDERS = (Path("/etc/gemini-cli/policies"), Path("/etc/interlock/policies"))
_RULES = "policies"
_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class Places:
    """What decides where rules are looked for."""

    root: Path
    """The workspace."""
    home: Path
    trusted: bool
    """Whether the workspace's own rules count."""
    admin: Sequence[Path] = ADMIN_FOLDERS
    named: Sequence[Path] = ()
    """Files of `--policy`: the user's tier."""


def rule_files(places: Places) -> list[tuple[Path, int]]:
    """The rule files with their tiers. A folder that can't be listed is named itself: reading it says why."""
    folders = [
        *((folder, EXTENSION) for folder in _extensions(places.home)),
        *((folder, WORKSPACE) for folder in (_workspace(places) if places.trusted else ())),
        *((places.home / name / _RULES, USER) for name in FOLDERS),
        *((folder, ADMIN) for folder in places.admin),
    ]
    found = [(file, tier) for folder, tier in folders for file in _listed(folder, _SUFFIX)]
    return [*found, *((file, USER) for file in places.named)]


def ignored_files(places: Places) -> list[Path]:
    """The workspace's rule files, where they don't count because nobody trusted it."""
    return [] if places.trusted else [file for f in _workspace(places) for file in _listed(f, _SUFFIX)]


def user_folder(home: Path) -> Path:
    """Where always-choices are saved."""
    return home / FOLDERS[-1] / _RULES


def _workspace(places: Places) -> list[Path]:
    """In the home directory itself the two levels are one and the same folder: the user's."""
    mine = {os.path.realpath(places.home / name / _RULES) for name in FOLDERS}
    folders = [places.root / name / _RULES for name in FOLDERS]
    return [folder for folder in folders if os.path.realpath(folder) not in mine]


def _extensions(home: Path) -> Iterator[Path]:
    for name in FOLDERS:
        for extension in _listed(home / name / "extensions", ""):
            yield extension / _RULES if extension.is_dir() else extension


def _listed(folder: Path, suffix: str) -> list[Path]:
    """Entries by name; the folder itself when it is there and can't be listed."""
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.name.endswith(suffix) and not e.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return [folder] if os.path.isfile(folder) and suffix else []  # noqa: PTH113 - may raise for a loop
    except OSError:
        return [folder]
    return [folder / name for name in sorted(names)]


_NO_ALLOW = "no rule of this file allows anything until it is right"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a rule file or setting, and what was made of it."""

    source: str
    """`FILE:LINE`, or the setting's name."""
    text: str
    effect: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text}; {self.effect}"


class RuleText(NamedTuple):
    """A rule file as it was read."""

    path: str
    tier: int
    """2 extension, 3 workspace, 4 user, 5 admin."""
    text: str | None
    error: str = ""
    """Why there is no text."""


def read_files(files: Sequence[tuple[Path, int]]) -> list[RuleText]:
    """The texts of `files`, each with its tier."""
    found: list[RuleText] = []
    for path, tier in files:
        try:
            found.append(RuleText(str(path), tier, read_rules(path, tier)))
        except RuleTextError as error:
            found.append(RuleText(str(path), tier, None, str(error)))
    return found


def rules_of(texts: Sequence[RuleText]) -> tuple[list[Rule], list[Problem]]:
    """The rules of rule files.

    A file with an error loses its allow rules; its deny and ask rules stay. For each rule that can't be used,
    and for a file that can't be read, its tier asks about what the rule may have been about.
    """
    rules: list[Rule] = []
    problems: list[Problem] = []
    for text in texts:
        found, wrong = _one_file(text)
        rules += found
        problems += wrong
    return rules, problems + conflicts(rules)


def load_rules(files: Sequence[tuple[Path, int]]) -> tuple[list[Rule], list[Problem]]:
    """The rules of `files`, as `rules_of`."""
    return rules_of(read_files(files))


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """The default rules. Raises `SetupError` when the package is damaged."""
    path = Path(__file__).with_name("default.toml")
    rules, problems = _one_file(read_files([(path, SHIPPED)])[0]._replace(path="default.toml"))
    if problems:
        raise SetupError(f"{problems[0]}. Install interlock again.")
    return tuple(rules)


def _one_file(file: RuleText) -> tuple[list[Rule], list[Problem]]:
    if file.text is None:
        problem = Problem(f"{file.path}:1", file.error, "everything of its tier and below asks")
        return [stand_in(problem.source, file.tier, ("*",), problem.text)], [problem]
    return _from_chunks(chunks_of(file.text), file.path, file.tier)


def _from_chunks(
    chunks: Sequence[Chunk | BadChunk], shown: str, tier: int
) -> tuple[list[Rule], list[Problem]]:
    rules: list[Rule] = []
    problems: list[Problem] = []
    for chunk in chunks:
        source = f"{shown}:{chunk.line}"
        try:
            rules.append(_rule(chunk, source, tier))
        except ValueError as error:
            problems.append(Problem(source, str(error), _NO_ALLOW))
            table = chunk.table if isinstance(chunk, Chunk) else {}
            only_allows = (
                isinstance(chunk, Chunk) and chunk.kind == "rule" and table.get("decision") == "allow"
            )
            if not only_allows:
                rules.append(stand_in(source, tier, _tools(table), str(error)))
    usable = [r for r in rules if r.decision != "allow"] if problems else rules
    if tier != EXTENSION:
        return usable, problems
    left_out = [r for r in usable if not r.checker and (r.decision == "allow" or "yolo" in r.modes)]
    problems += [
        Problem(r.source, "an extension may neither allow nor name yolo", "left out") for r in left_out
    ]
    return [r for r in usable if r not in left_out], problems


def _rule(chunk: Chunk | BadChunk, source: str, tier: int) -> Rule:
    if isinstance(chunk, BadChunk):
        raise ValueError(chunk.error)
    if chunk.kind == "safety_checker":
        return to_checker(chunk.table, source, tier)
    if chunk.kind != "rule":
        raise ValueError(f"[[{chunk.kind}]] isn't known, expected [[rule]] or [[safety_checker]]")
    return to_rule(chunk.table, source, tier)


def stand_in(source: str, tier: int, tools: tuple[str, ...], problem: str) -> Rule:
    """Asks in the place of a rule that can't be used: it may have been there to deny."""
    return Rule(
        source=source, tools=tools, decision="ask", tier=tier, priority=999, broken=problem, lowers=True
    )


def _tools(table: Mapping[str, Any]) -> tuple[str, ...]:
    value: object = table.get("toolName")
    names = cast(list[object], value) if isinstance(value, list) else [value]
    if not names or not all(isinstance(n, str) and usable_tool_name(n) for n in names):
        return ("*",)
    return tuple(canonical(str(n)) for n in names)


def conflicts(rules: Sequence[Rule]) -> list[Problem]:
    """Rules of one rank and the same conditions that decide differently; the stricter holds."""
    seen: dict[object, Rule] = {}
    problems: list[Problem] = []
    for rule in rules:
        if rule.broken is not None or rule.checker is not None:
            continue
        first = seen.setdefault(_conditions(rule), rule)
        if first.decision != rule.decision:
            text = f"{rule.decision} here, {first.decision} in {first.source}: same priority, same conditions"
            problems.append(Problem(rule.source, text, "the stricter one holds"))
    return problems


def _conditions(rule: Rule) -> object:
    patterns = tuple(p.text if p else None for p in (rule.command, rule.args))
    scope = (rule.server, rule.subagent, rule.interactive, repr(sorted(rule.annotations.items())))
    return (rule.rank, frozenset(rule.tools), rule.modes, frozenset(rule.prefixes), patterns, scope)


_LARGEST = 1_000_000
"""Bytes of a rule file."""
_READABLE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Not blocking: a pipe that lies there must not hold the run."""


class RuleTextError(ValueError):
    """A rule file that doesn't count; the text says why."""


def read_rules(path: Path, tier: int) -> str:
    """Raises `RuleTextError`.

    A file of the user, an extension or the admin doesn't count when others may write it or its folder: they would
    decide what is allowed. Who trusts a workspace trusts whoever may write in it.
    """
    try:
        handle = os.open(path, _READABLE)
        with open(handle, "rb") as file:  # noqa: PTH123 - the file that is checked is the one that is read
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise RuleTextError("can't be read: it is no file")
            if tier not in (SHIPPED, WORKSPACE):
                _check(found, tier, "it")
                _check(os.stat(os.path.dirname(os.path.realpath(path))), tier, "its folder")  # noqa: PTH116, PTH120
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise RuleTextError(f"can't be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise RuleTextError(f"can't be read: over {_LARGEST} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleTextError(f"can't be read: not UTF-8 (byte {error.start})") from None


def _check(found: os.stat_result, tier: int, what: str) -> None:
    mode, sticky = found.st_mode, stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    others = stat.S_IWOTH | (stat.S_IWGRP if tier == ADMIN else 0)
    if mode & others and not sticky:
        raise RuleTextError(f"doesn't count: others may write {what} (mode {stat.S_IMODE(mode):04o})")
    if tier == ADMIN and found.st_uid not in (0, os.geteuid()):
        raise RuleTextError(f"doesn't count: {what} belongs to another user (uid {found.st_uid})")
