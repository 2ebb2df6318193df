"""grant_coverage: what a grant covers: the command that was shown, and what `commands.toml` lists beside it.

Known are harmless arguments, not dangerous ones: an option that the table doesn't list must be as it was shown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from interlock.services.policy.plain_reading import LineReading, load_command_table
from interlock.services.shell.model import HARMLESS_VARIABLES, ShellCommand, Word, literal_word, to_name_set

NameSet = Annotated[frozenset[str], BeforeValidator(lambda v: frozenset(v.split()))]
Kinds = Annotated[tuple[str, ...], BeforeValidator(lambda v: tuple(v.split()))]
_KINDS: Mapping[str, re.Pattern[str]] = {
    "number": re.compile(r"\d+(\.\d+)?(ms|[smhd])?"),
    "word": re.compile(r"(?!-).*", re.DOTALL),
    "name": re.compile(r"\w[\w.-]*"),
    "range": re.compile(r"\d+(,\d+)?p"),
    "format": re.compile(r"\+.*", re.DOTALL),
}
_TEST = re.compile(
    r"(test_.*|.*_test|tests?)\.py|(.*_(spec|test)|test_.*)\.(rb|exs)|.*Test\.php|.*[.-](test|spec)\.[cm]?[jt]sx?"
)
_LINE_NUMBERS = re.compile(r"(:\d+)+$")
_TEST_NAME = re.compile(r"((?:(?!test)\w+\.)*)test\w*(?:\.\w+)*", re.IGNORECASE)
"""A module, class or method; first the packages above it, which Python runs."""
_PACKAGE = re.compile(r"\.(/[\w.-]+)*?(/\.\.\.)?")
SETS = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PLAIN_VALUE = re.compile(r"\d{0,4}|yes|no|true|false|on|off", re.IGNORECASE)
_PLAIN_WORD = re.compile(r"\w[\w:.-]*")
Pair = tuple[str, str]
"""An option and its value; an operand's option is empty."""


class GrantRow(BaseModel, extra="forbid", frozen=True, defer_build=True):
    """One subcommand of the table, with its harmless arguments; fields as `commands.toml` explains them."""

    run: tuple[str, ...]
    covers: str
    """In words, behind "also"; empty: nothing."""
    flags: NameSet = frozenset()
    shown: NameSet = frozenset()
    keep: NameSet = frozenset()
    options: dict[str, str] = Field(default_factory=dict[str, str])
    operands: Kinds = ()
    rest: NameSet | None = None
    variables: NameSet = frozenset()
    cluster: bool = True
    """Whether letters may stand together: `-xq`."""
    reading: bool = False
    anything: bool = False

    def parse_arguments(self, words: Sequence[Word]) -> "ParsedArguments | None":
        """Return the arguments, sorted; None if one isn't listed."""
        given, words = ParsedArguments(), list(words)
        while words:
            word = words.pop(0)
            if word.literal and word.text == "--":
                return replace(given, rest=(*words,)) if self.rest is not None else None
            if not word.known_start.startswith("-") or word.text == "-":
                if word.may_be_option and (word.may_start_differently or word.known_start):
                    return None
                given = given.with_operand_or_assignment(word, self.variables)
            elif not word.literal or (read := self._parse_option(word.text, words)) is None:
                return None
            else:
                flags, valued = read
                given = replace(given, flags=given.flags | flags, valued=(*given.valued, *valued))
        return given

    def _parse_option(
        self, text: str, following_words: list[Word]
    ) -> tuple[frozenset[str], tuple[Pair, ...]] | None:
        """Return the flags in one word, and an option with its value, from `following_words` if it stands there."""
        every = self.flags | self.shown | self.keep
        name, sign, value = text.partition("=")
        if text in every:
            return frozenset({text}), ()
        if text in self.options:
            after = following_words.pop(0) if following_words else None
            fits = after is not None and after.literal and not after.text.startswith("-")
            return (frozenset(), ((text, after.text),)) if after and fits else None
        if sign and (name in self.options or name + sign in self.options):
            return frozenset(), ((name, value),)
        if not self.cluster or text.startswith("--") or len(text) < 3:
            return None
        if (
            "-" + text[1] in every
            and (more := self._parse_option("-" + text[2:], following_words)) is not None
        ):
            return more[0] | {"-" + text[1]}, more[1]
        if text[:2] in self.options and (text[2:].isdecimal() or self.options[text[:2]] == "same"):
            return frozenset(), ((text[:2], text[2:]),)
        return None

    def option_kind(self, option: str) -> str:
        return self.options.get(option) or self.options.get(option + "=") or ""

    def operand_kinds(self, count: int) -> Iterator[str]:
        for at in range(count):
            yield self.operands[min(at, len(self.operands) - 1)] if self.operands else ""


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """The arguments of one command, as a row reads them."""

    flags: frozenset[str] = frozenset()
    valued: tuple[Pair, ...] = ()
    operands: tuple[Word, ...] = ()
    rest: tuple[Word, ...] = ()
    sets: tuple[str, ...] = ()
    """Variables, as `V=1`."""

    def with_operand_or_assignment(self, word: Word, variables: frozenset[str]) -> "ParsedArguments":
        if variables and word.literal and SETS.fullmatch(word.text):
            return replace(self, sets=(*self.sets, word.text))
        return replace(self, operands=(*self.operands, word))


