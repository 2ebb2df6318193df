"""code_definitions: detect a file's language, and find its functions, classes and similar definitions with their lines.

Definitions need the extra `code`: tree-sitter and its grammars.
"""

import time
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query, Tree

EXTRA = "a person can run: interlock install code"


@cache
def load_languages() -> Mapping[str, Mapping[str, str]]:
    """Return every language, by the name that filters use, with what `languages.toml` says of it."""
    return tomllib.loads(Path(__file__).with_name("languages.toml").read_text("utf-8"))


@cache
def grammar_modules() -> Mapping[str, str]:
    """Language → module of its grammar."""
    return {name: language["grammar"] for name, language in load_languages().items() if "grammar" in language}


@cache
def _languages_by_file_name() -> Mapping[str, str]:
    """Return the whole name of a file, or `*` and its suffix → the language."""
    rows = load_languages().items()
    suffixes = {f"*.{end}": name for name, row in rows for end in row.get("suffixes", "").split()}
    return {**suffixes, **{file: name for name, row in rows for file in row.get("names", "").split()}}


def detect_language(path: str | PurePath) -> str | None:
    """Return the language of a file, by its name alone; None: not source code by its name."""
    pure = PurePath(path)
    return _languages_by_file_name().get(pure.name.lower()) or _languages_by_file_name().get(
        f"*{pure.suffix.lower()}"
    )


def is_parser_installed() -> bool:
    """Return whether the extra `code` is installed."""
    return find_spec("tree_sitter") is not None


class Definition(NamedTuple):
    """One definition with its 1-based first and last line."""

    name: str
    """As written; empty if anonymous."""
    start: int
    end: int


_MAY_HOLD_SEVERAL = frozenset({"lexical_declaration", "variable_declaration", "type_declaration"})
_NAMED_BY = ("name", "declarator", "left", "type")
"""Fields leading to a definition's name, likeliest first."""
_PIECE = 1 << 16
_LONGEST_S = 2.0
"""CPU seconds for the parser; a typical 1 MiB file takes a fifth."""
_WIDEST = 5_000
"""Sibling nodes in unparsable code: queries are quadratic in them (measured: 100,000 take 8 s)."""


def find_definitions(source: bytes, language: str) -> list[Definition]:
    """Return definitions in textual order, nested ones included; none for languages without a grammar, or without the
    extra. Unparsable parts are skipped: a broken file yields its intact parts, one that takes too long nothing.

    Unparsable parts are skipped: a broken file yields its intact parts, one that takes too long nothing.
    """
    if language not in grammar_modules() or not is_parser_installed():
        return []
    captured = _capture_nodes(*_load_grammar(language), source)
    around = {
        child.id: outer
        for outer in captured.get("around", [])
        for child in outer.named_children
        if outer.type not in _MAY_HOLD_SEVERAL or outer.named_child_count == 1
    }
    nodes = sorted(captured.get("it", []), key=lambda node: (node.start_byte, -node.end_byte))
    return [definition for node in nodes if (definition := _to_definition(node, around)).name]


def _capture_nodes(grammar: "Language", query: "Query", source: bytes) -> "dict[str, list[Node]]":
    """Return the nodes that a query captures, by capture; none if the source takes too long or is too broken."""
    from tree_sitter import QueryCursor

    tree = _parse_source(grammar, source)
    if tree is None or (tree.root_node.has_error and _has_oversized_error_node(tree)):
        return {}
    return QueryCursor(query).captures(tree.root_node)


def _parse_source(grammar: "Language", source: bytes) -> "Tree | None":
    """Return the tree of a source; None: it takes too long."""
    from tree_sitter import Parser

    until = time.thread_time() + _LONGEST_S

    def late(*_: object) -> bool:
        return time.thread_time() > until

    parser = Parser(grammar)  # a new one: sharing a parser between threads crashes the process
    try:
        return parser.parse(lambda at, _: source[at : at + _PIECE], progress_callback=late)
    except ValueError:
        return None


def find_first_syntax_error(source: bytes, language: str) -> int | None:
    """Return the 1-based line of the first error that tree-sitter finds; None: there is none, or no grammar for it."""
    if language not in grammar_modules() or not is_parser_installed():
        return None
    tree = _parse_source(_load_grammar(language)[0], source)
    if tree is None or not tree.root_node.has_error:
        return None
    node = tree.root_node
    while below := next((child for child in node.children if child.has_error), None):
        node = below
    return node.start_point.row + 1


def _has_oversized_error_node(tree: "Tree") -> bool:
    cursor = tree.walk()
    while True:
        node = cursor.node
        if node is not None and node.is_error and node.child_count > _WIDEST:
            return True
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return False


@cache
def _load_grammar(language: str) -> "tuple[Language, Query]":
    from tree_sitter import Language, Query

    row = load_languages()[language]
    pointer: object = getattr(import_module(row["grammar"]), row.get("entry", "language"))()
    grammar = Language(pointer)
    return grammar, Query(grammar, _definitions_query(language))


def _definitions_query(language: str) -> str:
    row = load_languages()[language]
    return (_definitions_query(row["as"]) if "as" in row else "") + row.get("definitions", "")


def _to_definition(node: "Node", wrappers_by_child: "dict[int, Node]") -> Definition:
    whole = node
    while (
        whole.id in wrappers_by_child
    ):  # not `parent`, which searches from the root: 40,000 definitions took 8 s
        whole = wrappers_by_child[whole.id]
    end = whole.end_point
    last = end.row if end.column else end.row - 1
    return Definition(_definition_name(node), whole.start_point.row + 1, last + 1)


def _definition_name(node: "Node") -> str:
    """Return a definition's name: follow declarators to the identifier, as in `int *(*f)(void)`."""
    while True:
        named = next((found for field in _NAMED_BY if (found := node.child_by_field_name(field))), None)
        if named is None:
            named = next((child for child in node.named_children if child.type.endswith("identifier")), None)
        if named is None and node.type == "parenthesized_declarator":
            named = next(iter(node.named_children), None)
        if named is None or named.text is None:
            return ""
        if named.child_by_field_name("declarator") is None and named.type != "parenthesized_declarator":
            return named.text.decode("utf-8", "replace").partition("\n")[0].strip()
        node = named
