"""claude_permissions: `permissions` of Claude Code's settings in a repository, as rules of the workspace's tier.

An *allow* stands behind every other rule of the workspace and the user, covers no more than Claude Code's, and lifts
nothing that asks in every mode. What a rule can't say exactly asks; what would allow a whole tool doesn't count."""

import fnmatch
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, cast

from interlock.services.files.claude_denials import CLAUDE_SETTINGS, to_ignore_line
from interlock.services.files.json_with_comments import parse_json_with_comments
from interlock.services.files.path_patterns import PathPattern
from interlock.services.policy.claude_permission_syntax import (
    parse_host,
    parse_permission,
    split_server_tool,
)
from interlock.services.policy.rule import (
    WORKSPACE,
    PatternError,
    Rule,
    canonical_tool_name,
    compile_pattern,
)
from interlock.state.calls import Decision
from interlock.state.names import OTHER_NAMES, mcp_server_key, mcp_tool_name, mcp_tool_prefix
from interlock.tools.table import ALIASES, TOOLS

PRIORITIES: Mapping[Decision, int] = {"deny": 990, "ask": 940, "allow": 0}
"""Claude Code's order within the tier. An allow gives way to every rule of the workspace that restricts."""
_LISTS: tuple[Decision, ...] = ("deny", "ask", "allow")
_UNUSED_KEYS: Mapping[str, str] = {
    "defaultMode": "a repository doesn't choose the approval mode",
    "additionalDirectories": "a repository opens no folder outside itself",
    "disableBypassPermissionsMode": "a repository doesn't choose the approval mode",
    "disableAutoMode": "a repository doesn't choose the approval mode",
}
Fate = Literal["rule", "hides", "needless", "skipped", "asks"]


class PermissionEntry(NamedTuple):
    """One entry of a list, and what became of it."""

    decision: Decision
    text: str
    fate: Fate
    """`rule`: it counts as it says. `hides`: it keeps a file from tools. `needless`: it says what holds anyway.
    `skipped`: it doesn't count. `asks`: a person is asked instead, as no rule can say it exactly."""
    why: str = ""
    rule: Rule | None = None


class Permissions(NamedTuple):
    entries: list[PermissionEntry]
    unused: Mapping[str, str]
    """Other keys → why they don't count; empty: unknown."""


def is_claude_settings(path: str) -> bool:
    return path.endswith(tuple(f"/{name}" for name in CLAUDE_SETTINGS))


def is_claude_rule(rule: Rule) -> bool:
    return is_claude_settings(rule.source.partition(" permissions.")[0])


def extract_permissions(text: str) -> str | None:
    """Return the part of a settings file that holds permissions, as JSON; None if it has none. Raises `ValueError`."""
    data: object = parse_json_with_comments(text) if text.strip() else {}
    if not isinstance(data, dict):
        raise ValueError("expected an object")
    found = cast("dict[str, object]", data).get("permissions")
    return None if found in (None, {}) else json.dumps({"permissions": found}, ensure_ascii=False)


def read_permissions(text: str, path: str) -> Permissions:
    """Return what became of each entry of a settings file. Raises `ValueError` if it can't be read as a whole."""
    found: object = json.loads(extract_permissions(text) or '{"permissions": {}}')["permissions"]
    if not isinstance(found, dict):
        raise ValueError("permissions isn't an object")
    table = cast("dict[str, object]", found)
    entries: list[PermissionEntry] = []
    for decision in _LISTS:
        given = table.get(decision, [])
        if not isinstance(given, list):
            raise ValueError(f"permissions.{decision} isn't a list")
        entries += [_read_entry(decision, entry, path) for entry in cast("list[object]", given)]
    unused = {key: _UNUSED_KEYS.get(key, "") for key in table if key not in _LISTS}
    return Permissions(entries, unused)


