"""rule_conditions: when a rule file counts, as its front matter says in the words of its program."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

from interlock.services.context.front_matter import to_flag, to_list, to_text
from interlock.services.files.agent_files import AgentFiles

When = Literal["always", "matching", "described", "named", "never"]
"""Always, with a file that its patterns match, when the model finds its description fitting, only where somebody names
it, or not for an agent that writes code."""
_PATTERNS = ("paths", "globs", "applyTo")
"""Fields that hold patterns of files, in the words of Claude Code and Cline, Cursor and Windsurf, and Copilot."""
_TRIGGERS: Mapping[str, When] = {
    "always_on": "always",
    "glob": "matching",
    "model_decision": "described",
    "manual": "named",
}
"""Windsurf's words."""
_EVERYTHING = frozenset({"*", "**", "**/*"})
_MOST_PATTERNS = 200
_LONGEST_PATTERN = 1_000


class RuleCondition(NamedTuple):
    """When a rule file counts."""

    when: When
    patterns: tuple[str, ...] = ()
    description: str = ""
    unknown: tuple[str, ...] = ()
    """Names of fields that mean nothing here."""


def read_rule_condition(row: AgentFiles, fields: Mapping[str, Any]) -> RuleCondition:
    """Return when a rule of this row counts, by the fields that its program knows."""
    known = {name: fields[name] for name in row.fields if name in fields}
    unknown = tuple(name for name in fields if name not in {*row.fields, *row.inert})
    named = next((name for name in _PATTERNS if name in known), None)
    patterns = tuple(to_list(known[named])[:_MOST_PATTERNS]) if named else ()
    description = " ".join(to_text(known.get("description")).split())
    return RuleCondition(
        _decide_when(row, known, patterns, named, description), patterns, description, unknown
    )


def _decide_when(
    row: AgentFiles, known: Mapping[str, Any], patterns: Sequence[str], named: str | None, description: str
) -> When:
    if "coding-agent" in to_list(known.get("excludeAgent")):
        return "never"
    word = _TRIGGERS.get(to_text(known.get("trigger")))
    if to_flag(known.get("alwaysApply")) or word == "always":
        return "always"
    if word and word != "matching":
        return word
    if patterns:
        # `applyTo: **` means every request in Copilot; elsewhere it means every file.
        return "always" if named == "applyTo" and not _EVERYTHING.isdisjoint(patterns) else "matching"
    if named and known[named] == [] and row.default == "always":
        return "named"
    if row.default == "named":
        return "described" if description else "named"
    return row.default


def matches_patterns(path: str, patterns: Sequence[str], bare: Literal["root", "anywhere"]) -> bool:
    """Return whether a path, relative to the folder of the rules, matches one of the patterns."""
    return any(
        (found := _compile_pattern(pattern, bare)) is not None and found.fullmatch(path) is not None
        for pattern in patterns
    )


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str, bare: Literal["root", "anywhere"]) -> Any:
    """Return a pattern of paths as a regular expression; None: it matches nothing."""
    text = pattern.removeprefix("./").lstrip("/")
    if not text or len(text) > _LONGEST_PATTERN:
        return None
    if bare == "anywhere" and "/" not in pattern:
        text = f"**/{text}"
    if text.endswith("/"):
        text += "**"
    import re2  # pyright: ignore[reportMissingTypeStubs] # late: few folders have such rules

    module = cast(Any, re2)  # in linear time, whatever the pattern
    options = module.Options()
    options.log_errors = False
    try:
        return module.compile(_translate(text), options)
    except module.error:
        return None


def _translate(pattern: str) -> str:
    """Return the regular expression of `*`, `**`, `?`, `[…]` and `{…,…}`."""
    pieces: list[str] = []
    place = depth = 0
    while place < len(pattern):
        c = pattern[place]
        if pattern.startswith("**/", place) and (place == 0 or pattern[place - 1] in "/{,"):
            pieces.append("(?:[^/]+/)*")
            place += 3
            continue
        if c == "*":
            while pattern.startswith("**", place):
                place += 1
                c = "**"
            pieces.append(".*" if c == "**" else "[^/]*")
        elif c == "?":
            pieces.append("[^/]")
        elif c == "[" and (end := pattern.find("]", place + 2)) > 0:
            inside = pattern[place + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            pieces.append(f"[{'^' + inside[1:] if inside[0] in '!^' else inside}]")
            place = end
        elif c == "{" and "}" in pattern[place:]:
            depth += 1
            pieces.append("(?:")
        elif c == "}" and depth:
            depth -= 1
            pieces.append(")")
        else:
            pieces.append("|" if c == "," and depth else re.escape(c))
        place += 1
    return "(?s)" + "".join(pieces) + ")" * depth
