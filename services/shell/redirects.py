"""redirects: redirections of the parse tree, and the words behind them that belong to the command."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from interlock.services.shell.heredoc import heredoc_problem, quoted
from interlock.services.shell.model import Redirect, Word

if TYPE_CHECKING:
    from tree_sitter import Node

    from interlock.services.shell.walker import Walker

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%,+=-]*")
_DESCRIPTOR = re.compile(r"\d+-?|-")

_GLUED = re.compile(r"(?:^|[\s;|&()<>`{])\d+\Z|\}\Z")


def redirected_words(walk: "Walker", node: "Node") -> list[Word]:
    """Note a redirection; the words after its target, which the grammar takes for more targets."""
    if node.type == "file_redirect":
        return _file(walk, node)
    if node.type == "heredoc_redirect":
        return _document(walk, node)
    if node.type == "herestring_redirect":
        walk.found.redirects.append(Redirect("text", None))
        walk.children(node)
    else:
        walk.visit(node)
    return []


def _file(walk: "Walker", node: "Node") -> list[Word]:
    words: list[Word] = []
    operator = ""
    at = end = node.start_byte
    for child in node.children:
        walk.gap(at, child.start_byte, command=True)
        at = child.end_byte
        if not child.is_named:
            walk.token(child)
            operator = child.type
        elif child.type == "file_descriptor":
            _check_descriptor(walk, child)
        else:
            if words and child.start_byte == end:
                walk.doubt("words that touch")
            words.append(walk.word(child))
            end = child.end_byte
    _check_before(walk, node)
    if operator.endswith("-"):  # `>&-` takes no target: what follows is the command's
        walk.found.redirects.append(Redirect("duplicate", None))
        return words
    target = words[0] if words else None
    if operator.endswith("&") and target is not None and target.text.startswith("-") and target.text != "-":
        walk.doubt("words that touch")
    if "&" in operator and target is not None and _expanded_twice(target):
        walk.doubt("a redirection that bash expands twice")
    walk.found.redirects.append(Redirect(_kind(operator, target), target))
    return words[1:]


def _check_before(walk: "Walker", node: "Node") -> None:
    """`{fd}>f` sets a variable; digits right before an operator are its descriptor, also where the grammar differs."""
    if node.children[0].type != "file_descriptor" and _GLUED.search(walk.text, 0, node.start_byte):
        walk.doubt("a descriptor that was read as a word")


def _check_descriptor(walk: "Walker", node: "Node") -> None:
    """In `a-2>f` and `a2>f` the number belongs to the word before it."""
    before = walk.text[: node.start_byte][-1:]
    if not walk.source(node).isdigit() or before not in ("", *" \t\n;|&(){}<>`"):
        walk.doubt("a descriptor that may be part of a word")


def _expanded_twice(target: Word) -> bool:
    """`>&'$(…)'` runs what is quoted (bash 5.2): the name of a file behind `>&` is expanded once more."""
    return not target.literal or _PLAIN.fullmatch(target.text) is None


def _kind(operator: str, target: Word | None) -> Literal["read", "write", "duplicate", "text"]:
    if target is None or (
        operator.endswith("&") and target.literal and _DESCRIPTOR.fullmatch(target.text)
    ):  # not `&>2`, which writes a file of that name
        return "duplicate"
    return "read" if operator.startswith("<") else "write"


def _document(walk: "Walker", node: "Node") -> list[Word]:
    walk.found.redirects.append(Redirect("text", None))
    _check_before(walk, node)
    problem = heredoc_problem(walk.text, node)
    if problem is not None:
        walk.doubt(problem)
    more: list[Word] = []
    start = ""
    at = node.start_byte
    for place, child in enumerate(node.children):
        walk.gap(at, child.start_byte)
        at = child.end_byte
        if child.type == "heredoc_start":
            start = walk.source(child)
        elif child.type == "heredoc_body":
            if not quoted(start):
                walk.inside(child)
        elif child.type == "file_redirect":
            more += _file(walk, child)
        elif node.field_name_for_child(place) == "argument":
            more.append(walk.word(child))
        elif child.type != "heredoc_end":
            walk.visit(child)
    return more


def _alone(walk: "Walker", node: "Node") -> None:
    if redirected_words(walk, node):
        walk.doubt("words behind a redirection")


VISITS: dict[str, Callable[["Walker", "Node"], None]] = {
    "file_redirect": _alone,
    "heredoc_redirect": _alone,
    "herestring_redirect": _alone,
}
