"""words: reads the words of a line as bash does: quoting, expansions, globs. Uncertain ones make the line opaque."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from interlock.services.shell.model import (
    LineFindings,
    LineTooComplex,
    Redirect,
    ShellCommand,
    Word,
    to_name_set,
)

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+\-]+")
_ENDS_WORD = frozenset(" \t\n;|&<>()")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\d|[@*#?$!-])", re.ASCII)
_BRACES = re.compile(r"\$\{(?:#?\w+|\w+(?::?[-+]|%%?|##?)[\w./:@,+*?-]*)\}", re.ASCII)
"""Forms of `${…}` that neither assign nor evaluate, containing a plain word."""
_OF_LINE = re.compile(r"\$[?#(]")
"""An exit code, a count, a number, or what commands of the line print."""
_NAMED = re.compile(r"\$(\w+)|\$\{(\w+)\}", re.ASCII)
_NUMBERS = re.compile(r"\$\(\((?:[\d\s+\-*/%<>=&|^!~,?:]|\([\d\s+\-*/%<>=&|^!~,?:]*\))*\)\)")
_FIXED_TEXT = re.compile(
    r"\$\([ \t]*cat[ \t]*<<[ \t]*'(?P<end>\w+)'[ \t]*\n(?P<text>(?:(?!(?P=end))[^\n]*\n)*)(?P=end)\n[ \t\n]*\)",
    re.ASCII,
)
"""`$(cat <<'EOF' …)`, as which models write messages of several lines: what it prints stands in the line."""
_MISREAD = re.compile(r"['\"`\\#()]") if sys.platform == "darwin" else None
"""bash 3.2 looks for the end of a substitution through quotes, comments and parentheses of a body."""
_SUBSTITUTION = re.compile(r"\$\((?!\()(?!.*<<)[^#\n]*\)", re.DOTALL)
"""Without comments, line breaks or here-documents: bash 5.2 rewrites those and may get other commands."""
_ESCAPES = dict(zip("ntabeEfrv", "\n\t\a\b\x1b\x1b\f\r\v", strict=True))
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|(c.|x\{)|(.))", re.DOTALL
)
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NOT_KNOWN = "\0"
_DELIMITER = re.compile(
    r"[ \t]*(?:(?P<quote>['\"]?)(?P<name>\w+)(?P=quote)|\\(?P<bare>\w+))(?=[\s<>])", re.ASCII
)
_EXPANDS_IN_BODY = re.compile(r"[`\\]|\$[^\w\s]", re.ASCII)
_DEEPEST = 60
"""Maximum nesting of substitutions; beyond it, Python's own stack is at risk."""


@dataclass(slots=True)
class _WordScan:
    """A word that is being read."""

    start: int
    known: list[str] = field(default_factory=list[str])
    """Its value so far, in pieces."""
    lead: str | None = None
    splits: bool = False
    wild: bool = False
    foreign: bool = False
    opened: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Each unquoted `[` and `{`: its position, and the number of pieces before it."""

    def mark_dynamic(self, *, splits: bool = False, wild: bool = False, foreign: bool = True) -> None:
        """Mark what follows as known only at run time."""
        if self.lead is None:
            self.lead = "".join(self.known)
        self.splits, self.wild = self.splits or splits, self.wild or wild
        self.foreign = self.foreign or foreign


@dataclass(frozen=True, slots=True)
class _Document:
    """A here-document whose body is still to come."""

    name: str
    quoted: bool
    tabs: bool
    """`<<-`: leading tabs are stripped."""
    place: int
    """Its place among the line's redirections."""


