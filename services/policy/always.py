"""always: what a person's always covers: for the run, and saved for later ones."""

import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import JsonValue

from interlock.services.files.filesystem import locked, make_directories, replace_file
from interlock.services.policy.load import RuleTextError, read_rules
from interlock.services.policy.matching import begins
from interlock.services.policy.prefixes import leading_words, works_alike_everywhere
from interlock.services.policy.rule import USER, Rule
from interlock.services.policy.rulebook import to_rule
from interlock.services.shell.model import ShellCommand, ShellLine
from interlock.services.shell.variables import HARMLESS_VARIABLES
from interlock.state.calls import ApprovalMode, CallView, Choice, Risk, SessionRule
from interlock.state.errors import RunError
from interlock.state.tooling import PathRefused, Workspace

SESSION_RANK = 3.95
"""Where always-choices stand among the rules (gemini-cli): a user's or an admin's rule goes before them."""
_PATH_KEYS = ("file_path", "path", "dir_path", "notebook_path")
_URLS = ("http://", "https://")


def liftable(rule: Rule | None) -> bool:
    """Whether an always-choice can take the place of this rule's ask."""
    return rule is None or rule.rank < SESSION_RANK


def covering(
    command: ShellCommand, asked_by: Rule | None, session: Sequence[SessionRule], mode: str, line: ShellLine
) -> SessionRule | None:
    """The session rule that lets this command pass."""
    if not liftable(asked_by) or not set(command.assigns) <= HARMLESS_VARIABLES:
        return None
    usable = (r for r in session if in_mode(r, mode) and (r.redirection or not line.redirects))
    return next((r for r in usable if any(begins(command, _words(p)) for p in r.command_prefixes)), None)


def _words(prefix: str) -> list[str]:
    try:
        return shlex.split(prefix) or [prefix]
    except ValueError:
        return [prefix]


def in_mode(rule: SessionRule, mode: str) -> bool:
    return not rule.modes or mode in rule.modes


def target(call: CallView, risk: Risk, workspace: Workspace) -> str | None:
    """What a call is about: the host for the network, else the path; null: can't be told."""
    return _host(call.args) if risk == "network" else _path(call.args, risk, workspace)


def _path(args: Mapping[str, JsonValue], risk: Risk, workspace: Workspace) -> str | None:
    given = next((args[k] for k in _PATH_KEYS if k in args), None)
    if not isinstance(given, str):
        return None
    try:
        real = workspace.readable(given) if risk == "read" else workspace.writable(given)
    except PathRefused:
        return None
    # Included directories may hold the same relative path: outside of the root only the whole one is unambiguous.
    return workspace.relative(real) if real.is_relative_to(workspace.root) else str(real)


def _host(args: Mapping[str, JsonValue]) -> str | None:
    hosts = {host(word) for text in args.values() if isinstance(text, str) for word in urls(text)}
    return hosts.pop() if len(hosts) == 1 else None


def urls(text: str) -> list[str]:
    """The URLs in a text, from `http` to the next blank."""
    return [w[w.lower().index("http") :] for w in text.split() if any(u in w.lower() for u in _URLS)]


def host(url: str) -> str | None:
    """The host, with its port where one is given; null for what clients read in different ways."""
    if "\\" in url or "@" in url or not url.isprintable() or url.lower().count("://") != 1:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    name = (parts.hostname or "").rstrip(".")
    return (f"{name}:{port}" if port else name) or None


def covers(
    rule: SessionRule, names: frozenset[str], about: str | None, mode: str, server: str | None
) -> bool:
    """Whether a session rule covers a call that is no shell call."""
    if not in_mode(rule, mode) or rule.command_prefixes:
        return False
    if rule.server is not None:
        return rule.server == server
    if rule.tool not in names:
        return False
    # Without a path it is about an MCP tool as a whole; there is no such rule for a tool of ours.
    return rule.path == about if rule.path is not None else server is not None


LOOSER: dict[str, tuple[ApprovalMode, ...]] = {
    "plan": ("plan", "default", "auto_edit", "yolo"),
    "default": ("default", "auto_edit", "yolo"),
    "auto_edit": ("auto_edit", "yolo"),
    "yolo": ("yolo",),
}
"""A mode and those that allow more: a choice made in a loose mode doesn't hold in a stricter one."""


def shell_rule(call: CallView, line: ShellLine, mode: str) -> SessionRule | None:
    """The leading words of every command of the line; null when one can't be narrowed."""
    if line.opaque is not None or not line.effective:
        return None
    words = [leading_words(c) for c in line.effective]
    prefixes = tuple(dict.fromkeys(w for w in words if w is not None))
    if None in words:
        return None
    return SessionRule(
        tool=call.name, command_prefixes=prefixes, redirection=bool(line.redirects), modes=_modes(mode)
    )


