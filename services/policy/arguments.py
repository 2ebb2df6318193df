"""arguments: a call's arguments as `argsPattern` sees them."""

import json
from collections.abc import Mapping

from pydantic import JsonValue

from interlock.services.policy.rule import Rule
from interlock.state.calls import CallView, Risk
from interlock.state.text import clean
from interlock.state.tooling import Workspace

_PLAN_FILE = "planFile"


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


def with_plan_file(
    hints: Mapping[str, JsonValue], call: CallView, risk: Risk, mode: str, workspace: Workspace
) -> Mapping[str, JsonValue]:
    """Whether the call writes the run's plan. Only we say so, no server."""
    own = {k: v for k, v in hints.items() if k != _PLAN_FILE}
    path = call.args.get("file_path")
    if mode == "plan" and risk == "write" and isinstance(path, str) and workspace.plan_file(path) is not None:
        return {**own, _PLAN_FILE: True}
    return own
