"""programs: what a command is, however it is spelled: by another name, an abbreviation, options in front, or as a copy.

Rules that restrict a program are tried against each spelling. Where a command of a known program can't be resolved, it
may be what such a rule names.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice

from pydantic import BaseModel, Field

from interlock.services.policy.expansion import possible_paths
from interlock.services.policy.grant_coverage import NameSet, is_read_only_program
from interlock.services.policy.plain_reading import LineReading, load_command_table
from interlock.services.policy.rule import Rule
from interlock.services.shell.commands import LANGUAGES, canonical_program_name
from interlock.services.shell.model import ShellCommand, Word, literal_word, program_name, to_name_set

_MODULES = re.compile(r"(?:python|pypy)[\d.]*|py")
_VERSION = re.compile(r"-?[\d.]+$")
_RELEASE = re.compile(r"(?<=\w)@[\w.^~-]+$")
"""As in `npx npm@10`."""
_INTERPRETERS = LANGUAGES | {"bash", "sh", "dash", "zsh", "ksh", ".", "source"}
_SEVERAL = frozenset(
    {"busybox", "toybox", "coreutils", "rustup", "uutils", "shim", "asdf", "mise", "volta-shim"}
)
"""One file that is many programs, each by the name of a link."""


class Program(BaseModel, extra="forbid", frozen=True, defer_build=True):
    """A program with subcommands; fields as `commands.toml` explains them."""

    name: str
    also: str = ""
    beginning: str = ""
    flags: NameSet = frozenset()
    values: NameSet = frozenset()
    known: NameSet = frozenset()
    same: dict[str, str] = Field(default_factory=dict[str, str])
    shortened: bool = False
    unclear: NameSet = frozenset()
    variables: NameSet = frozenset()


@dataclass(frozen=True, slots=True)
class ResolvedCommand:
    """What a command may be."""

    commands: Sequence[ShellCommand]
    """By the plain names of program and subcommand; several if it is an abbreviation of several."""
    program: str
    """The name by which rules know the program."""
    unclear: bool = False
    """It may be something else."""


@cache
def _load_programs() -> Mapping[str, Program]:
    rows = map(Program.model_validate, load_command_table()["program"])
    return {name: row for row in rows for name in (row.name, *row.also.split())}


@cache
def _programs_with_name_prefix() -> Sequence[Program]:
    return [*{row.name: row for row in _load_programs().values() if row.beginning}.values()]


def resolve_command(command: ShellCommand, folders: Sequence[str]) -> ResolvedCommand:
    """Return what a command may be, if its program is known before it runs. `folders`: where it may run."""
    words, assigns = command.words, command.assigned_names
    if not words or not words[0].literal or not words[0].text:
        return ResolvedCommand((), "")
    own = _normalize_program_words(words, folders)
    name = own[0].text
    row = _load_programs().get(name)
    if row is None:
        return ResolvedCommand(_respelled_command(own, words), name)
    given = any(a.startswith(tuple(row.variables)) for a in assigns) if row.variables else False
    odd = given or any(_is_word_unclear(row, word) for word in own[1:])
    at, sure = _find_first_operand(row, own)
    if not (row.known or row.same):  # its operands are targets or scripts
        plain = [(own[0], *own[1:])] + ([(own[0], *own[at:])] if sure and at > 1 else [])
        return ResolvedCommand([c for one in plain for c in _respelled_command(one, words)], row.name, odd)
    if at >= len(own):
        return ResolvedCommand(_respelled_command(own, words), row.name, odd or not sure)
    found, known = _match_subcommand(row, own[at:])
    each = [(literal_word(row.name), *literals, *own[at + size :]) for literals, size in found]
    return ResolvedCommand(
        [c for one in each for c in _respelled_command(one, words)],
        row.name,
        odd or not known or not sure or len(found) > 1,
    )


def _respelled_command(words: Sequence[Word], original: Sequence[Word]) -> Sequence[ShellCommand]:
    """Return the words as a command, unless they are what was written."""
    if [w.text for w in words] == [w.text for w in original]:
        return ()
    return (ShellCommand(" ".join(w.text for w in words), tuple(words)),)


def _is_word_unclear(row: Program, word: Word) -> bool:
    return word.text in row.unclear or word.text.partition("=")[0] in row.unclear


def _normalize_program_words(words: tuple[Word, ...], folders: Sequence[str]) -> tuple[Word, ...]:
    """Return the words with the program's plain name: `git push` for `/usr/lib/git-core/git-push`."""
    name = _resolve_linked_program_name(words[0].text, folders)
    if _MODULES.fullmatch(name) and len(words) > 2 and words[1].text == "-m" and words[2].literal:
        module = words[2].text.removesuffix(".__main__")
        return _normalize_program_words((literal_word(module), *words[3:]), ())
    for row in _programs_with_name_prefix():
        sub = name.removeprefix(row.beginning)
        if sub != name and (sub in row.known or sub in row.same or not row.known):
            return (literal_word(row.name), literal_word(sub), *words[1:])
    found = _load_programs().get(name) or _load_programs().get(_VERSION.sub("", name))
    return (literal_word(found.name if found else name), *words[1:])


