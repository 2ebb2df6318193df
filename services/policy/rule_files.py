"""rule_files: the rules of files: which files there are, their `[[rule]]` tables as rules, and what is wrong with them.

A file that others may write never allows anything.
"""

import os
import re
import shlex
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, ValidationError, model_validator

from interlock.services.config.settings import FOLDERS, project_settings_paths
from interlock.services.files.claude_denials import CLAUDE_SETTINGS
from interlock.services.files.stamps import path_exists, real_path, record_read
from interlock.services.policy.claude_permissions import (
    extract_permissions,
    is_claude_settings,
    iterate_rules,
    read_permissions,
)
from interlock.services.policy.rule import (
    ADMIN,
    EXTENSION,
    SHIPPED,
    USER,
    WORKSPACE,
    Checker,
    Pattern,
    PatternError,
    Rule,
    canonical_tool_name,
    compile_pattern,
)
from interlock.state.calls import ApprovalMode
from interlock.state.errors import SetupError
from interlock.state.names import mcp_tool_name
from interlock.state.text import first_validation_error
from interlock.state.tooling import SHELL

# ---- one rule

_CONDITIONS = (
    *("argsPattern", "commandPrefix", "commandRegex", "command", "line", "plainReading", "path", "host"),
)
SAVED_FILE = "auto-saved.toml"
SAVED_PRIORITY = 950
"""Priority within its tier (gemini-cli's for always-choices)."""
_UNKNOWN = "unknown"
"""No server's fingerprint."""
MODE_NAMES = {"autoEdit": "auto_edit"}
"""gemini-cli's spelling → ours."""
Names = Annotated[list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v), Field(min_length=1)]
Mode = Annotated[ApprovalMode, BeforeValidator(lambda v: MODE_NAMES.get(v, v) if isinstance(v, str) else v)]


class RuleFields(BaseModel, extra="forbid", strict=True, defer_build=True):
    """One `[[rule]]` table. Names are gemini-cli's, except `path`, `host`, `workspace` and `mcpFingerprint`."""

    toolName: Names
    decision: Literal["allow", "ask", "ask_user", "deny"]
    priority: Annotated[int, Field(ge=0, le=999)]
    mcpName: str | None = None
    mcpFingerprint: str | None = None
    """Written by Interlock: what the server was when the rule was saved; another one of that name isn't covered."""
    subagent: str | None = None
    toolAnnotations: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    argsPattern: str | None = None
    commandPrefix: Names | None = None
    commandRegex: str | None = None
    command: Names | None = None
    """Exactly these commands, and what `commands.toml` lists beside them: a saved grant."""
    line: str | None = Field(default=None, min_length=1)
    """Exactly this shell line: a saved grant."""
    plainReading: Literal[True] | None = None
    """Shell commands that only read, with plain arguments inside the workspace."""
    path: str | None = None
    """As tools name it: relative to the workspace, absolute in an included directory."""
    host: str | None = None
    """Must be the host of every URL in the call, with the port if there is one."""
    workspace: str | None = None
    """Absolute path of the only workspace that the rule applies to."""
    modes: list[Mode] = Field(default_factory=list[Mode])
    interactive: bool | None = None
    allowRedirection: bool = False
    denyMessage: str | None = None

    @model_validator(mode="after")
    def _require_consistency(self) -> "RuleFields":
        for name in self.toolName:
            if not is_valid_tool_name_pattern(name):
                raise ValueError(f"toolName {name!r}: expected a tool's name, '*', 'mcp_*' or 'mcp_SERVER_*'")
        conditions = [k for k in _CONDITIONS if getattr(self, k) is not None]
        if len(conditions) > 1:
            raise ValueError(f"{' and '.join(conditions)} exclude each other")
        about_line = (self.commandPrefix, self.commandRegex, self.command, self.line, self.plainReading)
        command = any(condition is not None for condition in about_line)
        if command and not all(canonical_tool_name(n) in SHELL for n in self.toolName):
            raise ValueError(f"{conditions[0]} is only for toolName 'run_shell_command', got {self.toolName}")
        if (
            self.path or self.host or self.plainReading or self.command or self.line
        ) and self.decision != "allow":
            raise ValueError(f"{conditions[0]} is only for decision 'allow'; to restrict, use argsPattern")
        if self.mcpFingerprint is not None and (self.mcpName is None or self.decision != "allow"):
            raise ValueError("mcpFingerprint needs mcpName, and is only for decision 'allow'")
        if self.workspace is not None and not os.path.isabs(self.workspace):  # noqa: PTH117
            raise ValueError(f"workspace {self.workspace!r} is relative, expected an absolute path")
        return self


