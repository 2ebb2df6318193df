"""private_files: finds commands that show files which tools may not read; these ask in every mode.

Only what a command names is known: what a script or a program opens by itself is up to the sandbox, which hides it.
"""

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

from interlock.services.files.protected import find_private_hard_link, fold_name, is_private_name
from interlock.services.policy.expansion import has_unknown_value, possible_paths
from interlock.services.policy.git import is_git_output_free_of_private_files
from interlock.services.policy.inline_scripts import find_inline_stdin_texts
from interlock.services.policy.plain_reading import LineReading
from interlock.services.shell.commands import LANGUAGES, canonical_program_name, is_executing_stdin
from interlock.services.shell.model import ShellCommand, Word, literal_word, program_name, to_name_set
from interlock.state.file_names import quote_name

_SHOWS_NOTHING = to_name_set(
    "echo printf ls stat file test [ rm rmdir unlink touch mkdir chmod chown cd pushd which type du df pwd basename"
    " dirname realpath readlink tree true false : export"
)
"""They show no more of a file than that it is there."""
_GIT_SHOWS_NOTHING = to_name_set(
    "add rm status check-ignore ls-files ls-tree commit mv reset restore checkout clean update-index tag branch push"
    " fetch pull merge init config clone rev-parse"
)
_FINDS = to_name_set("-exec -execdir -ok -okdir -files0-from")
_WRITES_LAST = to_name_set("cp mv ln install")
_FIRST_IS_CODE = to_name_set("grep egrep fgrep rg ag ack sed awk gawk mawk jq yq")
_ONLY_LOADS = ("--env-file", "--exclude", "--ignore", "--glob=!", "-g!")
"""A container's environment, and what is left out."""
_NAMES_IT = re.compile(
    r"(?<![\w.*-])(\.env|\.netrc|\.git-credentials|id_(?:rsa|dsa|ecdsa|ed25519))(?![\w-]|\.\w)"
)
_GIVES_CODE = re.compile(r"-[a-zA-Z]*[ef].|--(?:regexp|expression|file)=")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MOST_TEXTS = 100
_HIDDEN_PATTERN = re.compile(r"(?<![\w.*])\.[\w.?*\[\]-]*[*?\[][\w.?*\[\]-]*")
_PARTS = re.compile("[=:,]")
_RECURSES = re.compile(
    r"-[A-Za-z]*[rR][A-Za-z]*|--(?:dereference-)?recursive|-d=?recurse|--directories=recurse"
)
_UNHIDES = re.compile(r"-[A-Za-z]*[u.][A-Za-z.]*|--hidden|--unrestricted")
_MOST_ENTRIES = 5_000


def describe_shown_private_file(command: ShellCommand, reading: LineReading) -> str | None:
    """Return a clause naming a private file that the command shows, or None."""
    words = command.words
    if not words:
        return None
    program = program_name(words[0].text) if words[0].literal else "cat"
    shown = next(
        (
            path
            for path in _possible_shown_paths(program, words[1:], reading)
            if _is_private_path(path, reading)
        ),
        None,
    )
    if (
        shown is None
        and program == "git"
        and (_is_git_grep_reading_private(words, reading) or reading.is_git_showing_private_file(command))
    ):
        return "shows a file of the history that tools may not read"
    if shown is None and canonical_program_name(program) in LANGUAGES:
        texts = find_inline_stdin_texts(reading.line) if is_executing_stdin(words) else ()
        found = (_NAMES_IT.search(text) for text in (*command.argv[1:], *texts))
        shown = next((match[1] for match in found if match), None)
    shown = shown or _find_private_file_in_search(program, words[1:], reading)
    return f"shows {quote_name(shown)}, which tools may not read" if shown else None


def _possible_shown_paths(program: str, words: Sequence[Word], reading: LineReading) -> Iterator[str]:
    """Yield what the arguments name as files to be shown."""
    if program in _SHOWS_NOTHING or (program == "find" and _FINDS.isdisjoint(w.text for w in words)):
        return
    if program == "git" and any(w.text in _GIT_SHOWS_NOTHING for w in words[:1]):
        return
    operands = [w for w in words if not w.text.startswith("-")]
    left_out = operands[-1:] if program in _WRITES_LAST and len(operands) > 1 else []
    given = any(_GIVES_CODE.match(w.text) for w in words)  # `-ep`: the first operand is a file
    left_out += operands[:1] if program in _FIRST_IS_CODE and not given else []
    left_out += [after for word, after in pairwise(words) if word.text in _ONLY_LOADS]
    for word in words:
        if any(word is one for one in left_out) or word.text.startswith(_ONLY_LOADS):
            continue
        for text in (word.text,) if word.literal else dict.fromkeys(possible_word_values(word, reading)):
            yield from (part.lstrip("@") for part in (text, *_PARTS.split(text)[1:]))


