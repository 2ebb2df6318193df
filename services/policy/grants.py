"""grants: what an always decision covers in a run, and how it is saved for later runs."""

import json
import os
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from interlock.services.files.disk import make_private_directory
from interlock.services.files.filesystem import lock_folder, replace_private_file_holding_lock
from interlock.services.files.protected import to_absolute_path
from interlock.services.policy.grant_coverage import (
    describe_extra_coverage,
    find_grant_row,
    has_only_literals_and_path_globs,
    is_covered_by_grant,
)
from interlock.services.policy.plain_reading import LineReading
from interlock.services.policy.rule import USER, Rule, can_grant_override
from interlock.services.policy.rule_files import (
    SAVED_FILE,
    SAVED_PRIORITY,
    RuleTextError,
    read_rule_file,
    to_rule,
)
from interlock.services.policy.task_runners import find_inner_danger, split_by_target
from interlock.services.shell.danger import UNKNOWN
from interlock.services.shell.model import HARMLESS_VARIABLES, STAGES, ShellCommand, ShellLine
from interlock.state.calls import ApprovalMode, CallView, Risk, SavedRules, SessionRule
from interlock.state.errors import RunError
from interlock.state.names import mcp_tool_prefix
from interlock.state.workspace import PathRefused, Workspace

_PATH_KEYS = ("file_path", "path", "dir_path", "notebook_path")
_URLS = ("http://", "https://")


def find_covering_grant(
    grants: Sequence[SessionRule],
    command: ShellCommand,
    asking_rule: Rule | None,
    mode: str,
    reading: LineReading,
) -> SessionRule | None:
    """Return the always-choice of this mode that covers a command, unless the rule that asked can't be lifted."""
    if not can_grant_override(asking_rule):
        return None
    usable = (r for r in grants if _is_valid_in_mode(r, mode))
    return next(
        (r for r in usable if is_command_granted(_split_commands(r.commands), r.line, command, reading)), None
    )


def is_command_granted(
    granted_commands: Iterable[tuple[str, ...]],
    granted_line: str | None,
    command: ShellCommand,
    reading: LineReading,
) -> bool:
    """Return whether a grant for these commands, or for the whole line of this text, covers a command of a line."""
    line = reading.line
    if granted_line and granted_line == line.text:
        return True
    fed = command.may_read_pipe or any(r.kind in ("read", "text") for r in line.file_redirects)
    known = set(command.assigned_names) <= HARMLESS_VARIABLES
    return known and any(is_covered_by_grant(command, argv, reading, fed) for argv in granted_commands)


