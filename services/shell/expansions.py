"""expansions: what of the parse tree is an expansion, and which ones can be seen through."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

KINDS = frozenset(
    ("command_substitution", "process_substitution", "arithmetic_expansion", "expansion", "simple_expansion")
)
_NESTED = frozenset(("command_substitution", "process_substitution", "arithmetic_expansion"))
_OPENS = re.compile(r"\$[(\[]|`|[<>]\(")
_NUMBERS = re.compile(r"[\d\s+\-*/%()<>=&|^!~,?:]*")
_BRACES = re.compile(
    r"\$\{#?(?:\w+|[@*#?$!-])(?:\[(?:[@*]|\d+)\])?"
    r"(?::?[-+?=].*|##?.*|%%?.*|/.*|\^\^?.*|,,?.*|: ?-?\d+(?:: ?-?\d+)?)?\}",
    re.DOTALL,
)
_ASSIGNS = re.compile(r"\$\{(\w+):?=")


def start_of(node: "Node", text: str) -> int:
    """Where an expansion begins: the grammar counts blanks before it in."""
    start = node.start_byte
    while start < node.end_byte and text[start] in " \t\n":
        start += 1
    return start


def outermost(node: "Node") -> Iterator["Node"]:
    """The expansions in a word, not those within them. Not recursive: `a && a && …` nests as deep as it is long."""
    pending = [node]
    while pending:
        inner = pending.pop()
        if inner.type in KINDS:
            yield inner
        else:
            pending.extend(reversed(inner.children))


def complete(node: "Node", text: str) -> bool:
    """Whether the tree shows every substitution that the source of `node` may hold.

    For places with quoting rules of their own. Counts those in single quotes too: doubt makes it opaque.
    """
    written = [m[0] for m in _OPENS.finditer(text, node.start_byte, node.end_byte)]
    if not written:
        return True
    backticks = written.count("`")
    return len(written) - backticks + (backticks + 1) // 2 <= _count(node)


def _count(node: "Node") -> int:
    count, pending = 0, [node]
    while pending:
        inner = pending.pop()
        count += inner.type in _NESTED
        pending.extend(inner.children)
    return count


def arithmetic_problem(node: "Node", text: str) -> str | None:
    """A variable's value is evaluated as arithmetic, where `a[$(…)]` runs a command: only numbers are seen through."""
    bare = text[node.start_byte : node.end_byte].strip().removeprefix("$").strip("[]")
    return None if _NUMBERS.fullmatch(bare) else "arithmetic with a value that is only known when it runs"


def braces_problem(source: str) -> str | None:
    """`${…}`: forms that evaluate the value itself can't be seen through."""
    return (
        None
        if _BRACES.fullmatch(source)
        else f"{source[:40]!r} evaluates a value that is only known when it runs"
    )


def closes_early(node: "Node", text: str) -> bool:
    """Bash ends `${x/a{b}` at its first brace; the grammar may end it at a later one."""
    at, rest = node.start_byte, ""
    for child in node.children:
        for part in outermost(child):
            rest += text[at : part.start_byte]
            at = part.end_byte
    rest = (rest + text[at : node.end_byte]).strip()
    return "{" in rest[2:] or "}" in rest[:-1]


def assigned_by(source: str) -> str | None:
    """The variable that `${name:=value}` sets."""
    match = _ASSIGNS.match(source)
    return match[1] if match else None