def is_valid_tool_name_pattern(name: str) -> bool:
    body = name[:-1] if name == "*" or (name.startswith("mcp_") and name.endswith("_*")) else name
    return name != "" and not set(body) & set("*?[] \t\n")


def to_rule(table: Mapping[str, Any], source: str, tier: int) -> Rule:
    """Return the rule of a table. Raise `ValueError` naming the field."""
    try:
        fields = RuleFields.model_validate(_migrate_saved_table(table, source))
    except ValidationError as error:
        raise ValueError(_first_error_message(error, RuleFields)) from None
    if fields.path and fields.workspace is None and tier != WORKSPACE and not os.path.isabs(fields.path):  # noqa: PTH117
        raise ValueError(f'path {fields.path!r} is relative: in which workspace? Name it by workspace = "…"')
    return Rule(
        source=source,
        tools=tuple(_qualify_tool_name(name, fields.mcpName) for name in fields.toolName),
        decision="ask" if fields.decision == "ask_user" else fields.decision,
        tier=tier,
        priority=fields.priority,
        modes=frozenset(fields.modes),
        command_prefixes=tuple(split_command_words("commandPrefix", p) for p in fields.commandPrefix or ()),
        granted_commands=tuple(split_command_words("command", c) for c in fields.command or ()),
        granted_line=fields.line,
        saved=_is_saved_grant(table, source),
        only_plain_reading=fields.plainReading or False,
        command_pattern=_compile_field_pattern("commandRegex", fields.commandRegex),
        args_pattern=_compile_field_pattern("argsPattern", fields.argsPattern),
        allow_redirection=fields.allowRedirection,
        deny_message=fields.denyMessage,
        target=fields.path if fields.host is None else fields.host,
        workspace=fields.workspace,
        annotations=fields.toolAnnotations,
        server=fields.mcpName,
        server_fingerprint=fields.mcpFingerprint,
        subagent=fields.subagent,
        interactive=fields.interactive,
    )


