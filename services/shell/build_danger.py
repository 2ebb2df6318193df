"""build_danger: arguments of build tools and test runners that make them run something else than the project's own."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from interlock.services.shell.model import Word
from interlock.services.shell.names import names
from interlock.services.shell.options import Seen, seen

_Words = Sequence[Word]
_ELSEWHERE = "may run something else than the project's own"
_SETS = re.compile(r"([A-Za-z_.][\w.-]*)[:+?!]*=(.*)", re.DOTALL)
_VALUE = re.compile(r"(?:-[\w./:@%,+= -]*|[\w./:@%,+=-]*)", re.ASCII)
"""One plain word, or options."""
_SHELLS = names("SHELL .SHELLFLAGS MAKEFLAGS MAKEFILES MAKE CC CXX CPP LD AR")


def make(words: _Words) -> str | None:
    options = seen(words[1:])
    if options.has("fICE", "file", "makefile", "eval", "directory", "include-dir", "environment-overrides"):
        return _ELSEWHERE
    for word in words[1:]:
        given = _SETS.fullmatch(word.text) if word.literal else _SETS.match(word.lead)
        if given and (given[1] in _SHELLS or not word.literal or not _VALUE.fullmatch(given[2])):
            return f"{_ELSEWHERE} (sets {given[1][:40]})"
    return _ELSEWHERE if options.unknown else None


def _any(options: Seen, letters: str, longs: frozenset[str]) -> bool:
    """For programs that take no beginnings of long options."""
    return options.has(letters) or not longs.isdisjoint(options.longs)


_NPM = names("script-shell node-options userconfig globalconfig prefix git cwd shell global dir location")
_PYTEST = names("rootdir config-file override-ini pdbcls confcutdir")
_CARGO = names("config manifest-path")


def npm(words: _Words) -> str | None:
    return _ELSEWHERE if _any(seen(words[1:]), "Cg", _NPM) else None


def pytest(words: _Words) -> str | None:
    own = seen(words[1:])
    if "basetemp" in own.longs:
        return "deletes the folder of --basetemp"
    if "pastebin" in own.longs:
        return "acts outside of this machine or project (pastebin)"
    plugins = [after.text for word, after in pairwise(words) if word.text == "-p"]
    glued = any(w.lead.startswith("-p") and w.text != "-p" for w in words[1:])
    loads = glued or any(not p.startswith("no:") for p in plugins)
    return _ELSEWHERE if loads or _any(own, "co", _PYTEST) else None


def cargo(words: _Words) -> str | None:
    return _ELSEWHERE if _any(seen(words[1:]), "CZ", _CARGO) else None


def go(words: _Words) -> str | None:
    runs = names("exec toolexec vettool modfile overlay ldflags gcflags asmflags gccgoflags C o")
    given = {w.lead.lstrip("-").partition("=")[0] for w in words[1:] if w.lead.startswith("-")}
    return _ELSEWHERE if given & runs else None


def python(words: _Words) -> str | None:
    """`python -m pytest`, like pytest."""
    return pytest(words[2:]) if [w.text for w in words[1:3]] == ["-m", "pytest"] else None


CHECKS: dict[str, Callable[[_Words], str | None]] = {
    **dict.fromkeys(("make", "gmake"), make),
    **dict.fromkeys(("npm", "pnpm", "yarn", "npx"), npm),
    **dict.fromkeys(("pytest", "py.test"), pytest),
    **dict.fromkeys(("python", "python3"), python),
    "cargo": cargo,
    "go": go,
}