def _resolve_linked_program_name(program: str, folders: Sequence[str]) -> str:
    """Return the name of the file that runs, where a link that the line names has another name than its target."""
    name = _RELEASE.sub("", program_name(program))
    if any(name.startswith(row.beginning) for row in _programs_with_name_prefix()):
        return name  # such as git's own, which are links to git
    places = (os.path.join(folder, program) for folder in folders) if "/" in program else ()  # noqa: PTH118 - texts of a line
    links = (program_name(os.path.realpath(place)) for place in places if os.path.islink(place))  # noqa: PTH114 - as above
    return next((real for real in links if real not in _SEVERAL), name)


def _script_and_arguments(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words from a script's name on, which an interpreter runs: `bash -x ./gradlew deploy`."""
    if canonical_program_name(words[0].text) not in _INTERPRETERS and words[0].text != "py":
        return ()
    at = next((at for at in range(1, len(words)) if not words[at].text.startswith("-")), 0)
    return words[at:] if at and words[at].literal and words[at].text else ()


def _find_first_operand(row: Program, words: Sequence[Word]) -> tuple[int, bool]:
    """Return the place of the first operand, and whether every option in front of it is known."""
    at, sure = 1, True
    while at < len(words):
        text = words[at].text
        name, sign, _ = text.partition("=")
        if not words[at].literal:
            return at, False
        if row.beginning == "cargo-" and text.startswith("+"):
            at += 1
        elif text in row.values:
            at += 2
        elif not text.startswith("-"):
            break
        elif text == "--":
            return at + 1, sure
        else:
            short = text[:2] in row.values and not text.startswith("--")
            sure = sure and (text in row.flags or (bool(sign) and name in row.values) or short)
            at += 1
    return at, sure


def _match_subcommand(
    row: Program, words: Sequence[Word]
) -> tuple[Sequence[tuple[Sequence[Word], int]], bool]:
    """Return what the subcommand may be, each with the number of words that name it, and whether it is known."""
    text = words[0].text
    both = f"{text} {words[1].text}" if len(words) > 1 else text
    if both in row.same:
        return [([*map(literal_word, row.same[both].split())], 2)], True
    if text in row.same:
        return [([*map(literal_word, row.same[text].split())], 1)], True
    if text in row.known or not row.known:
        return [([words[0]], 1)], True
    if not row.shortened:
        return [([words[0]], 1)], False
    dashed = re.sub(r"[A-Z]", lambda m: "-" + m[0].lower(), text)
    names = sorted(n for n in {*row.known, *row.same} if n.startswith(dashed) and " " not in n)
    meant = dict.fromkeys(row.same.get(name, name) for name in names)
    return [([literal_word(name)], 1) for name in meant] or [([words[0]], 1)], bool(meant)


@lru_cache(maxsize=512)
def prefix_spellings(prefix: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return a rule's prefix and its other spelling: a rule for `npm t` is one for `npm test`."""
    found = resolve_command(ShellCommand("", tuple(map(literal_word, prefix))), ())
    return (prefix, *(c.argv for c in found.commands)) if not found.unclear else (prefix,)


def is_program_named_in(texts: Sequence[str], program: str) -> bool:
    """Return whether a rule's prefix, or its pattern's text, names a program by any of its names."""
    row = _load_programs().get(program)
    names = {program, *((row.name, *row.also.split()) if row else ())}
    return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w])", text) for name in names for text in texts)


@lru_cache(maxsize=512)
def option_synonyms(prefix: tuple[str, ...]) -> Mapping[str, str]:
    """Return the options that do the same as another, for the command that a rule's prefix names."""
    table: Mapping[str, Mapping[str, str]] = load_command_table()["equal"]
    named = (table[name] for name in (" ".join(prefix[:2]), prefix[0]) if name in table)
    pairs = next(named, dict[str, str]())
    return {**pairs, **{long: short for short, long in pairs.items()}}


def is_in_program_table(program: str) -> bool:
    """Return whether the table says how its subcommands may be written."""
    return program in _load_programs()


def is_valueless_flag(program: str, option: str) -> bool:
    """Return whether an option of a listed program is known to take no value."""
    return program in _load_programs() and option in _load_programs()[program].flags


def canonical_spellings(command: ShellCommand, folders: Sequence[str]) -> Iterator[ShellCommand]:
    """Yield the command by the plain names of its program and subcommand, where it is spelled otherwise."""
    yield from resolve_command(command, folders).commands
    if command.words and (script := _script_and_arguments(command.words)):
        inner = ShellCommand(" ".join(w.text for w in script), tuple(script))
        yield from (inner, *resolve_command(inner, folders).commands)