def target_rule(call: CallView, risk: Risk, workspace: Workspace, mode: str) -> SessionRule | None:
    """The tool on this one file, folder or host."""
    about = target(call, risk, workspace)
    return None if about is None else SessionRule(tool=call.name, path=about, modes=_modes(mode))


def server_rule(call: CallView, choice: Choice, server: str, mode: str) -> SessionRule:
    """One MCP tool, or for `proceed_always_server` all tools of its server."""
    whole = choice == "proceed_always_server"
    return SessionRule(tool=call.name, server=server if whole else None, modes=_modes(mode))


def _modes(mode: str) -> tuple[ApprovalMode, ...]:
    return LOOSER[mode]


FILE = "auto-saved.toml"
PRIORITY = 950
"""Of its tier (gemini-cli's place for always-choices)."""
_LOCK_WAIT_S = 10.0
_HEADER = (
    "# What was allowed with `always, and save it`. Delete what shouldn't hold any more; the rest stays.\n"
)
Table = dict[str, Any]


def tables_of(rule: SessionRule, server: str | None, host: bool, root: Path) -> list[Table]:
    """The rules that an always-choice stands for, beyond its run. Files, and commands whose meaning the project

    decides (`make test`, `./deploy`), are bound to the workspace; `git status` means the same everywhere.
    """
    common: Table = {"toolName": rule.tool, "decision": "allow", "priority": PRIORITY}
    common |= {"modes": list(rule.modes)} if rule.modes else {}
    if rule.command_prefixes:
        common |= {"allowRedirection": True} if rule.redirection else {}
        free = [p for p in rule.command_prefixes if works_alike_everywhere(p)]
        bound = [p for p in rule.command_prefixes if p not in free]
        tables = [{**common, "commandPrefix": free}] if free else []
        return tables + ([{**common, "commandPrefix": bound, "workspace": str(root)}] if bound else [])
    if rule.path is not None:
        return [
            {**common, "host": rule.path} if host else {**common, "path": rule.path, "workspace": str(root)}
        ]
    if server is None:
        return []  # it would be a blanket permission
    whole = rule.server is not None
    return [{**common, "toolName": f"mcp_{server}_*" if whole else rule.tool, "mcpName": server}]


def save(folder: Path, tables: list[Table], note: str) -> None:
    """Add what isn't there yet; all that is there is kept. Raises `RunError` saying why it can't.

    `note`: one line on where it comes from.
    """
    try:
        make_directories(folder, 0o700)
        with locked(folder, _LOCK_WAIT_S):
            _add(Path(os.path.realpath(folder / FILE)), tables, note)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise RunError(f"{folder / FILE}: the rule wasn't saved: {why}. It holds in this run.") from error


def _add(path: Path, tables: list[Table], note: str) -> None:
    old = _text(path)
    there = _tables(old)
    new = [t for t in tables if not any(_same(t, other) for other in there)]
    if not new:
        return
    texts = "".join(f"\n# {' '.join(note.split())}\n{_toml(table)}" for table in new)
    for table in new:
        to_rule(table, str(path), USER)
    if tomllib.loads(texts).get("rule") != new:
        raise ValueError("it holds characters that TOML can't")
    replace_file(path, ((old or _HEADER).rstrip("\n") + "\n" + texts).encode())


def _text(path: Path) -> str:
    """A file that others could have written isn't made one that counts."""
    if not os.path.lexists(path):
        return ""
    try:
        return read_rules(path, USER)
    except RuleTextError as error:
        raise ValueError(f"the file {error}") from None


def _tables(text: str) -> list[Table]:
    try:
        found: object = tomllib.loads(text).get("rule")
    except (ValueError, RecursionError):
        return []  # a person's slip in it is reported at each run; what is added stands behind it
    tables = cast(list[object], found) if isinstance(found, list) else []
    return [cast(Table, t) for t in tables if isinstance(t, dict)]


def _same(new: Table, old: Mapping[str, Any]) -> bool:
    """The old one allows all that the new one would."""
    if old.keys() != new.keys():
        return False
    lists = ("modes", "commandPrefix")
    return all(
        set(new[k]) <= set(old[k]) if k in lists and isinstance(old[k], list) else new[k] == old[k]
        for k in new
    )


def _toml(table: Table) -> str:
    return "[[rule]]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in table.items())


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
