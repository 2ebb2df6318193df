"""rule_files: loads rule files and reports problems. A file that others may write never allows anything."""

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.services.config.settings import FOLDERS, project_paths
from interlock.services.files.stamps import real_path, record_look
from interlock.services.policy.rule import (
    ADMIN,
    EXTENSION,
    SHIPPED,
    USER,
    WORKSPACE,
    Rule,
    canonical_tool_name,
)
from interlock.services.policy.rule_schema import RuleProblem, is_usable_tool_name, stand_in_rule, to_rule
from interlock.state.errors import SetupError

ADMIN_FOLDERS = (Path("/etc/gemini-cli/policies"), Path("/etc/interlock/policies"))
_RULES = "policies"
_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class RulePlaces:
    """Determines where rules are searched."""

    root: Path
    """The workspace."""
    home: Path
    trusted: bool
    """Whether the workspace's own rules apply."""
    admin: Sequence[Path] = ADMIN_FOLDERS
    named: Sequence[Path] = ()
    """Files of `--policy`: the user's tier."""


def list_rule_files(places: RulePlaces) -> list[tuple[Path, int]]:
    """Return rule files with their tiers. An unreadable folder is listed itself: reading it then reports why."""
    own = project_paths(places.root, places.home, _RULES) if places.trusted else []
    tiers: tuple[tuple[int, Iterable[Path]], ...] = (
        (EXTENSION, _extension_rule_folders(places.home)),
        (WORKSPACE, own),
        (USER, (places.home / name / _RULES for name in FOLDERS)),
        (ADMIN, places.admin),
    )
    found = [(file, tier) for tier, folders in tiers for f in folders for file in _list_entries(f, _SUFFIX)]
    return [*found, *((file, USER) for file in places.named)]


def list_workspace_files(root: Path, home: Path) -> list[Path]:
    """Return the workspace's rule files, which apply if it is trusted."""
    return [file for folder in project_paths(root, home, _RULES) for file in _list_entries(folder, _SUFFIX)]


def user_rule_folder(home: Path) -> Path:
    """Return the folder where always-choices are saved."""
    return home / FOLDERS[-1] / _RULES


def _extension_rule_folders(home: Path) -> Iterator[Path]:
    for name in FOLDERS:
        for extension in _list_entries(home / name / "extensions", ""):
            record_look(extension)
            yield extension / _RULES if extension.is_dir() else extension


def _list_entries(folder: Path, suffix: str) -> list[Path]:
    """List entries by name, or the folder itself if it exists but can't be listed."""
    record_look(folder, "entries")
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.name.endswith(suffix) and not e.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return [folder] if os.path.isfile(folder) and suffix else []  # noqa: PTH113 - may raise for a loop
    except OSError:
        return [folder]
    return [folder / name for name in sorted(names)]


_LARGEST = 1_000_000
"""Maximum size of a rule file in bytes."""
_READABLE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Non-blocking: a pipe in its place must not block the run."""


class RuleTextError(ValueError):
    """A rule file is rejected; the text says why."""


def read_rule_file(path: Path, tier: int) -> str:
    """Read a rule file. Raises `RuleTextError`.

    A file of the user, an extension or the admin is rejected if others may write it or its folder: they could decide
    what is allowed. Trusting a workspace includes trusting everyone who can write to it.
    """
    record_look(path)
    try:
        handle = os.open(path, _READABLE)
        with open(handle, "rb") as file:  # noqa: PTH123 - the file that is checked is the one that is read
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise RuleTextError("can't be read: it isn't a file")
            if tier not in (SHIPPED, WORKSPACE):
                _reject_writable_by_others(found, tier, "it")
                record_look(folder := real_path(path).parent)
                _reject_writable_by_others(folder.stat(), tier, "its folder")
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise RuleTextError(f"can't be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise RuleTextError(f"can't be read: over {_LARGEST} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleTextError(f"can't be read: not UTF-8 (byte {error.start})") from None


def _reject_writable_by_others(found: os.stat_result, tier: int, what: str) -> None:
    mode, sticky = found.st_mode, stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    others = stat.S_IWOTH | (stat.S_IWGRP if tier == ADMIN else 0)
    if mode & others and not sticky:
        raise RuleTextError(f"doesn't count: others may write {what} (mode {stat.S_IMODE(mode):04o})")
    if tier == ADMIN and found.st_uid not in (0, os.geteuid()):
        raise RuleTextError(f"doesn't count: {what} belongs to another user (uid {found.st_uid})")


_HEADER = re.compile(r"^[ \t]*\[(?![ \t]*[^\[\]\n]*\.)", re.MULTILINE)
"""Header of a table; not of `[rule.toolAnnotations]`, which belongs to the preceding table."""
_AT = re.compile(r" ?\(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True, slots=True)
class _ParsedTable:
    """One table of an array of tables."""

    line: int
    kind: str = ""
    table: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str = ""
    """Set if it isn't TOML, or not a table where one is expected."""


