"""from_settings: the rules that `tools.allowed` and `tools.exclude` stand for."""

import re
from collections.abc import Iterable

from interlock.services.policy.fields import SHELL_ALIASES, SHELL_TOOLS, usable_tool_name, words
from interlock.services.policy.load import Problem, stand_in
from interlock.services.policy.rule import USER, Rule
from interlock.state.calls import Decision
from interlock.state.settings import Settings

_ALLOWED = 300
_EXCLUDED = 400
"""Priorities within the user tier (gemini-cli: 4.3 and 4.4)."""
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


def settings_rules(settings: Settings) -> tuple[list[Rule], list[Problem]]:
    """An entry that can't be read allows nothing; in `tools.exclude` it makes everything ask."""
    denied, wrong = _entries("tools.exclude", settings.tools.exclude, "deny")
    allowed, also_wrong = _entries("tools.allowed", settings.tools.allowed, "allow")
    return denied + allowed, wrong + also_wrong


def _entries(setting: str, entries: Iterable[str], decision: Decision) -> tuple[list[Rule], list[Problem]]:
    rules: list[Rule] = []
    problems: list[Problem] = []
    for entry in entries:
        source = f"settings {setting} {entry!r}"
        try:
            rules.append(_rule(entry, source, decision))
        except ValueError as error:
            effect = "everything asks until it is right" if decision == "deny" else "it allows nothing"
            problems.append(Problem(source, str(error), effect))
            if decision == "deny":
                rules.append(stand_in(source, USER, ("*",), str(error)))
    return rules, problems


def _rule(entry: str, source: str, decision: Decision) -> Rule:
    narrowed = _CALL.fullmatch(entry.strip())
    name = narrowed[1] if narrowed else entry.strip()
    name = SHELL_ALIASES.get(name, name)
    prefix = narrowed[2].strip() if narrowed else ""
    if not usable_tool_name(name):
        raise ValueError(f"{name!r} is no tool's name")
    if prefix and name not in SHELL_TOOLS:
        raise ValueError("only run_shell_command(…) can be narrowed by a command prefix")
    return Rule(
        source=source,
        tools=(name,),
        decision=decision,
        tier=USER,
        priority=_ALLOWED if decision == "allow" else _EXCLUDED,
        prefixes=(words(prefix),) if prefix else (),
    )