def _migrate_saved_table(table: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    """Return what was saved by 0.1 or gemini-cli as what the person saw. A prefix is a grant for these words:
    nobody wrote a prefix. A server's name alone covers nothing any more, as any program could have it: the tool is
    asked about once more.

    A prefix is a grant for these words: nobody wrote a prefix. A server's name alone covers nothing any more, as any
    program could have it: the tool is asked about once more.
    """
    if not _is_saved_grant(table, source):
        return table
    if "mcpName" in table and "mcpFingerprint" not in table:
        return {**table, "mcpFingerprint": _UNKNOWN}
    rest = {k: v for k, v in table.items() if k not in ("commandPrefix", "allowRedirection")}
    return {**rest, "command": table["commandPrefix"]} if "commandPrefix" in table else table


def _is_saved_grant(table: Mapping[str, Any], source: str) -> bool:
    own = os.path.basename(source.rpartition(":")[0] or source) == SAVED_FILE  # noqa: PTH119
    return own and table.get("priority") == SAVED_PRIORITY and table.get("decision") == "allow"


def _qualify_tool_name(tool: str, server: str | None) -> str:
    """Return a tool's name as used in calls: with `mcpName` it may be the server's own name for it."""
    plain = tool == "*" or tool.startswith("mcp_")
    return canonical_tool_name(tool) if server is None or plain else mcp_tool_name(server, tool)


def split_command_words(field: str, text: str) -> tuple[str, ...]:
    """Return the words of a command, or its leading ones, as bash splits them. Raise `ValueError`."""
    try:
        split = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{field} {text!r}: {error}") from None
    if not split:
        raise ValueError(f"{field} is empty, expected the leading words of a command")
    return split


def _compile_field_pattern(field: str, text: str | None) -> Pattern | None:
    """Return the field's pattern compiled. Raise `ValueError` naming the field."""
    try:
        return None if text is None else compile_pattern(text)
    except PatternError as error:
        raise ValueError(f"{field}: {error}") from None


def _first_error_message(error: ValidationError, fields: type[BaseModel]) -> str:
    """Return the first error, naming the field."""
    place, message = first_validation_error(error)
    message = message.removeprefix("Value error, ")
    if error.errors()[0]["type"] == "extra_forbidden":
        return f"unknown key {place!r}, expected one of: {', '.join(fields.model_fields)}"
    return f"{place}: {message}" if place else message


# ---- a safety checker

_TIME_LIMIT_S = 5.0
"""Default time-out of an external checker in seconds (gemini-cli)."""


class _Configured(BaseModel, extra="forbid", strict=True, defer_build=True):
    config: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    required_context: list[str] = Field(default_factory=list[str])


class _InProcess(_Configured):
    type: Literal["in-process"]
    name: Literal["allowed-path"]


class _External(_Configured):
    type: Literal["external"]
    command: str = Field(pattern=r"\S")
    """A bash command line."""
    name: str = ""
    timeout: Annotated[float, Field(gt=0, le=600)] = _TIME_LIMIT_S
    """In seconds."""


class _CheckerFields(BaseModel, defer_build=True):
    checker: Annotated[_InProcess | _External, Field(discriminator="type")]


def _to_checker_rule(table: Mapping[str, Any], source: str, tier: int) -> Rule:
    """Return a rule that never decides by itself. Raise `ValueError` naming the field."""
    if "decision" in table:
        raise ValueError("a safety checker has no decision: what it says is the decision")
    entries = {**table}
    if not isinstance(described := entries.pop("checker", None), dict):
        raise ValueError("checker is missing, expected a table [safety_checker.checker] with its type")
    try:
        fields = _CheckerFields.model_validate({"checker": described}).checker
    except ValidationError as error:
        raise ValueError(_first_error_message(error, _CheckerFields)) from None
    rule = to_rule({**entries, "decision": "ask"}, source, tier)
    if isinstance(fields, _External):
        name = fields.name or fields.command.split()[0]
        checker = Checker(name, fields.config, fields.command, fields.timeout)
    else:
        known = ("included_args", "excluded_args")
        for key, value in fields.config.items():
            names = cast(list[object], value) if key in known and isinstance(value, list) else [None]
            if not all(isinstance(n, str) for n in names):
                raise ValueError(f"checker.config.{key}: expected {' or '.join(known)}, each a list of names")
        checker = Checker(fields.name, fields.config)
    return replace(rule, checker=checker)


def build_fallback_ask_rule(source: str, tier: int, tools: tuple[str, ...], problem: str) -> Rule:
    """Return a rule that asks in place of an unusable one, which may have been meant to deny."""
    return Rule(
        source=source,
        tools=tools,
        decision="ask",
        tier=tier,
        priority=999,
        load_problem=problem,
        lowers_to_ask=True,
    )


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A problem in a rule file or setting, and its effect."""

    source: str
    """`FILE:LINE`, or the setting's name."""
    text: str
    effect: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text}; {self.effect}"


# ---- files

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
    reads_claude_settings: bool = True
    """Whether permissions in Claude Code's settings of a trusted workspace count."""


def list_rule_files(places: RulePlaces) -> list[tuple[Path, int]]:
    """Return rule files with their tiers. An unreadable folder is listed itself: reading it then reports why."""
    own = project_settings_paths(places.root, places.home, _RULES) if places.trusted else []
    tiers: tuple[tuple[int, Iterable[Path]], ...] = (
        (EXTENSION, _extension_rule_folders(places.home)),
        (WORKSPACE, own),
        (USER, (places.home / name / _RULES for name in FOLDERS)),
        (ADMIN, places.admin),
    )
    reads_theirs = places.trusted and places.reads_claude_settings
    theirs = list_claude_settings(places.root, places.home) if reads_theirs else []
    found = [
        (file, tier)
        for tier, folders in tiers
        for f in folders
        for file in _list_entries_or_folder(f, _SUFFIX)
    ]
    return [*((file, WORKSPACE) for file in theirs), *found, *((file, USER) for file in places.named)]