@cache
def _load_grant_rows() -> Mapping[tuple[str, ...], GrantRow]:
    rows = map(GrantRow.model_validate, load_command_table()["command"])
    return {tuple(name.split()): row for row in rows for name in row.run}


@cache
def _load_args_allowed_by_prefix() -> Mapping[tuple[str, ...], Mapping[str, str]]:
    """Return what a rule with a command prefix lets through, each with the arguments that do; empty: whatever it
    takes."""
    return {tuple(name.split()): row["lets"] for row in load_command_table()["beyond"] for name in row["run"]}


_LONGEST_NAME = 5


def find_grant_row(words: Sequence[str]) -> tuple[int, GrantRow] | None:
    """Return the number of words that name the subcommand, and its row."""
    for size in range(min(_LONGEST_NAME, len(words)), 0, -1):
        if (row := _load_grant_rows().get(tuple(words[:size]))) is not None:
            return size, row
    return None


def has_only_literals_and_path_globs(command: ShellCommand, reading: LineReading) -> bool:
    """Return whether all that isn't known of a command are patterns, for a program that takes files, and none of
    the names that they mean now is an option."""
    found = find_grant_row(command.argv)
    files = found is not None and found[1].operands[-1:] in (("path",), ("test",))
    return files and all(word.literal or reading.is_readable_path_word(word) for word in command.words)


def is_harmless_variable_setting(text: str, variables: frozenset[str]) -> bool:
    """Return whether `NAME=value` is one of these variables, or one that never counts, with a number or a yes
    or no."""
    found = SETS.fullmatch(text)
    known = found is not None and found[1] in variables | HARMLESS_VARIABLES
    return found is not None and known and _PLAIN_VALUE.fullmatch(found[2]) is not None


def describe_extra_coverage(argv: Sequence[str]) -> str:
    """Return what a grant for this command covers beside the command itself, in words; empty: nothing."""
    found = find_grant_row(argv)
    if found is None:
        return ""
    size, row = found
    known = row.reading or row.anything or row.parse_arguments([*map(literal_word, argv[size:])]) is not None
    return row.covers if known else ""


def is_covered_by_grant(
    command: ShellCommand, granted_argv: tuple[str, ...], reading: LineReading, reads_input: bool
) -> bool:
    """Return whether a grant for a command covers another. `reads_input`: it may read what another command writes."""
    exact = command.literal and command.argv == granted_argv
    return _is_known_variant(command, granted_argv, reading) or (
        exact and not (reads_input and find_grant_row(granted_argv) is None)
    )


def _is_known_variant(command: ShellCommand, granted: tuple[str, ...], reading: LineReading) -> bool:
    found = find_grant_row(granted)
    if found is None:
        return False
    size, row = found
    lead, words = command.words[:size], command.words[size:]
    if [(w.literal, w.text) for w in lead] != [(True, text) for text in granted[:size]]:
        return False
    if row.reading:
        return reading.with_command_paths_accepted(granted).is_plain_read_command(command)
    if row.anything:
        return True
    own, other = row.parse_arguments([*map(literal_word, granted[size:])]), row.parse_arguments(words)
    return own is not None and other is not None and _has_harmless_differences(row, own, other, reading)