class WordReader:
    """Reads `text` from `at` on, recording commands in `found`."""

    def __init__(self, text: str, found: LineFindings) -> None:
        self.text, self.found, self.at = text, found, 0
        self.documents: list[_Document] = []
        self.of_line: dict[str, int] = {}
        """Variables of the loops around, whose values stand in the line, and how deep each loop is."""
        self.patterns: set[str] = set()
        """Those of them whose values may be patterns of file names."""
        self._level = 0

    def read_commands(self, *, nested: bool = False) -> None:
        """Read commands to the end; `nested`: up to the `)` of a substitution (not consumed)."""
        raise NotImplementedError

    def record_doubt(self, why: str) -> None:
        """Record that bash may read this differently, or run more than is visible; parsing continues."""
        self.found.mark_opaque(why)

    def read_word(self) -> Word:
        """Read one word, and what its substitutions run."""
        self.found.count_word_against_limit()
        scan = _WordScan(self.at)
        while self.at < len(self.text) and self._read_piece(scan):
            pass
        if self.at == scan.start:
            self.record_doubt(f"{self.text[self.at]!r} where a word should be")
            self.at += 1
        if self.documents and "\n" in self.text[scan.start : self.at]:
            self.record_doubt("a line break within a word behind a here-document")
        return self._to_word(scan)

    def _to_word(self, scan: _WordScan) -> Word:
        source, value = self.text[scan.start : self.at], "".join(scan.known)
        if any(self.text[place] == "{" for place, _ in scan.opened):
            self.found.count_expansion_against_limit(_max_brace_expansions(source) * len(source))
        closing, several = source.rfind("]"), max(source.rfind(","), source.rfind(".."))
        for place, pieces in scan.opened:
            if place - scan.start < (closing if self.text[place] == "[" else several):
                before = "".join(scan.known[:pieces])
                lead = before if scan.lead is None else min(before, scan.lead, key=len)
                names = "~" in source or any(self.text[at] == "[" for at, _ in scan.opened)
                return Word(source, False, lead, True, scan.wild, scan.foreign or names)
        if scan.lead is None:
            return Word(value, True, value)
        return Word(source, False, scan.lead, scan.splits, scan.wild, scan.foreign)

    def _read_piece(self, scan: _WordScan) -> bool:
        """Read a run of plain characters, a quoted piece or an expansion; return False at the end of the word."""
        if plain := _PLAIN.match(self.text, self.at):
            scan.known.append(plain[0])
            self.at = plain.end()
            return True
        match self.text[self.at]:
            case "<" | ">" if self.text.startswith("(", self.at + 1):
                self.record_doubt("a process substitution isn't understood")
                self._read_substitution()
                scan.mark_dynamic()
            case char if char in _ENDS_WORD:
                return False
            case "\\":
                self._read_escape(scan)
            case "'":
                self._read_single_quoted(scan)
            case '"':
                self._read_double_quoted(scan)
            case "$" | "`":
                self._read_dollar_or_backquote(scan, quoted=False)
            case char:
                self._read_special_or_plain_char(scan, char)
        return True

    def _read_special_or_plain_char(self, scan: _WordScan, char: str) -> None:
        if char.isspace():
            self.record_doubt("a blank that isn't one to bash")
        if char in "[{":
            scan.opened.append((self.at, len(scan.known)))
        elif char in "*?":
            scan.mark_dynamic(splits=True)
        elif char == "~" and (self.at == scan.start or self.text[self.at - 1] in ":="):
            scan.mark_dynamic()
        scan.known.append(char)
        self.at += 1

    def _read_escape(self, scan: _WordScan) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        if not after:
            self.record_doubt("it ends with a backslash")
        scan.known.append("" if after == "\n" else after)
        self.at += 2

    def _read_single_quoted(self, scan: _WordScan) -> None:
        close = self.text.find("'", self.at + 1)
        if close < 0:
            self.record_doubt("a quote that isn't closed")
            close = self.at
        scan.known.append(self.text[self.at + 1 : close])
        self.at = close + 1

    def _read_double_quoted(self, scan: _WordScan) -> None:
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return
            if char in "$`":
                self._read_dollar_or_backquote(scan, quoted=True)
            elif char == "\\":
                after = self.text[self.at + 1 : self.at + 2]
                scan.known.append(
                    "" if after == "\n" else after if after and after in '$`"\\' else char + after
                )
                self.at += 2
            else:
                scan.known.append(char)
                self.at += 1
        self.record_doubt("a quote that isn't closed")

    def _read_dollar_or_backquote(self, scan: _WordScan, *, quoted: bool) -> None:
        start, before = self.at, len(self.found.commands)
        if not quoted and self.text.startswith(("$'", '$"'), start):
            self._read_ansi_quoted(scan)
        elif quoted and self._read_heredoc_substitution(scan):
            pass
        elif self._read_expansion():
            # Bash expands braces before it handles quotes within quotes: `"${x:-"{a,b}"}"`.
            source = self.text[start : self.at]
            several = not quoted or "@" in source or (source.startswith("${") and '"' in source)
            scan.mark_dynamic(
                splits=several,
                wild=several,
                foreign=not self._is_value_known_from_line(source, quoted, before),
            )
        else:
            scan.known.append("$")
            self.at += 1

    def _read_heredoc_substitution(self, scan: _WordScan) -> bool:
        """Read a substitution that prints a quoted here-document and does nothing else, if there is one."""
        known = _FIXED_TEXT.match(self.text, self.at)
        if known is None or (_MISREAD and _MISREAD.search(known["text"])):
            return False
        cat = Word("cat", True, "cat")
        self.found.add_command(ShellCommand(known[0], (cat,), needs_no_rule=True))
        scan.known.append(known["text"].rstrip("\n"))
        self.at = known.end()
        return True

    def _is_value_known_from_line(self, source: str, quoted: bool, commands_before: int) -> bool:
        """Return whether the value depends on the line and on what its commands print, and on no file's name.
        Unquoted, bash takes a `*` in it for a pattern. `commands_before`: the number of commands in front of it.

        Unquoted, bash takes a `*` in it for a pattern. `commands_before`: the number of commands in front of it.
        """
        named = _NAMED.fullmatch(source)
        if named:
            name = named[1] or named[2]
            return name in self.of_line and (quoted or name not in self.patterns)
        if not _OF_LINE.match(source):
            return False
        plain = quoted or not source.startswith("$(") or source.startswith("$((")
        return plain or _is_output_free_of_globs(source, self.found.commands[commands_before:])

    def _read_expansion(self) -> bool:
        """Read what `$` or a backquote begins; return False if it stands for itself."""
        known = next(
            (m for form in (_VARIABLE, _BRACES, _NUMBERS) if (m := form.match(self.text, self.at))), None
        )
        if known:
            self.at = known.end()
        elif self.text[self.at] == "`":
            self._read_backquotes()
        elif self.text.startswith(("$[", "${"), self.at):
            self.record_doubt("an expansion that may evaluate a value which is only known when it runs")
            self.at += 2
        elif self.text.startswith("$(", self.at):
            start = self.at
            self._read_substitution()
            if not _SUBSTITUTION.fullmatch(self.text, start, self.at):
                self.record_doubt("arithmetic, or a substitution that isn't a plain $(…)")
        else:
            return False
        return True

    def _read_substitution(self) -> None:
        self._level += 1
        if self._level > _DEEPEST:
            raise LineTooComplex("it is nested too deeply")
        self.at += 2
        self.read_commands(nested=True)
        if self.at >= len(self.text):
            self.record_doubt("a substitution that isn't closed")
        self.at += 1
        self._level -= 1

    def _read_backquotes(self) -> None:
        self.record_doubt("backquotes aren't understood")
        close = self.text.find("`", self.at + 1)
        inner = self.text[self.at + 1 : close if close >= 0 else len(self.text)]
        self.at = close + 1 if close >= 0 else self.at + 1
        self.found.parse_inner_line(inner)

    def _read_ansi_quoted(self, scan: _WordScan) -> None:
        if self.text[self.at + 1] == '"':
            self.record_doubt("a text that is translated, then expanded")
            scan.mark_dynamic()
            self.at += 1
            self._read_double_quoted(scan)
            return
        whole = _ANSI.match(self.text, self.at)
        if whole is None:
            self.record_doubt("a quote that isn't closed")
            self.at += 2
            return
        value = _ESCAPE.sub(_decode_ansi_escape, whole[1])
        if _NOT_KNOWN in value:  # control keys, bytes, NUL, `\x{…}`
            scan.mark_dynamic()
        scan.known.append(value)
        self.at = whole.end()

    # ---- here-documents

    def read_heredoc_delimiter(self, operator: str) -> None:
        """Read the delimiter after `<<`; the body follows at the end of the line."""
        place = len(self.found.redirects)
        self.found.redirects.append(Redirect("text", None))
        delimiter = _DELIMITER.match(self.text, self.at)
        if delimiter is None or self.documents:
            self.record_doubt(
                "several here-documents" if delimiter else "a here-document whose end can't be read"
            )
        if delimiter is None:
            return
        self.at = delimiter.end()
        quoted = bool(delimiter["quote"] or delimiter["bare"])
        self.documents.append(
            _Document(delimiter["name"] or delimiter["bare"], quoted, operator == "<<-", place)
        )

    def read_heredoc_bodies(self) -> None:
        """Read the bodies of the here-documents announced on this line."""
        for document in self.documents:
            closing = re.compile(rf"^{chr(9) + '*' if document.tabs else ''}{document.name}$", re.MULTILINE)
            end = closing.search(self.text, self.at)
            if end is None:
                self.record_doubt("a here-document that isn't closed")
            stop, after = (end.start(), end.end()) if end else (len(self.text), len(self.text))
            body = self.text[self.at : stop]
            if not document.quoted:
                if _EXPANDS_IN_BODY.search(self.text, self.at, stop):
                    self.record_doubt("a here-document that may run something")
                self._record_heredoc_commands(stop)
            known = document.quoted or not set(body) & {*"$`\\"}
            self.found.redirects[document.place] = Redirect("text", None, body if known else None)
            self.at = after
        self.documents.clear()

    def _record_heredoc_commands(self, stop: int) -> None:
        """Record what an unquoted body runs."""
        outside = re.compile(r"[^$`\\]+|\\.?", re.DOTALL)
        while self.at < stop:
            if (plain := outside.match(self.text, self.at, stop)) is not None:
                self.at = plain.end()
            elif not self._read_expansion():
                self.at += 1


