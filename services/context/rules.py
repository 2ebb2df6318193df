"""rules: rule files of other agents, the conditions under which they count, and Roo Code's rules of a mode."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from interlock.services.context.front_matter import FrontMatter, parse_front_matter
from interlock.services.context.imports import (
    AlreadyIncludedError,
    ImportExpansion,
    IncludedTexts,
)
from interlock.services.context.memory import (
    FILE_LIMIT,
    TOTAL_LIMIT,
    UNTRUSTED,
    list_folders_from_git_root,
)
from interlock.services.context.rule_conditions import RuleCondition, matches_patterns, read_rule_condition
from interlock.services.files.agent_files import (
    AgentFiles,
    find_agent_files,
    find_matching_files,
    list_agent_files,
)
from interlock.services.files.filesystem import UnreadableError, is_file
from interlock.services.files.protected import RULES
from interlock.services.files.stamps import real_path
from interlock.state.context import AGENT_FILES, IGNORE_FILE, RuleFile
from interlock.state.file_names import format_file_name
from interlock.state.text import replace_surrogates

_MOST = 500
"""Maximum number of files considered per folder."""
_LEFTOVER_SUFFIXES = (
    *(".ds_store", ".bak", ".cache", ".crdownload", ".db", ".dmp", ".dump", ".eslintcache", ".lock", ".log"),
    *(".old", ".part", ".partial", ".pyc", ".pyo", ".stackdump", ".swo", ".swp", ".temp", ".tmp"),
    "thumbs.db",
)
"""Suffixes of files that editors and systems leave behind (Roo Code: the same)."""
_LEFT_BEHIND = "editors and systems leave such files behind"
_ROO_CODE = "Roo Code"
_ALWAYS = RuleCondition("always")


@dataclass(frozen=True)
class AgentRule:
    """A rule file of another agent."""

    path: Path
    base: Path
    """The folder that its patterns are relative to."""
    row: AgentFiles
    level: Literal["global", "project"] = "project"
    text: str = ""
    """Without its front matter, with its imports expanded."""
    condition: RuleCondition = _ALWAYS
    sources: frozenset[Path] = frozenset()
    """The real paths of the file and its imports."""
    problem: str = ""
    """What of its front matter can't be read."""
    unused: str = ""
    """Why the file isn't used, for people."""

    def applies_to(self, path: Path) -> bool:
        """Return whether a file that is read or edited brings this rule along. `path`: a real path."""
        if self.unused or not path.is_relative_to(self.base):
            return False
        if self.condition.when != "matching":
            return self.condition.when == "always"
        return matches_patterns(
            path.relative_to(self.base).as_posix(), self.condition.patterns, self.row.bare
        )


def load_agent_rules(
    root: Path,
    home: Path,
    *,
    trusted: bool,
    included: IncludedTexts,
    untrusted_parents: Collection[Path] = (),
) -> list[AgentRule]:
    """Load the user's rules and those from the git root down to the workspace, in the order shown to the model; also
    those that aren't used. `included`: notes what was read; a text that stands there is left out. `untrusted_parents`:
    as for memory files."""
    found: dict[Path, AgentRule] = {}
    left = TOTAL_LIMIT
    top, way = list_folders_from_git_root(root)
    for base in way:
        for row, path in find_agent_files("rules", base):
            if row.program == _ROO_CODE or path in found:
                continue
            if trusted and base not in untrusted_parents:
                imports = ImportExpansion((real_path(top),), min(FILE_LIMIT, left), included)
                found[path] = _read_rule(AgentRule(path, base, row), imports)
                left -= len(found[path].text.encode()) if found[path].condition.when == "always" else 0
            else:
                found[path] = AgentRule(path, base, row, unused=UNTRUSTED)
    for rule in _load_roo_rules(way, home, () if not trusted else {*way} - {*untrusted_parents}, included):
        found.setdefault(rule.path, rule)
    return [*found.values()]


def _load_roo_rules(
    way: Sequence[Path], home: Path, trusted: Collection[Path], included: IncludedTexts
) -> Iterator[AgentRule]:
    """Load the rules that Roo Code's mode `code` has, which other loops than the task loop resemble."""
    row = next(row for row in list_agent_files("rules") if row.program == _ROO_CODE)
    for base in way:
        for suffix in ("-code", ""):
            kept = included if base in trusted else IncludedTexts()
            for file in load_rules_of_folders_or_single_file(
                suffix, base, home if base == way[0] else base, kept
            ):
                in_home = file.path.is_relative_to(home) and not file.path.is_relative_to(base)
                unused = file.problem or ("" if file.text else "it is empty")
                unused = unused if base in trusted or in_home else UNTRUSTED
                yield AgentRule(
                    file.path,
                    base,
                    row,
                    "global" if in_home else "project",
                    "" if unused else file.text,
                    sources=file.sources,
                    unused=unused,
                )


