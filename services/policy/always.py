"""always: what an always-choice covers, for the run and saved for later ones."""

import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from interlock.services.files.filesystem import locked, make_directories, replace_file
from interlock.services.policy.fields import to_rule
from interlock.services.policy.load import RuleTextError, read_rules
from interlock.services.policy.matching import begins
from interlock.services.policy.rule import USER, Rule, liftable
from interlock.services.shell.model import HARMLESS_VARIABLES, ShellCommand, ShellLine, names
from interlock.state.calls import ApprovalMode, CallView, Risk, SavedRules, SessionRule
from interlock.state.errors import RunError
from interlock.state.tooling import PathRefused, Workspace

_PATH_KEYS = ("file_path", "path", "dir_path", "notebook_path")
_URLS = ("http://", "https://")


def covering(
    command: ShellCommand, asked_by: Rule | None, session: Sequence[SessionRule], mode: str, line: ShellLine
) -> SessionRule | None:
    """Return the session rule that allows this command."""
    if not liftable(asked_by) or not set(command.assigns) <= HARMLESS_VARIABLES:
        return None
    usable = (r for r in session if _in_mode(r, mode) and (r.redirection or not line.redirects))
    return next((r for r in usable if any(begins(command, _words(p)) for p in r.command_prefixes)), None)


def _words(prefix: str) -> list[str]:
    try:
        return shlex.split(prefix) or [prefix]
    except ValueError:
        return [prefix]


def _in_mode(rule: SessionRule, mode: str) -> bool:
    return not rule.modes or mode in rule.modes


def target(call: CallView, risk: Risk, workspace: Workspace) -> str | None:
    """Return what a call is about: the host for network calls, else the path; None if unknown."""
    if risk == "network":
        texts = [text for text in call.args.values() if isinstance(text, str)]
        hosts = {_host(url) for text in texts for url in _urls(text)}
        return hosts.pop() if len(hosts) == 1 else None
    path = next((call.args[k] for k in _PATH_KEYS if k in call.args), None)
    if not isinstance(path, str):
        return None
    try:
        real = workspace.readable(path) if risk == "read" else workspace.writable(path)
    except PathRefused:
        return None
    # Included directories may hold the same relative path: outside of the root it must be absolute.
    return workspace.relative(real) if real.is_relative_to(workspace.root) else str(real)


def _urls(text: str) -> list[str]:
    """Return the URLs in a text, from `http` to the next blank."""
    return [w[w.lower().index("http") :] for w in text.split() if any(u in w.lower() for u in _URLS)]


def _host(url: str) -> str | None:
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


def covers(
    rule: SessionRule,
    names: frozenset[str],
    about: str | None,
    mode: str,
    server: str | None,
    program: str = "",
) -> bool:
    """Whether a session rule covers a call other than a shell call. `program`: what the server is now."""
    if not _in_mode(rule, mode) or rule.command_prefixes or (server is not None and rule.program != program):
        return False
    if rule.server is not None:
        return rule.server == server
    if rule.tool not in names:
        return False
    # Without a path it is about a whole MCP tool; there is no such rule for our own tools.
    return rule.path == about if rule.path is not None else server is not None


_STRICT_FIRST: tuple[ApprovalMode, ...] = ("plan", "default", "auto_edit", "yolo")
LOOSER: Mapping[str, tuple[ApprovalMode, ...]] = {m: _STRICT_FIRST[n:] for n, m in enumerate(_STRICT_FIRST)}
"""Each mode and the more permissive ones: a choice made in a loose mode doesn't apply in a stricter one."""


def shell_rule(call: CallView, line: ShellLine, mode: str) -> SessionRule | None:
    """Build a rule from the leading words of every command on the line; None if one can't be narrowed."""
    if line.opaque is not None or not line.effective:
        return None
    words = [leading_words(c) for c in line.effective]
    prefixes = tuple(dict.fromkeys(w for w in words if w is not None))
    if None in words:
        return None
    redirection = bool(line.redirects)
    return SessionRule(tool=call.name, command_prefixes=prefixes, redirection=redirection, modes=LOOSER[mode])


READERS = names(
    "cat cd cut diff du echo file grep head id ls nl paste pwd rg stat tail tr tree uname uniq wc which"
)
"""Programs that only read, whatever their arguments (their dangerous forms ask anyway)."""
_SUBCOMMANDS = {
    "git": "add blame branch commit describe diff fetch log ls-files rev-parse show stash status switch",
    "npm": "test ls outdated",
    "pnpm": "test ls outdated",
    "yarn": "test",
    "cargo": "build check clippy doc fmt test tree",
    "go": "build doc fmt list test version vet",
    "pip": "check freeze list show",
    "uv": "lock tree",
    "docker": "images inspect logs ps",
    "kubectl": "describe get logs",
    "gh": "status",
    "terraform": "fmt plan validate",
}
"""Programs whose second word says what they do, with those second words whose arguments don't change that."""
_RUNNERS = frozenset(("npm", "pnpm", "yarn"))
_PROGRAMS = names("pytest ruff mypy pyright black isort flake8 eslint tsc prettier jest vitest")
"""Checkers and test runners: what they run is the project's own."""