def decode_ansi_quoted(inside: str) -> str | None:
    """Return what `$'…'` stands for; None: it isn't known."""
    value = _ESCAPE.sub(_decode_ansi_escape, inside)
    return None if _NOT_KNOWN in value else value


def can_glob_if_expanded_again(word: Word) -> bool:
    """Return whether its value, unquoted once more, may stand for names of files: what is quoted wasn't expanded
    before."""
    return bool(_OF_PATTERNS & set(word.text)) or (not word.literal and bool(_OF_QUOTES & set(word.text)))


_OF_PATTERNS = frozenset("*?[")
_OF_QUOTES = frozenset("\\'\"")
_PRINTS_NUMBERS = to_name_set("wc nproc")
_PRINTS_NAMES = to_name_set("id whoami uname hostname pwd date seq")
"""Without options that take a format, they print what names no file elsewhere."""
_GIT_PRINTS = to_name_set("rev-parse rev-list merge-base branch")
_GIT_SAFE = to_name_set("--short --show-toplevel --abbrev-ref --count --show-current --all --no-merges")
_PIPE = re.compile(r"\$\([^;&\n(){}]*\)")
"""A pipe and nothing else: the last command prints."""


def _is_output_free_of_globs(source: str, commands: Sequence[ShellCommand]) -> bool:
    """Return whether a substitution prints no `*`, `?` or `[`."""
    if not commands:
        return False
    piped = _PIPE.fullmatch(source) and commands[-1].argv[:1] and commands[-1].argv[0] in _PRINTS_NUMBERS
    return bool(piped and _is_output_free_of_file_names(commands[-1])) or all(
        map(_is_output_free_of_file_names, commands)
    )