def list_workspace_rule_files(root: Path, home: Path) -> list[Path]:
    """Return the workspace's rule files, which apply if it is trusted."""
    return [
        file
        for folder in project_settings_paths(root, home, _RULES)
        for file in _list_entries_or_folder(folder, _SUFFIX)
    ]


def list_claude_settings(root: Path, home: Path) -> list[Path]:
    """Return Claude Code's settings files of a workspace that hold permissions or can't be read, not the user's."""
    found: list[Path] = []
    for path in (root / name for name in CLAUDE_SETTINGS):
        if path_exists(path) and real_path(path) != real_path(home / path.relative_to(root)):
            with suppress(ValueError):  # reading it as rules reports why
                if extract_permissions(read_rule_file(path, WORKSPACE)) is None:
                    continue
            found.append(path)
    return found


def user_rule_folder(home: Path) -> Path:
    """Return the folder where always-choices are saved."""
    return home / FOLDERS[-1] / _RULES


def _extension_rule_folders(home: Path) -> Iterator[Path]:
    for name in FOLDERS:
        for extension in _list_entries_or_folder(home / name / "extensions", ""):
            record_read(extension)
            yield extension / _RULES if extension.is_dir() else extension


def _list_entries_or_folder(folder: Path, suffix: str) -> list[Path]:
    """List entries by name, or the folder itself if it exists but can't be listed."""
    record_read(folder, "entries")
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
    record_read(path)
    try:
        handle = os.open(path, _READABLE)
        with open(handle, "rb") as file:  # noqa: PTH123 - the file that is checked is the one that is read
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise RuleTextError("can't be read: it isn't a file")
            if tier not in (SHIPPED, WORKSPACE):
                _reject_unsafe_mode_or_owner(found, tier, "it")
                record_read(folder := real_path(path).parent)
                _reject_unsafe_mode_or_owner(folder.stat(), tier, "its folder")
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise RuleTextError(f"can't be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise RuleTextError(f"can't be read: over {_LARGEST} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleTextError(f"can't be read: not UTF-8 (byte {error.start})") from None


def _reject_unsafe_mode_or_owner(status: os.stat_result, tier: int, label: str) -> None:
    mode, sticky = status.st_mode, stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    others = stat.S_IWOTH | (stat.S_IWGRP if tier == ADMIN else 0)
    if mode & others and not sticky:
        raise RuleTextError(f"doesn't count: others may write {label} (mode {stat.S_IMODE(mode):04o})")
    if tier == ADMIN and status.st_uid not in (0, os.geteuid()):
        raise RuleTextError(f"doesn't count: {label} belongs to another user (uid {status.st_uid})")


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


def _parse_tables_with_lines(text: str) -> list[_ParsedTable]:
    """Split a rule file into tables with their lines, so that one error doesn't hide the others.

    A file that fails to parse as a whole is parsed piece by piece.
    """
    try:
        tables = list(_iterate_tables(tomllib.loads(text), 1))
    except ValueError:
        # RecursionError is a ValueError for `[[[[…`, but arrays nest too, so it also occurs below.
        return [c for line, piece in _split_at_headers(text) for c in _parse_toml_piece(line, piece)]
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


def _parse_toml_piece(line: int, piece: str) -> Iterator[_ParsedTable]:
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
            text = read_rule_file(path, tier)
            # The rest holds what no run keeps, such as keys.
            text = (extract_permissions(text) or "") if is_claude_settings(str(path)) else text
            found.append(RuleText(str(path), tier, text))
        except ValueError as error:
            found.append(RuleText(str(path), tier, None, str(error)))
    return found


def parse_rule_files(texts: Sequence[RuleText]) -> tuple[list[Rule], list[RuleProblem]]:
    """Return the rules of files, and their problems.

    A file with an error loses its allow rules and keeps its deny and ask rules. Every unusable rule, or unreadable
    file, is replaced by one in its tier that asks about what it may have covered.
    """
    read = [_parse_rule_file(text) for text in texts]
    rules = [rule for found, _ in read for rule in found]
    return rules, [*(problem for _, wrong in read for problem in wrong), *find_rule_conflicts(rules)]


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
        return [build_fallback_ask_rule(problem.source, file.tier, ("*",), problem.text)], [problem]
    if is_claude_settings(file.path):
        return _parse_claude_settings(file.text, file.path)
    rules: list[Rule] = []
    problems: list[RuleProblem] = []
    for chunk in _parse_tables_with_lines(file.text):
        source = f"{file.path}:{chunk.line}"
        try:
            rules.append(_table_to_rule_or_checker(chunk, source, file.tier))
        except ValueError as error:
            problems.append(RuleProblem(source, str(error), _NO_ALLOW))
            if chunk.kind != "rule" or chunk.table.get("decision") != "allow":
                rules.append(
                    build_fallback_ask_rule(
                        source, file.tier, _tools_of_unusable_rule(chunk.table), str(error)
                    )
                )
    usable = [r for r in rules if r.decision != "allow"] if problems else rules
    if file.tier != EXTENSION:
        return usable, problems
    left_out = [r for r in usable if not r.checker and (r.decision == "allow" or "yolo" in r.modes)]
    why = "an extension may neither allow nor name yolo"
    problems += [RuleProblem(r.source, why, "left out") for r in left_out]
    return [r for r in usable if r not in left_out], problems


def _parse_claude_settings(text: str, path: str) -> tuple[list[Rule], list[RuleProblem]]:
    try:
        permissions = read_permissions(text, path)
    except ValueError as error:
        problem = RuleProblem(path, str(error), "everything of its tier and below asks")
        return [build_fallback_ask_rule(path, WORKSPACE, ("*",), problem.text)], [problem]
    problems = [
        RuleProblem(entry.rule.source, entry.why, f"{', '.join(entry.rule.tools)} asks instead")
        for entry in permissions.entries
        if entry.fate == "asks" and entry.rule is not None
    ]
    return [*iterate_rules(permissions)], problems


def _table_to_rule_or_checker(chunk: _ParsedTable, source: str, tier: int) -> Rule:
    if chunk.error:
        raise ValueError(chunk.error)
    if chunk.kind == "safety_checker":
        return _to_checker_rule(chunk.table, source, tier)
    if chunk.kind != "rule":
        raise ValueError(f"[[{chunk.kind}]] isn't known, expected [[rule]] or [[safety_checker]]")
    return to_rule(chunk.table, source, tier)


def _tools_of_unusable_rule(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tools that an unusable rule may be about."""
    value: object = table.get("toolName")
    names = cast(list[object], value) if isinstance(value, list) else [value]
    if not names or not all(isinstance(n, str) and is_valid_tool_name_pattern(n) for n in names):
        return ("*",)
    return tuple(canonical_tool_name(str(n)) for n in names)


def find_rule_conflicts(rules: Sequence[Rule]) -> list[RuleProblem]:
    """Return a problem for each pair of rules of equal rank and conditions that decide differently; the stricter
    one applies."""
    seen: dict[object, Rule] = {}
    problems: list[RuleProblem] = []
    for rule in rules:
        if rule.load_problem is not None or rule.checker is not None:
            continue
        first = seen.setdefault(_comparable_conditions(rule), rule)
        if first.decision != rule.decision:
            text = f"{rule.decision} here, {first.decision} in {first.source}: same priority, same conditions"
            problems.append(RuleProblem(rule.source, text, "the stricter one holds"))
    return problems


def _comparable_conditions(rule: Rule) -> object:
    patterns = tuple(p.text if p else None for p in (rule.command_pattern, rule.args_pattern))
    patterns += (rule.path_pattern, rule.host_pattern.text if rule.host_pattern else None)
    scope = (rule.server, rule.subagent, rule.interactive, repr(sorted(rule.annotations.items())))
    return (rule.rank, frozenset(rule.tools), rule.modes, frozenset(rule.command_prefixes), patterns, scope)
