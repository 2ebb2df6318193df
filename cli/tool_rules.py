"""tool_rules: what is typed after --allowed-tools, in our names and in Claude Code's."""

import re

from interlock.state.tool_names import OTHER_NAMES


def tool_rules(values: list[str]) -> list[str]:
    """`Bash(git log:*) Edit, glob` → our names; commas and spaces inside parentheses belong to the rule."""
    found = [m for value in values for m in re.findall(r"[^\s,(]+(?:\([^)]*\))?", value)]
    return [_our_name(text) for text in found]


def _our_name(text: str) -> str:
    name, bracket, rest = text.partition("(")
    name = OTHER_NAMES.get(name, name)
    return f"{name}({rest.removesuffix(')').removesuffix(':*').removesuffix(' *')})" if bracket else name