def load_nested_rules(folder: Path, roots: Sequence[Path]) -> Iterator[AgentRule]:
    """Load the rules of a folder below the workspace's root."""
    for row in list_agent_files("rules"):
        for pattern in row.project if row.nested else ():
            for path in find_matching_files(folder, pattern, row.without):
                imports = ImportExpansion(tuple(map(real_path, roots)), FILE_LIMIT)
                yield _read_rule(AgentRule(path, folder, row), imports)


def _read_rule(rule: AgentRule, imports: ImportExpansion) -> AgentRule:
    if rule.path.name.casefold().endswith(_LEFTOVER_SUFFIXES):
        return replace(rule, unused=_LEFT_BEHIND)
    if imports.left <= 0:
        return replace(rule, unused=f"the rule files before it hold {TOTAL_LIMIT:,} bytes already")
    try:
        text, place = imports.read_file(rule.path)
        front = parse_front_matter(text) if rule.row.fields else FrontMatter({}, text)
        condition = read_rule_condition(rule.row, front.fields)
        if condition.when == "always":  # what waits for a file is compared with the others when it comes
            imports.included.add(rule.path, real_path(place), front.body)
        text = imports.expand_text(front.body, place)
    except AlreadyIncludedError as error:
        return replace(rule, unused=f"the same text as {error.first}", sources=frozenset(imports.seen))
    except UnreadableError as error:
        return replace(rule, unused=str(error))
    text = replace_surrogates(text).strip()
    unused = "" if text else "it is empty"
    if condition.when == "never":
        unused = "it is for other agents than one that writes code"
    sources = frozenset(imports.seen)
    return replace(
        rule, text=text, condition=condition, sources=sources, problem=front.problem or "", unused=unused
    )


def load_rule_files(
    root: Path, home: Path, mode: str, *, trusted: bool, use_agent_files: bool = True, use_rules: bool = True
) -> list[RuleFile]:
    """Load rules in the order shown to the model: the mode's, the ignore file, AGENTS.md, those for all modes. Of an
    untrusted folder none is loaded, only the user's own."""
    included = IncludedTexts()
    agent_files = AGENT_FILES if use_agent_files else ()
    files: list[RuleFile] = []
    if mode and use_rules:
        files += load_rules_of_folders_or_single_file(f"-{mode}", root, home, included, trusted=trusted)
    if trusted:
        files += _read_rule_files_until_non_empty(root, (IGNORE_FILE,), included)
        files += _read_rule_files_until_non_empty(root, agent_files, included)
    if use_rules:
        files += load_rules_of_folders_or_single_file("", root, home, included, trusted=trusted)
    left = TOTAL_LIMIT
    kept: list[RuleFile] = []
    for file in files:
        if len(file.text.encode()) > left:
            why = f"the rule files before it hold {TOTAL_LIMIT:,} bytes already"
            file = file._replace(text="", problem=why)
        left -= len(file.text.encode())
        kept.append(file)
    return kept


def load_rules_of_folders_or_single_file(
    suffix: str, root: Path, home: Path, included: IncludedTexts, *, trusted: bool = True
) -> list[RuleFile]:
    """Load rules from the user's and the project's folder; if neither has any, from the project's first non-empty
    single file. `trusted`: whether the project's count."""
    found: list[RuleFile] = []
    for base in dict.fromkeys((home, root) if trusted else (home,)):
        files = islice(find_matching_files(base, f".roo/rules{suffix}/**/*"), _MOST)
        ordered = sorted(files, key=lambda p: (p.name.casefold(), str(p)))
        found += [_read_rule_file(path, base, included, in_home=base != root) for path in ordered]
    if not trusted or any(file.text for file in found):
        return found
    return [*found, *_read_rule_files_until_non_empty(root, [f"{name}{suffix}" for name in RULES], included)]


def _read_rule_files_until_non_empty(
    root: Path, names: Sequence[str], included: IncludedTexts
) -> Iterator[RuleFile]:
    """Yield files up to and including the first non-empty one."""
    for name in names:
        if is_file(root / name):
            file = _read_rule_file(root / name, root, included, in_home=False)
            yield file
            if file.text:
                return


def _read_rule_file(path: Path, base: Path, included: IncludedTexts, *, in_home: bool) -> RuleFile:
    """Read one rule file. Users may link anything into their own folder; a project's link must not lead outside it."""
    name = path.relative_to(base).as_posix()
    shown = format_file_name(f"~/{name}" if in_home else name)
    if path.name.casefold().endswith(_LEFTOVER_SUFFIXES):
        return RuleFile(shown, "", _LEFT_BEHIND, path)
    allowed = [real_path(base)]
    if in_home:
        allowed.append(real_path(path).parent)
    imports = ImportExpansion(tuple(allowed), FILE_LIMIT, included)
    try:
        text = imports.expand_file(path) if name != IGNORE_FILE else imports.read_file(path)[0]
    except AlreadyIncludedError as error:
        return RuleFile(shown, "", f"the same text as {error.first}", path, frozenset(imports.seen))
    except UnreadableError as error:
        return RuleFile(shown, "", str(error), path)
    return RuleFile(shown, replace_surrogates(text).strip(), "", path, frozenset(imports.seen))