def _is_output_free_of_file_names(command: ShellCommand) -> bool:
    words = command.argv
    if not words or not command.literal or any(_OF_PATTERNS & set(word) for word in words):
        return False
    if words[0] == "wc":  # it prints the names of its files, too
        return all(word.startswith("-") for word in words[1:])
    if words[0] == "git":
        known = all(w in _GIT_SAFE for w in words[2:] if w.startswith("-"))
        return known and len(words) > 1 and words[1] in _GIT_PRINTS
    if words[0] == "seq":
        return all(re.fullmatch(r"-?\d+", word) for word in words[1:])
    return words[0] in _PRINTS_NAMES | _PRINTS_NUMBERS


_SEQUENCE = re.compile(r"\{(-?\d+|\w)\.\.(-?\d+|\w)(?:\.\.(-?\d+))?\}", re.ASCII)


def _max_brace_expansions(source: str) -> int:
    """Return at most how many words braces make of one, without regard to quotes and nesting."""
    times = 1
    for first, last, step in _SEQUENCE.findall(source):
        numbers = [int(end) if end.lstrip("-").isdigit() else ord(end) for end in (first, last)]
        times *= abs(numbers[0] - numbers[1]) // max(abs(int(step or 1)), 1) + 1
    opened: list[int] = []
    for char in source:
        if char == "{":
            opened.append(1)
        elif char == "}" and opened:
            times *= opened.pop()
        elif char == "," and opened:
            opened[:] = [count + 1 for count in opened]
    return times


def _decode_ansi_escape(match: re.Match[str]) -> str:
    octal, two, four, eight, control, other = match.groups()
    many = four or eight
    if other is not None:
        return _ESCAPES.get(other, other if other in "\\'\"?" else "\\" + other)
    if control is not None:
        return _NOT_KNOWN
    code = int(octal, 8) if octal else int(two or many, 16)
    # Bytes from 0x80 on combine with their neighbours into characters.
    known = 0 < code < 0x80 or (many and code < 0x110000 and not 0xD800 <= code < 0xE000)
    return chr(code) if known else _NOT_KNOWN
