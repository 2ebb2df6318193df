"""copies: programs that a rule restricts, under another name: a file with the same content is the same program."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice

from interlock.services.policy.expansion import possible_paths
from interlock.services.policy.grant_coverage import is_reading_program
from interlock.services.policy.plain_reading import LineReading
from interlock.services.policy.rule import Rule
from interlock.services.shell.commands import known_program_name
from interlock.services.shell.model import ShellCommand, literal_word, program_name, to_name_set

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


def find_restricted_programs(rules: Sequence[Rule]) -> Mapping[str, str]:
    """Return the programs that rules deny or ask about, with the files on the PATH that they are."""
    restricting = [rule for rule in rules if rule.has_conditions and rule.decision != "allow"]
    prefixes = {program_name(prefix[0]) for rule in restricting for prefix in rule.prefixes if prefix}
    patterns = (rule.command.text for rule in restricting if rule.command is not None)
    named = prefixes | {found[0] for text in patterns if (found := _FIRST.match(text))}
    return {name: file for name in named if (file := _find_on_path(name, os.environ.get("PATH", "")))}


@lru_cache(maxsize=256)
def _find_on_path(name: str, path: str) -> str | None:
    return shutil.which(name, path=path)


def names_of_copies(
    command: ShellCommand, programs: Mapping[str, str], folders: Sequence[str]
) -> Iterator[ShellCommand]:
    """Yield the command by the names of restricted programs of which a file that it runs is a copy."""
    for at, word in enumerate(islice(command.words, _MOST_WORDS)):
        if not (word.literal and "/" in word.text):
            continue
        for name, file in programs.items():
            places = [os.path.join(folder, word.text) for folder in folders]  # noqa: PTH118 - texts of a line
            if program_name(word.text) != name and any(_is_same_file(place, file) for place in places):
                words = (literal_word(name), *command.words[at + 1 :])
                yield ShellCommand(" ".join(w.text for w in words), words)


def copied_program_clause(
    command: ShellCommand, programs: Mapping[str, str], reading: LineReading
) -> str | None:
    """Return a clause about a restricted program of which the command makes a copy of another name, or None."""
    if not programs or not command.words or not command.words[0].literal:
        return None
    program = known_program_name(command.words[0].text)
    if program in _LOOKS or (program not in _PRINTS and is_reading_program((program,))):
        return None
    writes = (
        any(r.kind == "write" and not r.is_idle for r in reading.line.redirects) or "|" in reading.line.text
    )
    if program in _PRINTS and program != "dd" and not writes:
        return None
    folders = [str(reading.workspace.root / base) for base in reading.folders.bases or (".",)]
    operands = [word for word in command.words[1:_MOST_WORDS] if not word.text.startswith("-")]
    for name, file in programs.items():
        if program in _PLACES and operands and _has_same_name(operands[-1].text, name, folders):
            continue
        looked_up = _lookup_pattern(name)
        for word in operands:
            if not word.literal and looked_up.search(reading.line.text):
                return f"copies {name!r}, which a rule is about, to another name"
            texts = [
                part
                for text in possible_paths(word, reading)
                for part in (text, text.partition("=")[2])
                if part
            ]
            if any(_is_same_file(os.path.join(folder, text), file) for text in texts for folder in folders):  # noqa: PTH118 - as above
                return f"copies {name!r}, which a rule is about, to another name"
    return None


@lru_cache(maxsize=64)
def _lookup_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern that matches how a line finds out where a program is."""
    each = re.escape(name)
    return re.compile(
        rf"\b(which|command +-v|type +-[pP]|whereis|hash|readlink|realpath)\b[^;|)`]*\b{each}\b|/{each}\b"
        rf"|-i?name +\S*{each}"
    )


def _has_same_name(place: str, name: str, folders: Sequence[str]) -> bool:
    is_folder = any(os.path.isdir(os.path.join(folder, place)) for folder in folders)  # noqa: PTH112, PTH118 - as above
    return program_name(place) == name or is_folder


def _is_same_file(path: str, file: str) -> bool:
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
