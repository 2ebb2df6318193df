"""saved: always-choices that outlive their run, as rules in a file of the user's that later runs read."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from interlock.services.files.filesystem import locked, make_directories, replace_file
from interlock.services.policy.fields import to_rule
from interlock.services.policy.load import RuleTextError, read_rules
from interlock.services.policy.prefixes import works_alike_everywhere
from interlock.services.policy.rule import USER
from interlock.state.calls import SessionRule
from interlock.state.errors import RunError

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