def _private_names_in_word(word: Word) -> Iterator[str]:
    """Yield what else a word may stand for that isn't known: names in a substitution, in braces, or behind `.*`."""
    if word.literal:
        return
    yield from _NAMES_IT.findall(word.text)
    texts = [word.text]
    while texts and len(texts) < _MOST_TEXTS:
        text = texts.pop()
        if braces := _BRACES.search(text):
            texts += [text[: braces.start()] + part + text[braces.end() :] for part in braces[1].split(",")]
        elif (last := text.rpartition("/")[2]).startswith(".") and fnmatchcase(".env", last):
            yield ".env"


def possible_word_values(word: Word, reading: LineReading) -> Iterator[str]:
    """Yield what a word that isn't known may stand for."""
    yield from (
        *reading.expand_pattern_word(word),
        *possible_paths(word, reading),
        *_private_names_in_word(word),
    )
    if has_unknown_value(word, reading):
        yield from _private_names_in_line(reading)


def describe_private_name_in_unparsed_line(reading: LineReading) -> str | None:
    """Return a clause about a private name in a line that isn't parsed to its end."""
    found = _NAMES_IT.search(reading.line.text) if reading.line.partly_unparsed else None
    return f"may show {found[1]!r}, which tools may not read" if found else None


def _private_names_in_line(reading: LineReading) -> Iterator[str]:
    """Yield the private names in the line, of which what isn't known may be one: `echo .env | xargs cat`."""
    yield from _NAMES_IT.findall(reading.line.text)
    if any(fnmatchcase(".env", pattern) for pattern in _HIDDEN_PATTERN.findall(reading.line.text)):
        yield ".env"


def _is_private_path(text: str, reading: LineReading) -> bool:
    parts = [part for part in text.strip("\"'").split("/") if fold_name(part) not in (".git", "git~1")]
    if any(map(is_private_name, parts)):
        return True
    return any(_is_private_file(posixpath.join(base, text), reading) for base in reading.folders_or_root)


def _is_private_file(text: str, reading: LineReading) -> bool:
    """Return whether it leads to a private file, or to one that the user's ignore files keep from tools."""
    root = reading.workspace.root
    if "\0" in text or len(text) > 4_096 or not os.path.isfile(place := os.path.join(root, text)):  # noqa: PTH113, PTH118 - texts of a line
        return False
    real = Path(os.path.realpath(place))
    if is_private_name(real.name):
        return True
    inside = real.is_relative_to(root)
    return inside and (
        reading.workspace.is_ignored(real, git=False) or find_private_hard_link(real, root) is not None
    )


def _is_git_grep_reading_private(words: Sequence[Word], reading: LineReading) -> bool:
    """Return whether `git grep` searches a private file: one that git tracks, or any if it searches others, too."""
    given = [w.text for w in words[1:]]
    if given[:1] != ["grep"] or "--" in given:
        return False
    if {"--untracked", "--no-index"} & {*given}:
        return (
            _find_private_file_in_search("grep", [literal_word("-r"), literal_word("x")], reading) is not None
        )
    folders = (reading.workspace.root / base for base in reading.folders)
    return not all(
        is_git_output_free_of_private_files(folder, shows_contents=True, compared_operands=0)
        for folder in folders
    )


def _find_private_file_in_search(program: str, words: Sequence[Word], reading: LineReading) -> str | None:
    """Return a private file in the folders that a search goes through, which leaves no hidden file out."""
    options = [w.text for w in words if w.text.startswith("-")]
    every = (program in ("grep", "egrep", "fgrep") and any(map(_RECURSES.fullmatch, options))) or (
        program == "rg" and any(map(_UNHIDES.fullmatch, options))
    )
    if not every or any(
        option.startswith(("--include", "--exclude", "-g", "--glob", "-t")) for option in options
    ):
        return None
    operands = [w.text for w in words if not w.text.startswith("-")][1:] or ["."]
    seen = 0
    for place in (reading.workspace.root / b / o for b in reading.folders for o in operands):
        for folder, folders, files in os.walk(place):
            folders[:] = [name for name in folders if name not in ("node_modules", ".git")]
            found = next(filter(is_private_name, files), None)
            if found is not None:
                return os.path.relpath(os.path.join(folder, found), reading.workspace.root)  # noqa: PTH118 - of os.walk
            seen += len(files) + len(folders)
            if seen > _MOST_ENTRIES:
                return None
    return None