def _split_tables(text: str) -> list[_ParsedTable]:
    """Split a rule file into tables with their lines, so that one error doesn't hide the others.

    A file that fails to parse as a whole is parsed piece by piece.
    """
    try:
        tables = list(_iterate_tables(tomllib.loads(text), 1))
    except ValueError:
        # RecursionError is a ValueError for `[[[[…`, but arrays nest too, so it also occurs below.
        return [c for line, piece in _split_at_headers(text) for c in _parse_piece(line, piece)]
    except RecursionError:
        return [_ParsedTable(1, error="nested too deeply")]
    lines = [line for line, piece in _split_at_headers(text) if _HEADER.match(piece)]
    if len(lines) != len(tables):
        return tables
    return [replace(table, line=line) for table, line in zip(tables, lines, strict=True)]


def _split_at_headers(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) from one table header to the next."""
    line = 1
    for start, end in pairwise((0, *(m.start() for m in _HEADER.finditer(text)), len(text))):
        if text[start:end].strip():
            yield line, text[start:end]
        line += text.count("\n", start, end)


def _parse_piece(line: int, piece: str) -> Iterator[_ParsedTable]:
    try:
        yield from _iterate_tables(tomllib.loads(piece), line)
    except RecursionError:
        yield _ParsedTable(line, error="nested too deeply")
    except ValueError as error:
        place = _AT.search(str(error))
        at = line + int(place[1]) - 1 if place else line
        yield _ParsedTable(at, error=f"not TOML: {_AT.sub('', str(error))}")


def _iterate_tables(document: dict[str, Any], line: int) -> Iterator[_ParsedTable]:
    for kind, value in document.items():
        entries = cast(list[object], value) if isinstance(value, list) else [value]
        for entry in entries:
            if isinstance(entry, dict) and isinstance(value, list):
                yield _ParsedTable(line, kind, cast(dict[str, Any], entry))
            else:
                yield _ParsedTable(line, error=f"{kind!r} isn't known here, expected [[rule]] tables")


_NO_ALLOW = "no rule of this file allows anything until it is right"


class RuleText(NamedTuple):
    """A rule file as read."""

    path: str
    tier: int
    """2 extension, 3 workspace, 4 user, 5 admin."""
    text: str | None
    error: str = ""
    """Why there is no text."""


def read_rule_files(files: Sequence[tuple[Path, int]]) -> list[RuleText]:
    """Return the texts of `files`, each with its tier, or why one can't be read."""
    found: list[RuleText] = []
    for path, tier in files:
        try:
            found.append(RuleText(str(path), tier, read_rule_file(path, tier)))
        except RuleTextError as error:
            found.append(RuleText(str(path), tier, None, str(error)))
    return found


def parse_rule_files(texts: Sequence[RuleText]) -> tuple[list[Rule], list[RuleProblem]]:
    """Return the rules of files, and their problems.

    A file with an error loses its allow rules and keeps its deny and ask rules. Every unusable rule, or unreadable
    file, is replaced by one in its tier that asks about what it may have covered.
    """
    read = [_parse_rule_file(text) for text in texts]
    rules = [rule for found, _ in read for rule in found]
    return rules, [*(problem for _, wrong in read for problem in wrong), *find_conflicts(rules)]