def read_allowed_tools(entries: Iterable[str], root: Path) -> list[PermissionEntry]:
    """Return what becomes of each entry of `allowed-tools`, of a skill or command of the user's, in a workspace."""
    found = (_read_entry("allow", entry, f"{root}/{CLAUDE_SETTINGS[0]}") for entry in entries)
    return [
        one._replace(rule=one.rule and replace(one.rule, source=f"allowed-tools {one.text!r}"))
        for one in found
    ]


_FILE_TOOLS = ("replace", "write_file", "generate_image")
_SHELL = "run_shell_command"
_SEARCHES = ("read_many_files", "grep_search", "codebase_search")
"""They read files that their arguments don't name."""
_EDITS = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})
_READS = frozenset({"Read", "NotebookRead"})
_UNMATCHED = frozenset({"Write", "NotebookEdit", "Glob", "Grep", "LS", "MultiEdit"})
"""Claude Code matches no path of these."""
_TOOLS_THAT_NEVER_ASK = frozenset(
    {"read_file", "read_many_files", "grep_search", "glob", "list_directory", "write_todos", "web_search"}
)
"""Tools that ask for nothing by default."""
_AGENTS = frozenset({"Agent", "Task"})
_NO_WHOLE_TOOL = "another program's file allows no whole tool"


class _InexactError(Exception):
    """No rule says this exactly; the text says why."""


def _read_entry(decision: Decision, text: object, path: str) -> PermissionEntry:
    shown = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    source = f"{path} permissions.{decision} {shown!r}"
    found = parse_permission(text)
    make = PermissionEntry(decision, shown, "skipped")
    if found is None:
        tools: tuple[str, ...] = ("*",)
        return _ask_or_skip_instead(make, tools, source, "it is no rule of Claude Code's")
    tool = found.tool
    base = Rule(source, (), decision, WORKSPACE, PRIORITIES[decision], lifts_no_standing_question=True)
    try:
        if not found.scope:
            return _read_whole_tool(make, base, tool)
        return _read_narrowed_tool(make, base, tool, found.scope, path)
    except _InexactError as error:
        return _ask_or_skip_instead(make, _find_tools(tool), source, str(error))
    except PatternError as error:
        return _ask_or_skip_instead(make, _find_tools(tool), source, str(error))


def _ask_or_skip_instead(
    entry: PermissionEntry, tools: tuple[str, ...], source: str, why: str
) -> PermissionEntry:
    """Return the entry of what can't be said: an allow is left out, and what restricts asks."""
    if entry.decision == "allow":
        return entry._replace(why=why)
    if not tools:
        return entry._replace(why="Interlock has no such tool")
    rule = Rule(source, tools, "ask", WORKSPACE, 999, load_problem=why, lowers_to_ask=True)
    return entry._replace(fate="asks", why=why, rule=rule)


def _find_tools(tool: str) -> tuple[str, ...]:
    """Return our tools that a name, or a pattern of names, of Claude Code's means."""
    if server_tool := split_server_tool(tool):
        server, _ = server_tool
        return (f"{mcp_tool_prefix(server)}*",) if server and "*" not in server else ("mcp_*",)
    if "*" in tool:
        names = {ours for theirs, ours in OTHER_NAMES.items() if fnmatch.fnmatchcase(theirs, tool)}
        every = ("*",) if tool == "*" else ()
        return every or (*sorted(names), *(("mcp_*",) if fnmatch.fnmatchcase("mcp__", tool) else ()))
    if tool in _EDITS - {"Write"}:
        return _FILE_TOOLS
    if tool in _READS:
        return ("read_file", "read_many_files")
    if tool in _AGENTS:
        return ("invoke_agent",)
    if tool == "Skill":
        return ("activate_skill",)
    ours = canonical_tool_name(tool)
    return (ours,) if ours in TOOLS else ()