def _split_commands(commands: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for text in commands:
        with suppress(ValueError):
            yield tuple(shlex.split(text))


def _is_valid_in_mode(rule: SessionRule, mode: str) -> bool:
    return not rule.modes or mode in rule.modes


def call_target(call: CallView, risk: Risk, workspace: Workspace) -> str | None:
    """Return what a call is about: the host for network calls, else the path; None if unknown."""
    if risk == "network":
        texts = [text for text in call.args.values() if isinstance(text, str)]
        hosts = {_host_with_port(url) for text in texts for url in _find_urls(text)}
        return hosts.pop() if len(hosts) == 1 else None
    path = next((call.args[k] for k in _PATH_KEYS if k in call.args), None)
    if not isinstance(path, str):
        return None
    try:
        real = workspace.resolve_readable(path) if risk == "read" else workspace.resolve_writable(path)
    except PathRefused:
        return None
    return workspace.display_path(real)


def call_paths(call: CallView, workspace: Workspace) -> tuple[str, ...]:
    """Return the file that a call names: as written, as existing names spell it, and where both lead. Absolute paths;
    empty if it names none that a tool opens."""
    path = next((call.args[k] for k in _PATH_KEYS if k in call.args), None)
    if not isinstance(path, str):
        return ()
    try:
        spellings = dict.fromkeys((path, workspace.find_existing_spelling(path)))
        named = [to_absolute_path(spelling, workspace.root) for spelling in spellings]
    except PathRefused:
        return ()
    written = [os.path.normpath(one) for one in named]
    real = [os.path.realpath(one) for one in (*written, *map(str, named))]
    return tuple(dict.fromkeys((*written, *real)))


def call_hosts(call: CallView) -> tuple[str, ...]:
    """Return the host of each address in a call's texts; "" where clients could parse it differently."""
    texts = [text for text in call.args.values() if isinstance(text, str)]
    hosts = (_host_with_port(url) for text in texts for url in _find_urls(text))
    return tuple(dict.fromkeys((host or "").partition(":")[0].lower() for host in hosts))


def _find_urls(text: str) -> list[str]:
    """Return the URLs in a text, from `http` to the next blank."""
    return [w[w.lower().index("http") :] for w in text.split() if any(u in w.lower() for u in _URLS)]


def _host_with_port(url: str) -> str | None:
    """Return the host with any port, or None if clients could parse the URL differently."""
    if "\\" in url or "@" in url or not url.isprintable() or url.lower().count("://") != 1:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    name = (parts.hostname or "").rstrip(".")
    return (f"{name}:{port}" if port else name) or None


def is_covered_by_session_rule(
    rule: SessionRule,
    tool_names: frozenset[str],
    target: str | None,
    mode: str,
    server: str | None,
    fingerprint: str = "",
) -> bool:
    """Return whether a session rule covers a call other than a shell call. `fingerprint`: of the server now."""
    if not _is_valid_in_mode(rule, mode) or rule.commands or rule.line:
        return False
    if server is not None and rule.program != fingerprint:
        return False
    if rule.server is not None:
        return rule.server == server
    if rule.tool not in tool_names:
        return False
    # Without a path it is about a whole MCP tool; there is no such rule for our own tools.
    return rule.path == target if rule.path is not None else server is not None


_STRICT_FIRST: tuple[ApprovalMode, ...] = ("plan", "default", "auto_edit", "yolo")
LOOSER: Mapping[str, tuple[ApprovalMode, ...]] = {
    **{m: _STRICT_FIRST[n:] for n, m in enumerate(_STRICT_FIRST)},
    "plan": ("plan",),
}
"""Each mode and the more permissive ones: a choice made in a loose mode doesn't apply in a stricter one.

A choice made while planning ends with the plan.
"""


def to_shell_grant(call: CallView, mode: str, reading: LineReading) -> SessionRule | None:
    """Return a rule for the commands as they are shown; None if what runs is only known when it runs. Where
    arguments are (`for f in *.py; do ruff check "$f"; done`, `… | xargs ruff check`), where it runs in another
    folder, behind a sourced file or with a variable that counts, it is for the whole line.

    Where arguments are (`for f in *.py; do ruff check "$f"; done`, `… | xargs ruff check`), where it runs in another
    folder, behind a sourced file or with a variable that counts, it is for the whole line.
    """
    line = reading.line
    if (
        line.hidden
        or not line.commands_needing_rule
        or any(_is_too_risky_to_grant(c, reading) for c in line.commands_needing_rule)
    ):
        return None
    common = SessionRule(tool=call.name, modes=LOOSER[mode])
    fed = any(c.may_read_pipe and find_grant_row(c.argv) is None for c in line.commands_needing_rule)
    away = reading.elsewhere_clause is not None or line.opaque is not None
    if (
        away
        or line.file_redirects
        or fed
        or _has_behavior_changing_assignment(line)
        or not all(map(_has_known_arguments, line.commands_needing_rule))
    ):
        return common.model_copy(update={"line": line.text})
    each = chain.from_iterable(map(split_by_target, line.commands_needing_rule))
    shown = dict.fromkeys(map(_granted_argv_or_prefix, each))
    commands, also = tuple(map(shlex.join, shown)), tuple(map(describe_extra_coverage, shown))
    return common.model_copy(update={"commands": commands, "also": also})


def _granted_argv_or_prefix(command: ShellCommand) -> tuple[str, ...]:
    found = find_grant_row(command.argv)
    return command.argv[: found[0]] if found and found[1].anything else command.argv


def _is_too_risky_to_grant(command: ShellCommand, reading: LineReading) -> bool:
    danger = command.danger and not (
        command.danger == UNKNOWN and has_only_literals_and_path_globs(command, reading)
    )
    opaque = command.opaque and not command.only_sources_file
    return not command.words or bool(danger or opaque or find_inner_danger(command))


def _has_behavior_changing_assignment(line: ShellLine) -> bool:
    """Return whether it sets a variable by which its commands may do something else."""
    every = (*line.assigns, *(name for c in line.commands_needing_rule for name in c.assigned_names))
    return any(name.partition("=")[0] in STAGES for name in every) or any(
        c.sets for c in line.commands_needing_rule
    )


def _has_known_arguments(command: ShellCommand) -> bool:
    """Return whether every argument is known, or may be any."""
    found = find_grant_row(command.argv)
    return command.literal or (found is not None and found[1].anything and command.words[0].literal)


_LOCK_WAIT_S = 10.0
_HEADER = (
    "# What was allowed with `always, and save it`. Delete what shouldn't hold any more; the rest stays.\n"
    "# `command` covers exactly that command, and harmless arguments that Interlock knows of it. To allow a prefix,\n"
    "# write a rule with `commandPrefix` into a file of your own: here it is read as `command`.\n"
)
Table = dict[str, Any]


def to_rule_tables(rule: SessionRule, server: str | None, is_host: bool, root: Path) -> list[Table]:
    """Return the saved rules for an always-choice. Files and commands are bound to the workspace."""
    common: Table = {"toolName": rule.tool, "decision": "allow", "priority": SAVED_PRIORITY}
    common |= {"modes": list(rule.modes)} if rule.modes else {}
    if rule.commands or rule.line:
        about: Table = {"line": rule.line} if rule.line else {"command": list(rule.commands)}
        return [{**common, **about, "workspace": str(root)}]
    if rule.path is not None:
        about = {"host": rule.path} if is_host else {"path": rule.path, "workspace": str(root)}
        return [{**common, **about}]
    if server is None:
        return []  # it would be a blanket permission
    name = rule.tool if rule.server is None else f"{mcp_tool_prefix(server)}*"
    bound = {"mcpFingerprint": rule.program} if rule.program else {}
    return [{**common, "toolName": name, "mcpName": server, **bound, "workspace": str(root)}]


def describe_saved_scope(tables: Sequence[Table]) -> str:
    """Return where these rules count, in words."""
    bound = any("workspace" in table for table in tables)
    return ("in this folder" if bound else "in every folder") if tables else ""


def save_rules(folder: Path, tables: list[Table], note: str) -> SavedRules | None:
    """Add rules that don't exist yet, keeping the others. Raises `RunError` saying why it can't.

    `note`: one line on where they come from. Returns None if there was nothing to add.
    """
    try:
        make_private_directory(folder)
        with lock_folder(folder, _LOCK_WAIT_S):
            texts = _append_new_tables(Path(os.path.realpath(folder / SAVED_FILE)), tables, note)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise RunError(
            f"{folder / SAVED_FILE}: the rule wasn't saved: {why}. It holds in this run."
        ) from error
    return texts and SavedRules(path=str(folder / SAVED_FILE), before=texts[0], after=texts[1])


def _append_new_tables(path: Path, tables: list[Table], note: str) -> tuple[str, str] | None:
    """Append the tables to the file; return its text before and after, None if it has all of them."""
    old = _read_saved_rules_file(path)
    there = _parse_tables_or_empty(old)
    new = [t for t in tables if not any(_is_same_or_narrower(t, other) for other in there)]
    if not new:
        return None
    heading = f"\n# {' '.join(note.split())}\n[[rule]]\n"
    texts = "".join(
        heading + "".join(f"{k} = {_to_toml_value(v)}\n" for k, v in table.items()) for table in new
    )
    for table in new:
        to_rule(table, str(path), USER)
    if tomllib.loads(texts).get("rule") != new:
        raise ValueError("it holds characters that TOML can't")
    whole = (old or _HEADER).rstrip("\n") + "\n" + texts
    replace_private_file_holding_lock(path, whole.encode())
    return old, whole


def _read_saved_rules_file(path: Path) -> str:
    """Return the file's text. Raise `ValueError` for one that others could have written: saving would make it
    count."""
    if not os.path.lexists(path):
        return ""
    try:
        return read_rule_file(path, USER)
    except RuleTextError as error:
        raise ValueError(f"the file {error}") from None


def _parse_tables_or_empty(text: str) -> list[Table]:
    try:
        found: object = tomllib.loads(text).get("rule")
    except (ValueError, RecursionError):
        return []  # a user's mistake in it is reported at each run; new rules are appended after it
    tables = cast(list[object], found) if isinstance(found, list) else []
    return [cast(Table, t) for t in tables if isinstance(t, dict)]


def _is_same_or_narrower(new: Table, old: Mapping[str, Any]) -> bool:
    """Return whether the old rule allows everything that the new one would."""
    if old.keys() != new.keys():
        return False
    lists = ("modes", "command")
    return all(
        set(new[k]) <= set(old[k]) if k in lists and isinstance(old[k], list) else new[k] == old[k]
        for k in new
    )


def _to_toml_value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
