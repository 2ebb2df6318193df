"""parse: parses a line of bash into the simple commands that it would run.

Reads a plain subset of bash exactly as bash does; anything else makes the line opaque. Commands of an opaque line are
still collected, so that a deny rule matches anywhere.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from interlock.services.shell.commands import add_command_with_inner_commands
from interlock.services.shell.model import (
    LineFindings,
    LineTooComplex,
    Redirect,
    ShellCommand,
    ShellLine,
    Word,
    assignment_label,
    assignment_problem,
    describe_variable_danger,
    literal_word,
)
from interlock.services.shell.words import WordReader, can_glob_if_expanded_again
from interlock.state.text import make_visible

LONGEST = 20_000
"""Maximum characters of a line that is parsed."""
_DEEPEST = 5
"""Maximum nesting of `bash -c`."""
_GLUED = re.compile(r"(?<![ \t\n])\\\n|\\\n#")
"""Bash removes the line break and continues the same word, operator or comment; people read two."""


@lru_cache(maxsize=256)
def parse_shell_line(line: str) -> ShellLine:
    """Return every simple command in `line`. Never raises; the line is marked opaque if not fully understood."""
    found = LineFindings(_parse_line_into)
    _parse_line_into(line, found)
    assigns = tuple(dict.fromkeys(found.assigns))
    return ShellLine(
        line,
        tuple(found.commands),
        tuple(found.redirects),
        assigns,
        found.opaque,
        found.hidden,
        found.spawns_in_loop,
        tuple(found.values),
        found.partly_unparsed,
    )


def parse_command_words(words: Sequence[Word]) -> Sequence[ShellCommand]:
    """Return every command that runs where these words are one, as at the beginning of a line."""
    found = LineFindings(_parse_line_into)
    try:
        add_command_with_inner_commands(found, words, " ".join(word.text for word in words), ())
    except LineTooComplex as much:
        found.mark_opaque(str(much))
    return found.commands


def _parse_line_into(line: str, found: LineFindings) -> None:
    """Add what `line` would run to `found`."""
    reason = _unparsable_reason(line, found.depth)
    if reason is not None:
        found.mark_opaque(reason)
        found.partly_unparsed = True
        return
    try:
        _CommandReader(line, found).read_commands()
    except LineTooComplex as much:
        found.mark_opaque(str(much))
        found.partly_unparsed = True


def _unparsable_reason(line: str, depth: int) -> str | None:
    if len(line) > LONGEST:
        return f"it has {len(line)} characters, more than {LONGEST}"
    if depth > _DEEPEST:
        return "shells in shells, too deep"
    if make_visible(line) != line:  # bash and people read it differently
        return "it has control or invisible characters, or letters that look like others"
    return "a line break within a word" if _GLUED.search(line) else None


_BLANK = re.compile(r"(?:[ \t]|\\\n)*")
_OPERATOR = re.compile(r"&&|\|\||\|&|;;&|;;|;&|[;|&\n()]")
_REDIRECTION = re.compile(r"(\d{0,3}|\{\w*\})(<<<|<<-?|<>|<&|<|>&|>>|>\||>)(?!\()|()(&>>?)", re.ASCII)
_DESCRIPTOR = re.compile(r"\d+-?")
_CLOSES_DESCRIPTOR = re.compile(r"[ \t]*-(?=[\s;|&()]|$)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=", re.ASCII)
_SUBSCRIPT = re.compile(r"[A-Za-z_]\w*\[", re.ASCII)
_BEFORE_ASSIGNMENTS = frozenset({"time", "-p", "--"})
"""Words of a command that assignments may follow: `time` is a keyword."""
_FOR = re.compile(r"[ \t]+(\w+)(?=[ \t\n;])(?:[ \t\n]+(in)(?=[ \t\n;])|[ \t]*;)?", re.ASCII)
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")
_OPERAND = r"(?:[\w./:@%+,*?-]*[\w./:@%+,*?]|\$\w+|\$\{\w+\}|\"(?:\$?\w|\$\{\w+\}|[ ./:@%+,-])*\"|'[^']*')"
_CONDITION = re.compile(
    rf"\[\[ (?:! )?(?:-[defhnrswxzL] {_OPERAND}|{_OPERAND} (?:==?|!=|<|>) {_OPERAND}) \]\](?=[\s;|&)]|$)",
    re.ASCII,
)
_KEYWORDS: dict[str, tuple[Sequence[str], str]] = {
    "{": ((), "{"),
    "if": ((), "if"),
    "while": ((), "while"),
    "until": ((), "while"),
    "then": (("if",), "then"),
    "elif": (("then",), "if"),
    "else": (("then",), "else"),
    "do": (("while",), "do"),
    "fi": (("then", "else"), ""),
    "done": (("do",), ""),
    "}": (("{",), ""),
    "esac": (("case",), ""),
}
"""Keyword → what must be open before it, and what it opens: nothing for closing keywords."""


@dataclass(slots=True)
class _ParserState:
    """The parser's position within the commands of a program."""

    open: list[str] = field(default_factory=list[str])
    """Compound commands that haven't ended."""
    words: list[Word] = field(default_factory=list[Word])
    assigns: list[str] = field(default_factory=list[str])
    start: int = 0
    end: int = 0
    """`start` and `end` delimit the simple command's text."""
    begun: bool = False
    """Part of a simple command was read: no keyword can follow."""
    closed: bool = False
    """A compound command has ended: an operator or a redirection must follow."""
    owed: bool = False
    """`&&`, `|`, `!` …: a command must follow."""
    functions: bool = False
    """A function was read: what is in it may run several times."""

    @property
    def may_repeat(self) -> bool:
        """Whether a command here may run several times in one shell: a subshell in a loop is a new one each time."""
        inner = self.open[len(self.open) - self.open[::-1].index("(") :] if "(" in self.open else self.open
        return self.functions or not {"while", "do"}.isdisjoint(inner)