def _read_whole_tool(entry: PermissionEntry, rule: Rule, tool: str) -> PermissionEntry:
    tools = _find_tools(tool)
    server, name = split_server_tool(tool) or ("", "")
    if name and not name.endswith("*"):
        return _read_server_tool(entry, rule, server, name)
    if rule.decision == "allow":
        free = bool(tools) and {*tools} <= _TOOLS_THAT_NEVER_ASK
        return entry._replace(
            fate="needless" if free else "skipped", why="it needs no rule" if free else _NO_WHOLE_TOOL
        )
    if name:
        tools = (_build_server_tool_pattern(server, name),)
    if not tools:
        return entry._replace(why="Interlock has no such tool")
    return entry._replace(fate="rule", rule=replace(rule, tools=tools))


def _read_server_tool(entry: PermissionEntry, rule: Rule, server: str, name: str) -> PermissionEntry:
    if "*" in server or "*" in name:
        raise _InexactError("`*` within a server's tool can't be said exactly")
    if not server:
        raise _InexactError("it names no server's tool")
    whose = server if rule.decision == "allow" else None
    return entry._replace(fate="rule", rule=replace(rule, tools=(mcp_tool_name(server, name),), server=whose))


def _build_server_tool_pattern(server: str, name: str) -> str:
    """Return the pattern of `mcp__SERVER__*` and `mcp__SERVER__get_*`. Raises `_InexactError` for others."""
    if "*" in server or "*" in name[:-1] or not (name == "*" or name.endswith("_*")):
        raise _InexactError("`*` within a server's tool can't be said exactly")
    return f"mcp_{mcp_server_key(server)}_{name}"


def _read_narrowed_tool(
    entry: PermissionEntry, rule: Rule, tool: str, inner: str, path: str
) -> PermissionEntry:
    if tool == "Bash":
        pattern = compile_pattern(build_command_regex(inner, restricts=rule.decision != "allow"))
        return entry._replace(fate="rule", rule=replace(rule, tools=(_SHELL,), command_pattern=pattern))
    if tool in _READS | _EDITS | _UNMATCHED:
        return _read_paths(entry, rule, tool, inner, Path(path).parent.parent)
    if tool == "WebFetch":
        pattern = compile_pattern(build_host_regex(inner))
        return entry._replace(fate="rule", rule=replace(rule, tools=("web_fetch",), host_pattern=pattern))
    if tool in _AGENTS:
        if inner in (*TOOLS, *ALIASES) or set(inner) & set("*?[] \t\n"):
            raise _InexactError("it names no agent")
        return entry._replace(fate="rule", rule=replace(rule, tools=(inner,)))
    if tool == "Skill":
        name = inner.removesuffix(":*").removesuffix(" *")
        if "*" in name:
            raise _InexactError("a pattern of skills can't be said exactly")
        text = json.dumps(name, ensure_ascii=False)
        pattern = compile_pattern(f'\\x00"name":{re.escape(text)}\\x00')
        return entry._replace(
            fate="rule", rule=replace(rule, tools=("activate_skill",), args_pattern=pattern)
        )
    raise _InexactError("Interlock doesn't know what narrows this tool")


def _read_paths(entry: PermissionEntry, rule: Rule, tool: str, inner: str, folder: Path) -> PermissionEntry:
    restricts = rule.decision != "allow"
    if tool in _UNMATCHED - _EDITS or (tool in _UNMATCHED and not restricts):
        return entry._replace(why=f"Claude Code matches no path of {tool}; it knows Read and Edit")
    line = to_ignore_line(inner, folder, restricts=restricts)
    if line is None:
        outside = inner.startswith(("//", "~"))
        if outside:
            return entry._replace(fate="needless", why="tools open nothing outside the workspace")
        raise _InexactError("it names no path")
    if tool in _READS and not restricts:
        return entry._replace(fate="needless", why="reading in the workspace needs no rule")
    if not restricts and not line.strip("/*"):
        return entry._replace(why=_NO_WHOLE_TOOL)
    pattern = PathPattern(str(folder), line, folds_case=restricts)
    if not pattern.is_usable:
        raise _InexactError("its pattern can't be used")
    if tool in _READS and rule.decision == "deny":
        return entry._replace(fate="hides")
    if tool in _READS:
        made = replace(rule, tools=("read_file", "list_code_definition_names", _SHELL), path_pattern=pattern)
        return entry._replace(fate="rule", rule=made)
    tools = (*_FILE_TOOLS, _SHELL) if restricts else _FILE_TOOLS
    return entry._replace(fate="rule", rule=replace(rule, tools=tools, path_pattern=pattern))


