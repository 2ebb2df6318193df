"""walk: the parse tree of a line → what it would run. The source is read beside the tree: doubt makes it opaque."""

import re
from typing import TYPE_CHECKING

from interlock.services.shell import expansions, visits
from interlock.services.shell.found import Found, TooMuch
from interlock.services.shell.model import ShellCommand, Word
from interlock.services.shell.variables import evaluated, sensitive
from interlock.services.shell.words import read_word

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 60
"""Nested nodes; beyond, Python's own stack is at risk."""
_BLANK_IN_COMMAND = re.compile(r"(?:\\\n)*[ \t](?:[ \t]|\\\n)*")
_BLANK = re.compile(r"(?:\\\n)*[ \t\n](?:[ \t\n]|\\\n)*")
"""A line continuation alone separates nothing."""
_CASE_ENDS = frozenset((";;", ";&", ";;&"))
_BACKQUOTED = re.compile(r"`([^`]*)`")
_STRUCTURE = frozenset(
    {"program", "list", "pipeline", "subshell", "do_group", "if_statement", "elif_clause", "else_clause"}
    | {
        "while_statement",
        "negated_command",
        "variable_assignments",
        "case_statement",
        "process_substitution",
    }
)


class Walk:
    """Implements `Walker`; what it meets goes to `found`."""

    def __init__(self, text: str, found: Found, *, sound: bool) -> None:
        """`sound`: the tree has no errors. With errors the line is opaque, and what can be seen is kept."""
        self.text = text
        self.found = found
        self._sound = sound
        self._level = 0
        if not sound:
            found.blur("it isn't valid bash, or not bash that can be parsed here")

    def program(self, root: "Node") -> None:
        self.gap(0, root.start_byte)
        self.gap(root.end_byte, len(self.text))
        self.visit(root)

    def visit(self, node: "Node") -> None:
        if not node.is_named:
            self.token(node)
            return
        self.found.count()
        self._level += 1
        if self._level > _DEEPEST:
            raise TooMuch("it is nested too deeply")
        kind = node.type
        visit = visits.VISITS.get(kind)
        if visit is not None:
            visit(self, node)
        elif kind in _STRUCTURE:
            self.children(node)
        elif kind in visits.WORDS:
            self.word(node)
        else:
            self.doubt(f"{kind.replace('_', ' ')} isn't understood")
            self.children(node)
        self._level -= 1

    def children(self, node: "Node") -> None:
        at, named = node.start_byte, False
        for child in node.children:
            self.gap(at, child.start_byte)
            if child.type in _CASE_ENDS:
                self.doubt(f"{child.type!r} outside of a case")
            if named and child.is_named and child.start_byte == at:
                self.doubt("parts that touch")
            at, named = child.end_byte, child.is_named
            self.visit(child)

    def gap(self, start: int, end: int, *, command: bool = False) -> None:
        blank = _BLANK_IN_COMMAND if command else _BLANK
        if start != end and blank.fullmatch(self.text, start, end) is None:
            self.doubt("a part that the parser left out")

    def token(self, node: "Node") -> None:
        if self.source(node).strip() != node.type.strip():
            self.doubt(f"{self.source(node)[:40]!r} was read as {node.type!r}")

    def doubt(self, why: str) -> None:
        if self._sound:
            self.found.blur(why)

    def source(self, node: "Node") -> str:
        return self.text[node.start_byte : node.end_byte]

    def word(self, node: "Node") -> Word:
        spans: dict[int, int] = {}
        start = node.start_byte
        if node.child_count:
            start = expansions.start_of(node, self.text)
            for part in expansions.outermost(node):
                spans[expansions.start_of(part, self.text)] = part.end_byte
                self.visit(part)
        word = read_word(self.text, start, node.end_byte, spans)
        if word is None:
            self.doubt("quoting that can't be read")
            return Word(self.source(node), False, "", True, True)
        return word

    def inside(self, node: "Node") -> None:
        self.found.count(node.descendant_count // 8)
        if not expansions.complete(node, self.text):
            self.doubt("a substitution that can't be read")
            for hidden in _BACKQUOTED.findall(self.source(node)):
                self.found.deeper(hidden)
        for child in node.children:
            for part in expansions.outermost(child):
                self.visit(part)

    def sets(self, name: str, value: str | None) -> None:
        why = evaluated(name, value)
        if why is not None:
            self.doubt(why)

    def assigns(self, name: str, text: str) -> None:
        self.found.assigns.append(name)
        if sensitive(name):
            why = f"sets {name}, which changes what other commands do"
            self.found.add(ShellCommand(text, (), (name,), danger=why))