class _CommandReader(WordReader):
    state: _ParserState
    loops: int = 0
    """Loops around the substitution that is being read."""

    def read_commands(self, *, nested: bool = False) -> None:
        outer, self.state = getattr(self, "state", None), _ParserState()
        loops, self.loops = self.loops, self.loops + (outer.open.count("do") if outer else 0)
        documents, self.documents = self.documents, []
        while True:
            self._skip_blanks()
            char = self.text[self.at : self.at + 1]
            if not char or (char == ")" and nested and not {"(", "case"} & {*self.state.open}):
                break
            if char == "#":
                self._skip_to("\n")
            elif (redirection := _REDIRECTION.match(self.text, self.at)) is not None:
                self._read_redirection(redirection)
            elif (operator := _OPERATOR.match(self.text, self.at)) is not None:
                self._read_operator(operator[0])
            else:
                self._read_command_word()
        self._end_command()
        if self.state.open or self.state.owed or self.documents:
            self.record_doubt("it ends before a command, a compound command or a here-document does")
        self.documents = documents
        self.loops = loops
        if outer is not None:
            self.state = outer

    def _skip_blanks(self) -> None:
        if (blank := _BLANK.match(self.text, self.at)) is not None:
            self.at = blank.end()

    def _skip_to(self, end: str) -> None:
        found = self.text.find(end, self.at)
        self.at = found if found >= 0 else len(self.text)

    def _end_command(self) -> None:
        place, words = self.state, self.state.words
        text = self.text[place.start : place.end]
        if words and words[0].text == "time" and not text.startswith("time"):
            self.record_doubt("a program called time")
        self.found.may_repeat = place.may_repeat
        if words:
            add_command_with_inner_commands(self.found, words, text, place.assigns)
        for name in () if words else place.assigns:
            self.found.assigns.append(name)
            if clause := describe_variable_danger(name):
                self.found.add_command(ShellCommand(text, (), (name,), danger=clause))
        place.words, place.assigns, place.begun = [], [], False

    def _begin_command(self, start: int) -> None:
        place = self.state
        if place.closed:
            self.record_doubt("words behind a compound command")
        if not place.begun:
            place.start = start
        place.begun, place.closed, place.owed = True, False, False

    def _read_operator(self, operator: str) -> None:
        place = self.state
        if operator == "(":
            self._read_open_parenthesis()
            return
        self.at += len(operator)
        if place.owed and operator != "\n":
            self.record_doubt(f"{operator!r} where a command should be")
        if operator == ")" and place.open[-1:] == ["case"]:
            place.words.clear()  # a pattern
        if not (place.begun or place.closed) and operator not in "\n)":
            self.record_doubt(f"{operator!r} without a command")
        self._end_command()
        self.found.piped = self.found.piped or operator in ("|", "|&")
        self.found.spawns_in_loop = self.found.spawns_in_loop or (operator == "&" and self._is_in_loop())
        place.closed = operator == ")" and place.open[-1:] == ["("]
        place.owed = operator in ("&&", "||", "|", "|&") or (place.owed and operator == "\n")
        if place.closed:
            place.open.pop()
        elif operator in (")", ";;", ";&", ";;&"):
            self.record_doubt(f"{operator!r} isn't understood here")
        if operator == "\n":
            self.read_heredoc_bodies()
        elif self.documents:
            self.record_doubt("a here-document that isn't alone on its line")

    def _is_in_loop(self) -> bool:
        return self.loops > 0 or not {"while", "do"}.isdisjoint(self.state.open)

    def _read_open_parenthesis(self) -> None:
        place = self.state
        function = _FUNCTION.match(self.text, self.at)
        if function or place.begun or place.closed:
            self.record_doubt("a function, or a parenthesis behind a word")
            place.functions = place.functions or function is not None
            if function and len(place.words) == 1:
                place.words = []
            self._end_command()
        elif self.text.startswith("((", self.at):
            self.record_doubt("arithmetic isn't understood")
        self.at = function.end() if function else self.at + 1
        place.open += [] if function else ["("]
        place.closed = place.owed = False

    def _read_command_word(self) -> None:
        place, start = self.state, self.at
        if not place.begun and self.text.startswith("[[", start) and self._read_bracket_condition():
            return
        assignment = None if place.words else _ASSIGNMENT.match(self.text, start)
        if _SUBSCRIPT.match(self.text, start) and {w.text for w in place.words} <= _BEFORE_ASSIGNMENTS:
            self.record_doubt(
                "an array element: bash reads blanks and operators in its subscript as part of the word"
            )
        word = self.read_word()
        bare = word.literal and word.text == self.text[start : self.at]
        if bare and not place.begun and self._read_keyword(word.text):
            return
        self._begin_command(start)
        place.end = self.at
        if assignment is None:
            place.words.append(word)
            return
        name = assignment[1]
        if self.text.startswith("(", self.at):
            self.at += 1
            self.found.values += [(name, one) for one in self._read_words_to(")")]
            self.at = min(self.at + 1, len(self.text))
        value = self.text[assignment.end() : self.at]
        place.assigns.append(assignment_label(name, value))
        known = literal_word(word.text.partition("=")[2]) if word.literal else Word(value, False)
        if assignment[0].endswith("+="):
            before = next((v for n, v in reversed(self.found.values) if n == name), literal_word(""))
            whole = literal_word(before.text + known.text) if before.literal and known.literal else known
            known = whole if before.literal else before
        self.found.values.append((name, known))
        if problem := assignment_problem(name, value):
            self.record_doubt(problem)

    # ---- compound commands

    def _read_keyword(self, word: str) -> bool:
        """Read a keyword if bash takes the word for one here; return whether it does."""
        place = self.state
        if word == "!":
            place.owed = True
        elif word in ("for", "case", "function"):
            {
                "for": self._read_for_header,
                "case": self._read_case_header,
                "function": self._read_function_name,
            }[word]()
        elif word in _KEYWORDS:
            needed, opened = _KEYWORDS[word]
            if needed and not {*needed} & {*place.open[-1:]}:
                self.record_doubt(f"{word!r} where a command should be")
            elif needed:
                place.open.pop()
            if place.closed or (place.owed and needed):
                self.record_doubt(f"{word!r} behind a compound command or an operator")
            if word == "done":
                self.of_line = {n: depth for n, depth in self.of_line.items() if depth < len(place.open)}
            place.open += [opened] if opened else []
            place.closed, place.owed = not opened, False
        else:
            return False
        return True

    def _read_for_header(self) -> None:
        """Read `for x in …`, or `for x` without words."""
        head = _FOR.match(self.text, self.at)
        name = head[1] if head else ""
        if head is None or assignment_problem(name, "x") or describe_variable_danger(name):
            self.record_doubt("a loop whose variable may change what commands do")
        self.at = head.end() if head else self.at
        if head and head[2]:
            words = self._read_words_to(";\n")
            self.found.values += [(name, word) for word in words]
            if self._is_loop_variable_set_once(name) and not any(w.depends_on_environment for w in words):
                self.of_line[name] = len(self.state.open)
                self.patterns |= {name} if any(map(can_glob_if_expanded_again, words)) else set()
        elif self.text.startswith("((", self.at + 1):
            self._skip_to("))")
            self._read_words_to("\n;")
        self.state.open.append("while")
        self.state.closed, self.state.owed = bool(head and head[2]), False

    def _is_loop_variable_set_once(self, name: str) -> bool:
        """Return whether nothing but one loop gives the variable a value."""
        others = re.search(rf"\b({name}\+?=|read\b)", self.text)
        return others is None and len(re.findall(rf"\bfor[ \t]+{name}\b", self.text)) == 1

    def _read_case_header(self) -> None:
        self.record_doubt("case isn't understood")
        while (
            self.at < len(self.text)
            and self.text[self.at] not in ";\n"
            and self._read_next_word().text != "in"
        ):
            pass
        self.state.open.append("case")

    def _read_function_name(self) -> None:
        self.record_doubt("a function isn't understood")
        self.state.functions = True
        self._read_next_word()

    def _read_next_word(self) -> Word:
        self._skip_blanks()
        return self.read_word() if self.at < len(self.text) else Word("", True, "")

    def _read_bracket_condition(self) -> bool:
        """Parse `[[ … ]]` if it evaluates nothing; otherwise record doubt and parse only its substitutions."""
        known = _CONDITION.match(self.text, self.at)
        if known is None and self.text[self.at + 2 : self.at + 3] not in (" ", "\t", "\n"):
            return False
        self._begin_command(self.at)
        if known:
            self.at = known.end()
        else:
            self.record_doubt("a condition that may evaluate a value")
            self.at += 2
            self._read_words_to("\n", "]]")
        self.state.begun, self.state.closed = False, True
        return True

    def _read_words_to(self, ends: str, last: str = "") -> list[Word]:
        """Read words that belong to no command: up to one of `ends` (not consumed), or past the word `last`."""
        words: list[Word] = []
        while True:
            self._skip_blanks()
            char = self.text[self.at : self.at + 1]
            if not char or char in ends:
                return words
            if char in "#;|&<>()\n" and not self.text.startswith(("<(", ">("), self.at):
                self.record_doubt(f"{char!r} among words")
                self.at += 1
                continue
            words.append(self.read_word())
            if words[-1].text == last != "":
                return words

    # ---- redirections

    def _read_redirection(self, match: re.Match[str]) -> None:
        descriptor, operator = match[1] or "", match[2] or match[4]
        before = self.text[self.at - 1 : self.at]
        if descriptor.startswith("{") or (self.state.begun and (before.isdigit() or before in ("-", "}"))):
            self.record_doubt("a descriptor that may be part of a word, or sets a variable")
        if operator in ("<>", "&>>"):  # to bash 3.2 of macOS, `&>>f` begins another command
            self.record_doubt(f"{operator!r} isn't understood")
        closed = self.state.closed
        self.state.closed = False
        self._begin_command(self.at)
        self.state.begun, self.state.closed = not closed, closed
        self.at = match.end()
        if operator in ("<<", "<<-"):
            self.read_heredoc_delimiter(operator)
        elif operator in (">&", "<&") and (closes := _CLOSES_DESCRIPTOR.match(self.text, self.at)):
            self.at = closes.end()
            self.found.redirects.append(Redirect("duplicate", None))
        else:
            self._read_redirection_target(operator)

    def _read_redirection_target(self, operator: str) -> None:
        self._skip_blanks()
        if self.text[self.at : self.at + 1] in ("", *"\n;|&()#"):
            self.record_doubt("a redirection without a target")
            return
        target = self.read_word()
        if operator == "<<<":
            self.found.redirects.append(Redirect("text", None, target.text if target.literal else None))
        elif operator in (">&", "<&") and target.literal and _DESCRIPTOR.fullmatch(target.text):
            self.found.redirects.append(Redirect("duplicate", target))
        else:
            if operator in (">&", "<&"):  # bash 5.2 expands a file name after `>&` twice
                self.record_doubt("a redirection that bash expands twice")
            self.found.redirects.append(Redirect("read" if operator in ("<", "<&") else "write", target))