# ---- patterns

_SPECIAL = re.compile(r"[$`\\?\[\]{}~!#<>|;&()\n\r\x00\x01]")
"""What bash, or we, may read in another way than as text."""
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_QUOTED_OR_STAR = re.compile(r"'[^']*'|\"[^\"]*\"|\*")
_STAR = "\x01"
"""Stands for a `*` outside of quotes."""
_ANY = "(?s:.*)"
_MORE = f"(?: {_ANY})?"


def build_command_regex(pattern: str, *, restricts: bool) -> str:
    """Return the regular expression of a `Bash(…)` pattern, for a command's words joined by blanks.

    `*` is any text; ` *` and `:*` at the end are further words, if any. Raises `_InexactError`, as what allows must
    match no more than Claude Code's."""
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    text = pattern.strip()
    if not text.strip("* "):
        raise _InexactError(_NO_WHOLE_TOOL)
    if restricts:
        texts = {" ".join(text.split())}
        with suppress(ValueError):  # else as written
            words = shlex.split(text)
            texts |= {" ".join(words), " ".join(word if "*" in word else shlex.quote(word) for word in words)}
        return "|".join(f"(?:{_build_wildcard_regex(one, '*', more=True)})" for one in sorted(texts))
    if found := _SPECIAL.search(text):
        raise _InexactError(f"what {found[0]!r} stands for can't be said exactly")
    try:
        words = shlex.split(_QUOTED_OR_STAR.sub(lambda part: part[0] if len(part[0]) > 1 else _STAR, text))
    except ValueError as error:
        raise _InexactError(f"its quotes can't be read: {error}") from None
    if _ASSIGNS.match(words[0]):
        raise _InexactError("it sets a variable, which a rule for a command doesn't cover")
    if words[0][:1] in (_STAR, ""):
        raise _InexactError("it names no program")
    if any(
        shlex.quote(part) != part
        for word in words
        if _STAR in word
        for part in filter(None, word.split(_STAR))
    ):
        raise _InexactError("`*` beside a quoted text can't be said exactly")
    # In quotes, `*` matches fewer commands here than in Claude Code: it is the sign itself.
    canonical = " ".join(word if _STAR in word else shlex.quote(word) for word in words)
    return _build_wildcard_regex(canonical, _STAR, more=text.count("*") == 1)


def _build_wildcard_regex(text: str, star: str, *, more: bool) -> str:
    """Return the regular expression of a whole text with `star` for any; `more`: it may be missing as a last word."""
    end = ""
    if more and text.endswith(f" {star}"):
        text, end = text[: -len(star) - 1], _MORE
    return _ANY.join(map(re.escape, text.split(star))) + end + r"\z"


def build_host_regex(text: str) -> str:
    """Return the regular expression of `domain:HOST`, for one host: `*.h` are its sub-domains, `*` a part of a label.

    Raises `_InexactError`."""
    host = parse_host(text)
    if host is None:
        raise _InexactError("expected domain:HOST")
    start = r"(?:[^.:]+\.)+" if host.startswith("*.") else ""
    labels = host.removeprefix("*.").split("*")
    return start + "[^.:]*".join(map(re.escape, labels)) + r"\z"


def iterate_rules(permissions: Permissions) -> Iterator[Rule]:
    """Yield the rules of entries, and what asks besides."""
    for entry in permissions.entries:
        if entry.rule is not None:
            yield entry.rule
            if entry.rule.path_pattern is not None and "read_file" in entry.rule.tools:
                # They may show such a file without naming it.
                yield replace(entry.rule, tools=_SEARCHES, path_pattern=None)
