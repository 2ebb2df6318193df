"""arguments: a call's arguments as `argsPattern` sees them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import cast

from pydantic import JsonValue

from interlock.services.policy.rule import ADMIN, USER, Rule
from interlock.state.calls import CallView, Risk
from interlock.state.text import clean
from interlock.state.tooling import Workspace
from interlock.state.workspace import Protection

_PLAN_FILE = "planFile"
_PATH_WORDS = ("path", "file", "directory", "folder", "source", "destination")
_PATH_NAMES = frozenset({"dir", "cwd"})
_CHANGES: frozenset[Risk] = frozenset({"write", "execute"})


def searchable(args: Mapping[str, JsonValue]) -> str:
    """JSON with sorted keys and a NUL on both sides of each top-level pair: a pattern can name a whole pair.

    Empty for a call without arguments: no pattern meets it (gemini-cli's rule).
    """
    if not args:
        return ""
    pairs = (f"\0{_json(k)}:{_json(args[k])}\0" for k in sorted(args))
    return clean("{" + ",".join(pairs) + "}")


def _json(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def meets(rule: Rule, args: Mapping[str, JsonValue], about: str | None) -> bool:
    """Whether a call that is no shell line meets a rule's conditions. `about`: the file or host, if it can be told."""
    if rule.prefixes or rule.command is not None:
        return False
    if rule.target is not None:
        return rule.target == about
    return rule.args is None or (bool(args) and rule.args.found(searchable(args)))


def protection(call: CallView, risk: Risk, workspace: Workspace) -> Protection | None:
    """Why what a call would change isn't the model's to write; None: it may be, or the call changes no file."""
    if risk not in _CHANGES:
        return None
    paths = (value for name, value in leaves("", call.args) if is_path(name.rpartition(".")[2]))
    return next((found for path in paths if (found := workspace.protected(path))), None)


def names_it(rule: Rule, call: CallView, about: str | None, protected: Protection) -> bool:
    """Whether a rule of the user or the admin allows a change of just this: by its path, or by a pattern that the
    same arguments with another name in its place don't meet."""
    if rule.tier not in (USER, ADMIN) or rule.decision != "allow" or not meets(rule, call.args, about):
        return False
    if rule.target is not None:
        return True
    other = "x" + PurePath(protected.part).suffix
    return rule.args is not None and not rule.args.found(
        searchable(call.args).replace(json.dumps(protected.part, ensure_ascii=False)[1:-1], other)
    )


def leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    """(dotted name, text) of every text among arguments."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list):
        for item in cast(list[object], value):
            yield from leaves(name, item)
    elif isinstance(value, dict):
        for key, item in cast(dict[str, object], value).items():
            yield from leaves(f"{name}.{key}" if name else key, item)


def is_path(name: str) -> bool:
    """Whether an argument is a path, by its name."""
    folded = name.casefold()
    return folded in _PATH_NAMES or any(word in folded for word in _PATH_WORDS)


def with_plan_file(
    hints: Mapping[str, JsonValue], call: CallView, risk: Risk, mode: str, workspace: Workspace
) -> Mapping[str, JsonValue]:
    """Whether the call writes the run's plan. Only we say so, no server."""
    own = {k: v for k, v in hints.items() if k != _PLAN_FILE}
    path = call.args.get("file_path")
    if mode == "plan" and risk == "write" and isinstance(path, str) and workspace.plan_file(path) is not None:
        return {**own, _PLAN_FILE: True}
    return own