def _has_harmless_differences(
    row: GrantRow, granted: ParsedArguments, other: ParsedArguments, reading: LineReading
) -> bool:
    """Return whether what only one of them has is harmless: an argument may say what to leave out (`-e lint`,
    `--skip x`)."""

    def is_harmless(pair: Pair) -> bool:
        return _is_word_of_any_kind(row.option_kind(pair[0]), literal_word(pair[1]), reading)

    flags = other.flags <= row.flags | row.keep | granted.flags and granted.flags & row.keep <= other.flags
    valued = all(map(is_harmless, {*granted.valued} ^ {*other.valued}))
    sets = all(is_harmless_variable_setting(text, row.variables) for text in {*granted.sets} ^ {*other.sets})
    listed = (_is_plain_word_or_flag(w, row.rest or frozenset()) for w in (*granted.rest, *other.rest))
    rest = other.rest == granted.rest or all(listed)
    return flags and valued and sets and rest and _has_harmless_operands(row, granted, other, reading)


def _has_harmless_operands(
    row: GrantRow, granted: ParsedArguments, other: ParsedArguments, reading: LineReading
) -> bool:
    shown = [w.text for w in granted.operands]
    if row.operands == ("same",):
        return [w.text for w in other.operands] == shown and all(w.literal for w in other.operands)
    kinds = row.operand_kinds(len(other.operands))
    return all(
        (word.literal and (at, word.text) in enumerate(shown)) or _is_word_of_any_kind(kind, word, reading)
        for at, (word, kind) in enumerate(zip(other.operands, kinds, strict=True))
    )


def _is_plain_word_or_flag(word: Word, flags: frozenset[str]) -> bool:
    return word.literal and (word.text in flags or _PLAIN_WORD.fullmatch(word.text) is not None)


def _is_word_of_any_kind(kinds: str, word: Word, reading: LineReading) -> bool:
    # Many programs read further arguments from `@FILE`, wherever it stands.
    return not word.known_start.startswith("@") and any(
        _is_word_of_kind(kind, word, reading) for kind in kinds.split("|") if kind
    )


def _is_word_of_kind(kind: str, word: Word, reading: LineReading) -> bool:
    if kind == "path":  # to some programs, `-` is a list of files
        return word.text != "-" and reading.is_readable_path_word(word)
    if not word.literal:
        return False
    match kind:
        case "test":
            path, colons, _ = _LINE_NUMBERS.sub("", word.text).partition("::")
            tests = _TEST.fullmatch(path.rpartition("/")[2]) is not None or reading.is_folder(path)
            python = not colons or path.endswith(".py")
            return tests and python and reading.is_readable_path_word(literal_word(path))
        case "package":
            plain = _PACKAGE.fullmatch(word.text) is not None and ".." not in word.text.split("/")
            return plain and reading.is_readable_path_word(literal_word(word.text.removesuffix("/...")))
        case "testname":
            found = _TEST_NAME.fullmatch(word.text)
            above = found and found[1].rstrip(".").replace(".", "/")
            return above is not None and (not above or reading.is_folder(above))
        case _ if kind in _KINDS:
            return _KINDS[kind].fullmatch(word.text) is not None
        case _:
            return kind != "same" and word.text == kind


_ONLY_READ = to_name_set(
    "cat cd cut diff du echo file grep head id ls nl paste pwd rg stat tail tr tree uname uniq wc which"
)
"""Programs that only read, whatever their arguments (their dangerous forms ask anyway)."""
_GIT_READS = to_name_set(
    "add blame branch commit describe diff fetch log ls-files rev-parse show stash status switch"
)


def is_read_only_program(argv: Sequence[str]) -> bool:
    """Return whether the program only reads, whatever its arguments."""
    return bool(argv) and argv[0] in _ONLY_READ


def is_safe_for_trusted_files(argv: Sequence[str]) -> bool:
    """Return whether its leading words say that it changes no file of the workspace that the program trusts."""
    return is_read_only_program(argv) or (len(argv) > 1 and argv[0] == "git" and argv[1] in _GIT_READS)


_UNKNOWN = "interpreters, -c, config files, output files or network: none of its arguments is known"


def describe_args_allowed_by_prefix(prefix: Sequence[str]) -> str:
    """Return what may follow a rule's prefix, for `policy check` and `doctor`; empty: nothing that matters."""
    sizes = range(len(prefix), 0, -1)
    lets = next(
        (
            row
            for size in sizes
            if (row := _load_args_allowed_by_prefix().get(tuple(prefix[:size]))) is not None
        ),
        None,
    )
    if lets is None:
        return _UNKNOWN
    return ", ".join(f"{what} ({how})" if how else what for what, how in lets.items())
