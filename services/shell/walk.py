"""walk: the parse tree of a line → what it would run. Only constructs that are listed here are seen through.

Whatever else stands in the tree makes the line opaque, and so does doubt: the source is read beside the tree, since
the grammar isn't bash's own. Commands are collected from all of it, so that what is denied is found anywhere.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from interlock.services.shell.commands import add_command
from interlock.services.shell.model import Found, Redirect, ShellCommand, TooMuch, Word, literal, names
from interlock.services.shell.variables import assignment_problem, sets_clause
from interlock.services.shell.words import HEREDOC_PARTS, document_problem, read_word, split_words

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 60
"""Nested nodes; beyond, Python's own stack is at risk."""
_EXPANSIONS = names(
    "command_substitution process_substitution arithmetic_expansion expansion simple_expansion"
)
_WORDS = _EXPANSIONS | names(
    "word string raw_string ansi_c_string translated_string concatenation number brace_expression variable_name"
    " special_variable_name command_name"
)
_STRUCTURE = names(
    "program list pipeline subshell do_group if_statement elif_clause else_clause while_statement negated_command"
    " variable_assignments"
)
_REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_BLANK_IN_COMMAND = re.compile(r"(?:\\\n)*[ \t](?:[ \t]|\\\n)*")
_BLANK = re.compile(r"(?:\\\n)*[ \t\n](?:[ \t\n]|\\\n)*")
"""A line continuation alone separates nothing."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\d|[@*#?$!-])")
_BRACES = re.compile(r"\$\{(?:#?\w+|\w+(?::?[-+]|%%?|##?)[\w./:@,+*?-]*)\}", re.ASCII)
"""Forms of `${…}` that neither assign nor evaluate, with a plain word in them."""
_NUMBERS = re.compile(r"\$\(\([\d\s+\-*/%()<>=&|^!~,?:]*\)\)")
_SUBSTITUTION = re.compile(r"\$\((?!\()(?!.*<<)[^#\n]*\)", re.DOTALL)
"""Not with comments, line breaks or here-documents: bash 5.2 writes those anew and may come to other commands."""
_OPERAND = r"(?:[\w./:@%+,*?-]*[\w./:@%+,*?]|\"?\$\{?\w+\}?\"?|\"[\w ./:@%+,-]*\"|'[^']*')"
_CONDITION = re.compile(
    rf"\[\[ (?:! )?(?:-[defhnrswxzL] {_OPERAND}|{_OPERAND} (?:==?|!=|<|>) {_OPERAND}) \]\]", re.ASCII
)
_DESCRIPTOR = re.compile(r"\d+-?|-")
_GLUED = re.compile(r"(?:^|[\s;|&()<>`{])\d+\Z|\}\Z")
_BACKQUOTED = re.compile(r"`([^`]*)`")


class Walk:
    """One line; what is met goes to `found`."""

    def __init__(self, text: str, found: Found, *, sound: bool) -> None:
        """`sound`: the tree has no errors. With errors the line is opaque, and what can be seen is kept."""
        self._text = text
        self._found = found
        self._sound = sound
        self._level = 0
        self._heredocs = 0
        self._visits: Mapping[str, Callable[[Node], None]] = {
            "command": self._command,
            "redirected_statement": self._redirected,
            "variable_assignment": self._assign,
            "declaration_command": self._declaration,
            "unset_command": self._declaration,
            "for_statement": self._for,
            "test_command": self._test,
            "compound_statement": self._group,
            "subshell": self._subshell,
            "expansion": self._braces,
            "simple_expansion": lambda n: self._only(n, _VARIABLE, "a variable that can't be read"),
            "arithmetic_expansion": self._arithmetic,
            "command_substitution": self._substitution,
            "comment": self._comment,
            **dict.fromkeys(_REDIRECTS, self._lone_redirect),
        }
        if not sound:
            found.blur("it isn't valid bash, or not bash that can be parsed here")

    def program(self, root: "Node") -> None:
        self._gap(0, root.start_byte)
        self._gap(root.end_byte, len(self._text))
        self._visit(root)

    def _visit(self, node: "Node") -> None:
        if not node.is_named:
            self._token(node)
            return
        self._found.count()
        self._level += 1
        if self._level > _DEEPEST:
            raise TooMuch("it is nested too deeply")
        kind = node.type
        if kind in self._visits:
            self._visits[kind](node)
        elif kind in _WORDS and kind != "process_substitution":
            self._word(node)
        else:
            if kind not in _STRUCTURE:
                self._doubt(f"{kind.replace('_', ' ')} isn't understood")
            self._children(node)
        self._level -= 1

    def _children(self, node: "Node") -> None:
        """Visit all, and see that nothing but blanks lies between."""
        named = False
        for child, touches in self._parts(node, command=False):
            if child.type in (";;", ";&", ";;&"):
                self._doubt(f"{child.type!r} isn't understood")
            if named and child.is_named and touches:
                self._doubt("parts that touch")
            named = child.is_named
            self._visit(child)

    def _parts(self, node: "Node", *, command: bool = True) -> Iterator[tuple["Node", bool]]:
        """The children, each with whether it touches the one before; else nothing but blanks lies between."""
        at = node.start_byte
        for child in node.children:
            self._gap(at, child.start_byte, command=command)
            yield child, child.start_byte == at != node.start_byte
            at = child.end_byte

    def _gap(self, start: int, end: int, *, command: bool = False) -> None:
        """See that nothing but blanks lies there; `command`: within a command, which a newline would end."""
        blank = _BLANK_IN_COMMAND if command else _BLANK
        if start != end and blank.fullmatch(self._text, start, end) is None:
            self._doubt("a part that the parser left out")

    def _token(self, node: "Node") -> None:
        """See that an operator is what it was read as: the grammar's own scanner may take in what is before it."""
        if self._source(node).strip() != node.type.strip():
            self._doubt(f"{self._source(node)[:40]!r} was read as {node.type!r}")

    def _doubt(self, why: str) -> None:
        """Bash may read this in another way, or evaluate more than can be seen: the line is opaque."""
        if self._sound:
            self._found.blur(why)

    def _source(self, node: "Node") -> str:
        return self._text[_start(node, self._text) : node.end_byte]

    def _only(self, node: "Node", form: re.Pattern[str], otherwise: str) -> None:
        if form.fullmatch(self._source(node)) is None:
            self._doubt(otherwise)

    def _word(self, node: "Node") -> Word:
        """What a word stands for; the substitutions in it are visited."""
        spans = self._spans(node)
        word = read_word(self._text, _start(node, self._text), node.end_byte, spans)
        if word is None:
            self._doubt("quoting that can't be read")
            return Word(self._source(node), False, "", True, True)
        return word

    def _spans(self, node: "Node") -> dict[int, int]:
        """Visit the outermost expansions of a node. Not recursive: `a && a && …` nests as deep as it is long."""
        spans: dict[int, int] = {}
        pending = [node]
        while pending:
            inner = pending.pop()
            if inner.type in _EXPANSIONS:
                spans[_start(inner, self._text)] = inner.end_byte
                self._visit(inner)
            else:
                pending.extend(reversed(inner.children))
        return spans

    def _inside(self, node: "Node") -> None:
        """What is run in a place with quoting rules of its own."""
        for child in node.children:
            self._spans(child)
        for hidden in _BACKQUOTED.findall(self._source(node)):
            self._found.deeper(hidden)

    def _braces(self, node: "Node") -> None:
        source = self._source(node)
        if _BRACES.fullmatch(source) is None:
            self._doubt(f"{source[:40]!r} may evaluate a value that is only known when it runs")
            self._inside(node)

    def _arithmetic(self, node: "Node") -> None:
        self._only(node, _NUMBERS, "arithmetic with a value that is only known when it runs")
        self._inside(node)

    def _substitution(self, node: "Node") -> None:
        self._only(node, _SUBSTITUTION, "a substitution that isn't a plain $(…)")
        self._children(node)

    def _command(self, node: "Node", more: Sequence[Word] = ()) -> None:
        """`more`: words behind a redirection, which the grammar takes for further targets."""
        words: list[Word] = []
        assigns: list[str] = []
        for child, touches in self._parts(node):
            if touches and child.type not in _REDIRECTS:
                self._doubt("words that touch")
            if child.type == "variable_assignment":
                assigns.append(self._assignment(child))
            elif child.type in _WORDS:
                if child.type == "process_substitution":
                    self._doubt("a process substitution isn't understood")
                words.append(self._word(child))
            else:
                if not child.is_named:
                    self._doubt(f"{child.type!r} in a command")
                words += self._redirect(child)
        if words and words[0].text == "time" and self._text[node.start_byte : node.start_byte + 4] != "time":
            self._doubt("a program called time")
        text = " ".join([self._source(node).strip(), *(w.text for w in more)])
        add_command(self._found, [*words, *more], text, assigns)

    def _redirected(self, node: "Node") -> None:
        more: list[Word] = []
        body: Node | None = None
        for child, _ in self._parts(node):
            if child.type in _REDIRECTS:
                more += self._redirect(child)
            elif body is None and child.type != "ERROR":
                body = child
            else:
                self._visit(child)
        if body is not None and body.type == "command":
            self._command(body, more)
            return
        if body is not None:
            self._visit(body)
        if more:
            self._doubt("words behind a redirection")

    def _assignment(self, node: "Node") -> str:
        """Visit the value; the variable's name."""
        target = node.children[0]
        name = self._source(target)
        value = self._text[target.end_byte : node.end_byte].partition("=")[2]
        problem = assignment_problem(name, value)
        if problem is not None:
            self._doubt(problem)
        at = target.end_byte
        for child in node.children[1:]:
            if child.start_byte != at:
                self._doubt("blanks in an assignment")
            at = child.end_byte
            self._visit(child)
        return name.partition("[")[0]

    def _assign(self, node: "Node") -> None:
        """For what comes after."""
        name = self._assignment(node)
        self._found.assigns.append(name)
        clause = sets_clause(name)
        if clause is not None:
            self._found.add(ShellCommand(self._source(node), (), (name,), danger=clause))

    def _declaration(self, node: "Node") -> None:
        words: list[Word] = []
        for child, touches in self._parts(node):
            if touches:
                self._doubt("words that touch")
            if child == node.children[0]:
                words.append(literal(self._source(child)))
            elif child.type == "variable_assignment":
                self._found.assigns.append(self._assignment(child))
                words.append(literal(self._source(child)))
            else:
                words.append(self._word(child))
        add_command(self._found, words, self._source(node), [])

    def _for(self, node: "Node") -> None:
        name = node.child_by_field_name("variable")
        variable = "" if name is None else self._source(name)
        if node.children[0].type != "for" or assignment_problem(variable, "x") or sets_clause(variable):
            self._doubt("a loop whose variable may change what commands do")
        self._children(node)

    def _test(self, node: "Node") -> None:
        opening = node.children[0].type
        if opening == "[":
            # It is a command: what bash takes for an operator ends it, whatever the grammar says.
            spans = self._spans(node)
            words = split_words(self._text, node.start_byte + 1, node.end_byte, spans)
            if words is None:
                self._doubt("an operator within [ ]")
            add_command(self._found, [literal("["), *(words or ())], self._source(node), [])
            return
        if opening == "[[":
            self._only(node, _CONDITION, "a condition that may evaluate a value")
        else:
            self._doubt("arithmetic isn't understood")
        self._inside(node)

    def _group(self, node: "Node") -> None:
        if not node.children or node.children[0].type != "{":
            self._doubt("arithmetic isn't understood")
            self._inside(node)
            return
        if self._text[node.start_byte + 1 : node.start_byte + 2] not in ("", *" \t\n("):
            self._doubt("a brace that belongs to a word")
        self._children(node)

    def _subshell(self, node: "Node") -> None:
        # After `!` the grammar takes it for two subshells; bash evaluates it, and the values of what it names.
        if self._text.startswith("((", node.start_byte):
            self._doubt("arithmetic isn't understood")
        self._children(node)

    def _comment(self, node: "Node") -> None:
        before = self._text[: node.start_byte]
        if before.endswith("\\\n") or (before and before[-1] not in " \t\n;&|()"):
            self._doubt("a comment that bash may read as a word")
        if "\n" in self._source(node) or self._text[node.end_byte : node.end_byte + 1] not in ("", "\n"):
            self._doubt("a comment that ends elsewhere")

    def _lone_redirect(self, node: "Node") -> None:
        if self._redirect(node):
            self._doubt("words behind a redirection")

    def _redirect(self, node: "Node") -> list[Word]:
        """Note a redirection; the words after its target, which the grammar takes for more targets."""
        if node.type == "file_redirect":
            return self._file(node)
        if node.type == "heredoc_redirect":
            return self._document(node)
        if node.type == "herestring_redirect":
            self._found.redirects.append(Redirect("text", None))
            self._children(node)
        else:
            self._visit(node)
        return []

    def _file(self, node: "Node") -> list[Word]:
        words: list[Word] = []
        operator = ""
        for child, touches in self._parts(node):
            if not child.is_named:
                self._token(child)
                operator = child.type
            elif child.type == "file_descriptor":
                self._descriptor(child)
            else:
                if words and touches:
                    self._doubt("words that touch")
                words.append(self._word(child))
        self._before(node)
        if operator.endswith("-"):  # `>&-` takes no target: what follows is the command's
            self._found.redirects.append(Redirect("duplicate", None))
            return words
        target = words[0] if words else None
        self._found.redirects.append(Redirect(self._kind(operator, target), target))
        return words[1:]

    def _kind(self, operator: str, target: Word | None) -> Literal["read", "write", "duplicate"]:
        if target is None:
            return "duplicate"
        if operator in (">&", "<&"):
            if target.literal and _DESCRIPTOR.fullmatch(target.text):
                return "duplicate"
            # Bash 5.2 expands the name of a file behind `>&` twice.
            self._doubt("a redirection that bash expands twice")
        return "read" if operator.startswith("<") else "write"

    def _before(self, node: "Node") -> None:
        """`{fd}>f` sets a variable; digits right before an operator are its descriptor, whatever the tree says."""
        if node.children[0].type != "file_descriptor" and _GLUED.search(self._text, 0, node.start_byte):
            self._doubt("a descriptor that was read as a word")

    def _descriptor(self, node: "Node") -> None:
        """In `a-2>f` and `a2>f` the number belongs to the word before it."""
        before = self._text[: node.start_byte][-1:]
        if not self._source(node).isdigit() or before not in ("", *" \t\n;|&(){}<>`"):
            self._doubt("a descriptor that may be part of a word")

    def _document(self, node: "Node") -> list[Word]:
        self._found.redirects.append(Redirect("text", None))
        self._before(node)
        self._heredocs += 1
        problem = document_problem(self._text, node)
        if problem is not None or self._heredocs > 1:
            self._doubt(problem or "several here-documents")
        more: list[Word] = []
        for place, (child, _) in enumerate(self._parts(node, command=False)):
            if child.type == "heredoc_body":
                self._inside(child)
            elif child.type == "file_redirect":
                more += self._file(child)
            elif node.field_name_for_child(place) == "argument":
                more.append(self._word(child))
            elif not child.is_named or child.type not in HEREDOC_PARTS:
                self._visit(child)
        return more


def _start(node: "Node", text: str) -> int:
    """Where it begins: the grammar counts blanks before it in."""
    start = node.start_byte
    while start < node.end_byte and text[start] in " \t\n":
        start += 1
    return start
