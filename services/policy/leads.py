"""leads: the plain texts that all matches of a pattern begin with, as far as that is plain to see."""

import re

_MOST = 32
_PLAIN = re.compile(r"[\w _\-/=,:@%]+", re.ASCII)
_CHOICE = re.compile(r"\((?:\?:)?([\w _\-/=,:@%]+(?:\|[\w _\-/=,:@%]+)*)\)(?![*?{+])", re.ASCII)
"""A group of plain alternatives that must be met."""
_OPTIONAL = "*?{"


def leads_of(pattern: str) -> tuple[str, ...]:
    """Every match begins with one of them; `("",)`: with anything."""
    if _alternatives(pattern):
        return ("",)
    body = pattern.removeprefix("(?s)").removeprefix("^")
    leads, at = [""], 0
    while len(leads) <= _MOST:
        plain = _PLAIN.match(body, at)
        choice = None if plain else _CHOICE.match(body, at)
        if plain is not None:
            cut = plain.end() < len(body) and body[plain.end()] in _OPTIONAL
            leads = [lead + (plain[0][:-1] if cut else plain[0]) for lead in leads]
            if cut:
                break
            at = plain.end()
        elif choice is not None:
            leads = [lead + one for lead in leads for one in choice[1].split("|")]
            at = choice.end()
        else:
            break
    return tuple(leads) if len(leads) <= _MOST else ("",)


def _alternatives(pattern: str) -> bool:
    """It may begin in another way (`a|b`), or ignore case."""
    depth, at = 0, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            if pattern[at + 1 : at + 2] == "Q":  # quotes up to `\E`
                return True
            at += 1
        elif char == "[" or (char == "|" and depth == 0):
            # What a class holds isn't looked into: `[|]` is no alternative, and is taken for one.
            if "|" in pattern[at:]:
                return True
        elif char in "()":
            depth += 1 if char == "(" else -1
        at += 1
    return bool(re.search(r"\(\?(?!:|s\))", pattern))
