"""conditions: `[ ]`, `[[ ]]`, `(( ))` and other arithmetic of the parse tree."""

import re
from typing import TYPE_CHECKING

from interlock.services.shell import expansions
from interlock.services.shell.model import literal
from interlock.services.shell.simple import add_command
from interlock.services.shell.words import split_words

if TYPE_CHECKING:
    from tree_sitter import Node

    from interlock.services.shell.walker import Walker

_COMPARES = re.compile(r"-(?:eq|ne|lt|le|gt|ge)(?![\w-])")
_NUMBER = r"(?:-?\d+|\"?\$[#?]\"?|\"?\$\{#\w+\}\"?)"
_NUMBERS = re.compile(rf"(?:^|(?<!\\)[\s(]){_NUMBER}[ \t]+-(?:eq|ne|lt|le|gt|ge)[ \t]+{_NUMBER}(?=[\s)]|$)")


def test_command(walk: "Walker", node: "Node") -> None:
    opening = node.children[0].type
    if opening == "[":
        _bracket(walk, node)
    elif opening == "[[":
        _conditional(walk, node)
    else:
        arithmetic(walk, node)


def _bracket(walk: "Walker", node: "Node") -> None:
    """`[` is a command: what bash takes for an operator ends it, whatever the grammar says."""
    spans: dict[int, int] = {}
    for part in expansions.outermost(node):
        spans[expansions.start_of(part, walk.text)] = part.end_byte
        walk.visit(part)
    words = split_words(walk.text, node.start_byte + 1, node.end_byte, spans)
    if words is None:
        walk.doubt("an operator within [ ]")
    add_command(walk.found, [literal("["), *(words or ())], walk.source(node), [])


def _conditional(walk: "Walker", node: "Node") -> None:
    inner = walk.source(node)[2:-2]
    if re.search(r"[;\n]|\]\]\s", inner):
        walk.doubt("a condition that can't be read")
    if len(_COMPARES.findall(inner)) != len(_NUMBERS.findall(inner)):
        walk.doubt("a comparison that evaluates values")
    if re.search(r"(^|\s)-[vR]\s", inner):
        walk.doubt("a condition that evaluates a name")
    walk.inside(node)


def arithmetic(walk: "Walker", node: "Node") -> None:
    problem = expansions.arithmetic_problem(node, walk.text)
    if problem is not None:
        walk.doubt(problem)
    walk.inside(node)