_PLACES = to_name_set("cp ln install mv rsync scp")
"""They give their last operand the content of the others."""
_PRINTS = to_name_set("cat head tail dd base64 xxd od tee pv hexdump strings")
_LOOKS = to_name_set(
    "which type command hash whereis test [ ldd readelf file stat ls sha256sum md5sum rm du chmod echo printf"
)
_BLOCK = 1 << 20
_LARGEST = 500_000_000
_MOST_WORDS = 50
_FIRST = re.compile(r"[\w.-]+")


def find_restricted_program_files(rules: Sequence[Rule]) -> Mapping[str, str]:
    """Return the programs that rules deny or ask about, with the files on the PATH that they are."""
    restricting = [rule for rule in rules if rule.has_conditions and rule.decision != "allow"]
    prefixes = {program_name(prefix[0]) for rule in restricting for prefix in rule.command_prefixes if prefix}
    patterns = (rule.command_pattern.text for rule in restricting if rule.command_pattern is not None)
    named = prefixes | {found[0] for text in patterns if (found := _FIRST.match(text))}
    return {name: file for name in named if (file := _find_on_path(name, os.environ.get("PATH", "")))}


@lru_cache(maxsize=256)
def _find_on_path(name: str, path: str) -> str | None:
    return shutil.which(name, path=path)


def resolve_copied_programs(
    command: ShellCommand, programs: Mapping[str, str], folders: Sequence[str]
) -> Iterator[ShellCommand]:
    """Yield the command by the names of restricted programs of which a file that it runs is a copy."""
    for at, word in enumerate(islice(command.words, _MOST_WORDS)):
        if not (word.literal and "/" in word.text):
            continue
        for name, file in programs.items():
            places = [os.path.join(folder, word.text) for folder in folders]  # noqa: PTH118 - texts of a line
            if program_name(word.text) != name and any(
                _is_same_file_or_copy(place, file) for place in places
            ):
                words = (literal_word(name), *command.words[at + 1 :])
                yield ShellCommand(" ".join(w.text for w in words), words)


def describe_program_copying(
    command: ShellCommand, programs: Mapping[str, str], reading: LineReading
) -> str | None:
    """Return a clause about a restricted program of which the command makes a copy of another name, or None."""
    if not programs or not command.words or not command.words[0].literal:
        return None
    program = canonical_program_name(command.words[0].text)
    if program in _LOOKS or (program not in _PRINTS and is_read_only_program((program,))):
        return None
    writes = (
        any(r.kind == "write" and not r.is_without_file for r in reading.line.redirects)
        or "|" in reading.line.text
    )
    if program in _PRINTS and program != "dd" and not writes:
        return None
    folders = [str(reading.workspace.root / base) for base in reading.folders_or_root]
    operands = [word for word in command.words[1:_MOST_WORDS] if not word.text.startswith("-")]
    for name, file in programs.items():
        if program in _PLACES and operands and _is_copied_under_same_name(operands[-1].text, name, folders):
            continue
        looked_up = _program_lookup_pattern(name)
        for word in operands:
            if not word.literal and looked_up.search(reading.line.text):
                return f"copies {name!r}, which a rule is about, to another name"
            texts = [
                part
                for text in possible_paths(word, reading)
                for part in (text, text.partition("=")[2])
                if part
            ]
            places = (os.path.join(folder, text) for text in texts for folder in folders)  # noqa: PTH118 - as above
            if any(_is_same_file_or_copy(place, file) for place in places):
                return f"copies {name!r}, which a rule is about, to another name"
    return None


@lru_cache(maxsize=64)
def _program_lookup_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern that matches how a line finds out where a program is."""
    each = re.escape(name)
    return re.compile(
        rf"\b(which|command +-v|type +-[pP]|whereis|hash|readlink|realpath)\b[^;|)`]*\b{each}\b|/{each}\b"
        rf"|-i?name +\S*{each}"
    )


def _is_copied_under_same_name(place: str, name: str, folders: Sequence[str]) -> bool:
    is_folder = any(os.path.isdir(os.path.join(folder, place)) for folder in folders)  # noqa: PTH112, PTH118 - as above
    return program_name(place) == name or is_folder


def _is_same_file_or_copy(path: str, file: str) -> bool:
    """Return whether two files are one, or have the same content."""
    try:
        own, other = os.stat(path), os.stat(file)  # noqa: PTH116 - as above
    except (OSError, ValueError):
        return False
    if os.path.samestat(own, other):
        return True
    if own.st_size != other.st_size or own.st_size > _LARGEST or not own.st_size:
        return False
    return _has_same_content(
        path, file, (own.st_mtime_ns, own.st_size, own.st_ino), (other.st_mtime_ns, other.st_ino)
    )


@lru_cache(maxsize=64)
def _has_same_content(path: str, file: str, _own: tuple[int, int, int], _other: tuple[int, int]) -> bool:
    try:
        with open(path, "rb") as one, open(file, "rb") as other:  # noqa: PTH123 - as above
            while block := one.read(_BLOCK):
                if block != other.read(_BLOCK):
                    return False
    except OSError:
        return False
    return True