def leading_words(command: ShellCommand) -> str | None:
    """Return the prefix, quoted for bash; None if it is unknown or would cover more than was shown."""
    if not command.words or command.danger or command.opaque:
        return None
    size = _size(command.argv)
    lead = command.words[:size]
    return shlex.join(w.text for w in lead) if all(w.literal for w in lead) else None


def leading_reader(argv: tuple[str, ...]) -> bool:
    """Whether its leading words say that it changes no file of the workspace."""
    program, second = argv[0] if argv else "", argv[1] if len(argv) > 1 else ""
    return program in READERS or (program == "git" and second in _SUBCOMMANDS["git"].split())


def works_alike_everywhere(prefix: str) -> bool:
    """Whether it runs nothing supplied by the current folder."""
    program = shlex.split(prefix)[0]
    return program in READERS or program == "git"


def _size(argv: tuple[str, ...]) -> int:
    program, second = argv[0], argv[1] if len(argv) > 1 else ""
    if program in READERS or program in _PROGRAMS:
        return 1
    if second in _SUBCOMMANDS.get(program, "").split():
        return 2
    if program in _RUNNERS and second == "run" and len(argv) > 2:
        return 3
    return len(argv)


FILE = "auto-saved.toml"
PRIORITY = 950
"""Priority within its tier (gemini-cli's for always-choices)."""
_LOCK_WAIT_S = 10.0
_HEADER = (
    "# What was allowed with `always, and save it`. Delete what shouldn't hold any more; the rest stays.\n"
)
Table = dict[str, Any]


def tables_of(rule: SessionRule, server: str | None, host: bool, root: Path) -> list[Table]:
    """Build the saved rules for an always-choice. Files, and commands whose meaning depends on the project (`make
    test`, `./deploy`), are bound to the workspace; `git status` means the same everywhere."""
    common: Table = {"toolName": rule.tool, "decision": "allow", "priority": PRIORITY}
    common |= {"modes": list(rule.modes)} if rule.modes else {}
    if rule.command_prefixes:
        common |= {"allowRedirection": True} if rule.redirection else {}
        free = [p for p in rule.command_prefixes if works_alike_everywhere(p)]
        bound = [p for p in rule.command_prefixes if p not in free]
        groups: tuple[tuple[list[str], Table], ...] = ((free, {}), (bound, {"workspace": str(root)}))
        return [{**common, "commandPrefix": prefixes, **where} for prefixes, where in groups if prefixes]
    if rule.path is not None:
        about = {"host": rule.path} if host else {"path": rule.path, "workspace": str(root)}
        return [{**common, **about}]
    if server is None:
        return []  # it would be a blanket permission
    name = rule.tool if rule.server is None else f"mcp_{server}_*"
    bound = {"mcpFingerprint": rule.program} if rule.program else {}
    return [{**common, "toolName": name, "mcpName": server, **bound, "workspace": str(root)}]


def where_saved(tables: Sequence[Table]) -> str:
    """Where these rules count, in words."""
    free = [table for table in tables if "workspace" not in table]
    if len(free) == len(tables):
        return "in every folder" if tables else ""
    names = " or ".join(f"`{prefix}`" for table in free for prefix in table["commandPrefix"])
    return "in this folder" + (f" ({names} in every folder)" if names else "")


def save(folder: Path, tables: list[Table], note: str) -> SavedRules | None:
    """Add rules that don't exist yet, keeping the others. Raises `RunError` saying why it can't.

    `note`: one line on where they come from. Returns None if there was nothing to add.
    """
    try:
        make_directories(folder, 0o700)
        with locked(folder, _LOCK_WAIT_S):
            texts = _add(Path(os.path.realpath(folder / FILE)), tables, note)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise RunError(f"{folder / FILE}: the rule wasn't saved: {why}. It holds in this run.") from error
    return texts and SavedRules(path=str(folder / FILE), before=texts[0], after=texts[1])


def _add(path: Path, tables: list[Table], note: str) -> tuple[str, str] | None:
    """Add the tables; returns the file's text before and after."""
    old = _text(path)
    there = _tables(old)
    new = [t for t in tables if not any(_same(t, other) for other in there)]
    if not new:
        return None
    heading = f"\n# {' '.join(note.split())}\n[[rule]]\n"
    texts = "".join(heading + "".join(f"{k} = {_toml(v)}\n" for k, v in table.items()) for table in new)
    for table in new:
        to_rule(table, str(path), USER)
    if tomllib.loads(texts).get("rule") != new:
        raise ValueError("it holds characters that TOML can't")
    whole = (old or _HEADER).rstrip("\n") + "\n" + texts
    replace_file(path, whole.encode())
    return old, whole


def _text(path: Path) -> str:
    """Read the file, refusing one that others could have written: saving would make it count."""
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
        return []  # a user's mistake in it is reported at each run; new rules are appended after it
    tables = cast(list[object], found) if isinstance(found, list) else []
    return [cast(Table, t) for t in tables if isinstance(t, dict)]


def _same(new: Table, old: Mapping[str, Any]) -> bool:
    """Whether the old rule allows everything that the new one would."""
    if old.keys() != new.keys():
        return False
    lists = ("modes", "commandPrefix")
    return all(
        set(new[k]) <= set(old[k]) if k in lists and isinstance(old[k], list) else new[k] == old[k]
        for k in new
    )


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
