"""visits: what to do at each kind of node of the parse tree."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from interlock.services.shell import expansions
from interlock.services.shell.conditions import arithmetic, test_command
from interlock.services.shell.model import Word, literal
from interlock.services.shell.redirects import VISITS as REDIRECTS
from interlock.services.shell.redirects import redirected_words
from interlock.services.shell.simple import add_command
from interlock.services.shell.substitutions import expansion, simple_expansion, substitution

if TYPE_CHECKING:
    from tree_sitter import Node

    from interlock.services.shell.walker import Walker

WORDS = frozenset(
    expansions.KINDS
    | {"word", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation", "number"}
    | {"brace_expression", "variable_name", "special_variable_name", "command_name"}
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INDEX = re.compile(r"[\s(]\[(?!\d+\]\+?=)")
_FUNCTION = re.compile(r"[A-Za-z0-9_.:-]+")


def command(walk: "Walker", node: "Node", more: Sequence[Word] = ()) -> None:
    """`more`: words behind a redirection, which the grammar takes for further targets."""
    words: list[Word] = []
    assigns: list[str] = []
    at = node.start_byte
    for child in node.children:
        walk.gap(at, child.start_byte, command=True)
        if child.type not in REDIRECTS and child.start_byte == at != node.start_byte:
            walk.doubt("words that touch")
        at = child.end_byte
        if child.type == "variable_assignment":
            assigns.append(assignment(walk, child))
        elif child.type in WORDS:
            words.append(walk.word(child))
        else:
            if not child.is_named:
                walk.doubt(f"{child.type!r} in a command")
            words += redirected_words(walk, child)
    text = " ".join([walk.source(node).strip(), *(w.text for w in more)])
    add_command(walk.found, [*words, *more], text, assigns)


def redirected_statement(walk: "Walker", node: "Node") -> None:
    more: list[Word] = []
    body: Node | None = None
    at = node.start_byte
    for child in node.children:
        walk.gap(at, child.start_byte, command=True)
        at = child.end_byte
        if child.type in REDIRECTS:
            more += redirected_words(walk, child)
        elif body is None and child.type != "ERROR":
            body = child
        else:
            walk.visit(child)
    if body is not None and body.type == "command":
        command(walk, body, more)
        return
    if body is not None:
        walk.visit(body)
    if more:
        walk.doubt("words behind a redirection")


def assignment(walk: "Walker", node: "Node") -> str:
    """Visit the value; the variable's name."""
    target = node.children[0]
    name = walk.source(target)
    if target.type == "subscript":
        walk.found.arrays = True
        name, _, index = name.partition("[")
        if not index.removesuffix("]").isdigit():
            walk.doubt("an index that is evaluated")
    if _NAME.fullmatch(name) is None:
        walk.doubt(f"{name[:40]!r} is no variable's name")
    walk.sets(name, walk.text[target.end_byte : node.end_byte].partition("=")[2])
    at = target.end_byte
    for child in node.children[1:]:
        if child.start_byte != at:
            walk.doubt("blanks in an assignment")
        at = child.end_byte
        walk.visit(child)
    return name


def variable_assignment(walk: "Walker", node: "Node") -> None:
    walk.assigns(assignment(walk, node), walk.source(node))


def array(walk: "Walker", node: "Node") -> None:
    walk.found.arrays = True
    if _INDEX.search(walk.source(node)):
        walk.doubt("an index that is evaluated")
    walk.children(node)


def declaration(walk: "Walker", node: "Node") -> None:
    words = [literal(walk.source(node.children[0]))]
    at = node.children[0].end_byte
    for child in node.children[1:]:
        walk.gap(at, child.start_byte, command=True)
        if child.start_byte == at:
            walk.doubt("words that touch")
        at = child.end_byte
        if child.type == "variable_assignment":
            walk.found.assigns.append(assignment(walk, child))
            name, sign, _ = walk.source(child).partition("=")
            words.append(Word(walk.source(child), False, name + sign))
        else:
            words.append(walk.word(child))
    add_command(walk.found, words, walk.source(node), [])


def function_definition(walk: "Walker", node: "Node") -> None:
    name = node.child_by_field_name("name")
    if name is None or _FUNCTION.fullmatch(walk.source(name)) is None:
        walk.doubt("a function whose name can't be read")
    walk.children(node)


def for_statement(walk: "Walker", node: "Node") -> None:
    name = node.child_by_field_name("variable")
    if name is None or _NAME.fullmatch(walk.source(name)) is None:
        walk.doubt("a loop whose variable can't be read")
    else:
        walk.sets(walk.source(name), None)
        walk.assigns(walk.source(name), walk.source(node).partition("\n")[0])
    walk.children(node)


def c_style_for(walk: "Walker", node: "Node") -> None:
    walk.doubt("arithmetic with a variable")
    for child in node.children:
        if child.type in ("do_group", "compound_statement"):
            walk.visit(child)
        else:
            walk.inside(child)


def case_item(walk: "Walker", node: "Node") -> None:
    at = node.start_byte
    for place, child in enumerate(node.children):
        walk.gap(at, child.start_byte)
        at = child.end_byte
        if node.field_name_for_child(place) == "value":
            walk.inside(child)
            if child.type in expansions.KINDS:
                walk.visit(child)
        else:
            walk.visit(child)


def compound_statement(walk: "Walker", node: "Node") -> None:
    if node.children and node.children[0].type == "((":
        arithmetic(walk, node)
    else:
        if walk.text[node.start_byte + 1 : node.start_byte + 2] not in ("", *" \t\n("):
            walk.doubt("a brace that belongs to a word")
        walk.children(node)


def comment(walk: "Walker", node: "Node") -> None:
    before = walk.text[: node.start_byte]
    if before.endswith("\\\n") or (before and before[-1] not in " \t\n;&|()"):
        walk.doubt("a comment that bash may read as a word")
    if "\n" in walk.source(node) or walk.text[node.end_byte : node.end_byte + 1] not in ("", "\n"):
        walk.doubt("a comment that ends elsewhere")


VISITS: dict[str, Callable[["Walker", "Node"], None]] = {
    **REDIRECTS,
    "command": command,
    "redirected_statement": redirected_statement,
    "variable_assignment": variable_assignment,
    "array": array,
    "declaration_command": declaration,
    "unset_command": declaration,
    "function_definition": function_definition,
    "for_statement": for_statement,
    "c_style_for_statement": c_style_for,
    "case_item": case_item,
    "compound_statement": compound_statement,
    "test_command": test_command,
    "arithmetic_expansion": arithmetic,
    "expansion": expansion,
    "simple_expansion": simple_expansion,
    "command_substitution": substitution,
    "process_substitution": substitution,
    "comment": comment,
}