def load_rules(files: Sequence[tuple[Path, int]]) -> tuple[list[Rule], list[RuleProblem]]:
    """Return the rules of `files`, and their problems; see `parse_rule_files`."""
    return parse_rule_files(read_rule_files(files))


@cache
def load_shipped_rules() -> tuple[Rule, ...]:
    """Return the default rules. Raises `SetupError` if the package is damaged."""
    path = Path(__file__).with_name("default.toml")
    rules, problems = _parse_rule_file(read_rule_files([(path, SHIPPED)])[0]._replace(path="default.toml"))
    if problems:
        raise SetupError(f"{problems[0]}. Install interlock again.")
    return tuple(rules)


def _parse_rule_file(file: RuleText) -> tuple[list[Rule], list[RuleProblem]]:
    if file.text is None:
        problem = RuleProblem(f"{file.path}:1", file.error, "everything of its tier and below asks")
        return [stand_in_rule(problem.source, file.tier, ("*",), problem.text)], [problem]
    rules: list[Rule] = []
    problems: list[RuleProblem] = []
    for chunk in _split_tables(file.text):
        source = f"{file.path}:{chunk.line}"
        try:
            rules.append(_to_rule(chunk, source, file.tier))
        except ValueError as error:
            problems.append(RuleProblem(source, str(error), _NO_ALLOW))
            if chunk.kind != "rule" or chunk.table.get("decision") != "allow":
                rules.append(stand_in_rule(source, file.tier, _tools_of_unusable(chunk.table), str(error)))
    usable = [r for r in rules if r.decision != "allow"] if problems else rules
    if file.tier != EXTENSION:
        return usable, problems
    left_out = [r for r in usable if not r.checker and (r.decision == "allow" or "yolo" in r.modes)]
    why = "an extension may neither allow nor name yolo"
    problems += [RuleProblem(r.source, why, "left out") for r in left_out]
    return [r for r in usable if r not in left_out], problems


def _to_rule(chunk: _ParsedTable, source: str, tier: int) -> Rule:
    if chunk.error:
        raise ValueError(chunk.error)
    if chunk.kind == "safety_checker":
        from interlock.services.policy.safety_checkers import to_checker  # deferred: few rule files have any

        return to_checker(chunk.table, source, tier)
    if chunk.kind != "rule":
        raise ValueError(f"[[{chunk.kind}]] isn't known, expected [[rule]] or [[safety_checker]]")
    return to_rule(chunk.table, source, tier)


def _tools_of_unusable(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tools that an unusable rule may be about."""
    value: object = table.get("toolName")
    names = cast(list[object], value) if isinstance(value, list) else [value]
    if not names or not all(isinstance(n, str) and is_usable_tool_name(n) for n in names):
        return ("*",)
    return tuple(canonical_tool_name(str(n)) for n in names)


def find_conflicts(rules: Sequence[Rule]) -> list[RuleProblem]:
    """Return a problem for each pair of rules of equal rank and conditions that decide differently; the stricter
    one applies."""
    seen: dict[object, Rule] = {}
    problems: list[RuleProblem] = []
    for rule in rules:
        if rule.broken is not None or rule.checker is not None:
            continue
        first = seen.setdefault(_comparable_conditions(rule), rule)
        if first.decision != rule.decision:
            text = f"{rule.decision} here, {first.decision} in {first.source}: same priority, same conditions"
            problems.append(RuleProblem(rule.source, text, "the stricter one holds"))
    return problems


def _comparable_conditions(rule: Rule) -> object:
    patterns = tuple(p.text if p else None for p in (rule.command, rule.args))
    scope = (rule.server, rule.subagent, rule.interactive, repr(sorted(rule.annotations.items())))
    return (rule.rank, frozenset(rule.tools), rule.modes, frozenset(rule.prefixes), patterns, scope)
