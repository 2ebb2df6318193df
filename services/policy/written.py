"""written: which files a command names to change them, as far as its words say. With `-y` those that the program trusts
ask.

What a script or an archive writes by itself isn't known.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from interlock.services.files.protected import folded, is_plain_key
from interlock.services.policy.reading import Reading
from interlock.services.shell.commands import known_program
from interlock.services.shell.model import ShellCommand, names

_ALL = names("mv tee sponge touch truncate mkdir chmod chown patch ed ex dd")
"""They change whatever they name."""
_REMOVE = names("rm unlink rmdir")
_OF_GIT = names("config config.worktree hooks commondir modules")
_LAST = names("cp ln install rsync scp")
"""They change their last operand, or what is in it."""
_IN_PLACE = {name: re.compile(r"-[A-Za-z0-9]*i.*|--in-place.*") for name in ("sed", "gsed", "perl", "ruby")}
_OUTPUTS = {"curl": ("-o", "--output"), "wget": ("-O", "--output-document"), "sort": ("-o", "--output")}
_FOLDERS = ("-t", "--target-directory")
_LOOKS = names("--get --get-all --get-regexp --get-urlmatch --list -l get list")
_SETS = names("set unset add --add --unset --unset-all --replace-all")


def placed(base: str, text: str) -> str:
    """Return a path of a line as tools write it: below a folder, unless it is absolute or below the home."""
    text = text.strip("\"'")
    return text if text.startswith("~") else posixpath.join(base, text)


def written_clause(command: ShellCommand, reading: Reading) -> str | None:
    """Return a clause naming a file that the program trusts, and that the command changes; None: it names none."""
    if not command.words or not command.words[0].literal:
        return None
    words = [text for word in command.words[1:] for text in reading.expanded(word)]
    program = known_program(command.words[0].text)
    if program == "git":
        return _configures(words)
    for path in _written(program, words):
        for base in reading.folders.bases or (".",):
            place = placed(base, path)
            if found := reading.workspace.protected(place):
                return f"changes {found.part!r} ({found.what})"
            if program not in _REMOVE and _is_of_git(place):
                return f"changes {path!r} (what git runs and believes)"
    return None


def _is_of_git(path: str) -> bool:
    parts = [folded(part) for part in posixpath.normpath(path).split("/")]
    at = next((at for at, part in enumerate(parts) if part in (".git", "git~1")), None)
    return at is not None and (at + 1 == len(parts) or parts[at + 1] in _OF_GIT)


def _written(program: str, words: Sequence[str]) -> Iterator[str]:
    operands = [word for word in words if not word.startswith("-") or word == "-"]
    if program in _ALL | _REMOVE:
        yield from (word.removeprefix("of=") for word in operands)
    elif program in _LAST and operands:
        named = [*_values(words, _FOLDERS)]
        for place in named or operands[-1:]:
            yield place
            yield from (
                posixpath.join(place, name) for name in dict.fromkeys(map(posixpath.basename, operands))
            )
    elif program in _IN_PLACE and any(map(_IN_PLACE[program].fullmatch, words)):
        yield from operands
    elif program in _OUTPUTS:
        yield from _values(words, _OUTPUTS[program])


def _values(words: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """Yield the values of an option by its short and its long name."""
    short, long = options
    for word, after in pairwise((*words, "")):
        if word in (short, long):
            yield after
        elif word.startswith(f"{long}="):
            yield word.partition("=")[2]
        elif word.startswith(short) and not word.startswith("--"):
            yield word.removeprefix(short)


def _configures(words: Sequence[str]) -> str | None:
    """A clause about a setting of git's that may run a program or lead elsewhere."""
    if "config" not in words:
        return None
    given = words[words.index("config") + 1 :]
    operands = [word for word in given if not word.startswith("-") and word not in _SETS]
    if not operands or not _LOOKS.isdisjoint(given) or (len(operands) == 1 and _SETS.isdisjoint(given)):
        return "opens git's configuration in an editor" if {"-e", "--edit", "edit"} & {*given} else None
    key = next((word for word in operands if "." in word and "/" not in word), operands[0])
    return None if is_plain_key(key) else f"changes git's configuration ({key[:60]})"
