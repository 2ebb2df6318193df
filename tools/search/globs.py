"""globs: glob patterns, matched path segment by path segment, so that no pattern can run for long."""

import fnmatch
import re
from collections.abc import Callable, Sequence
from functools import cache

_MOST_ALTERNATIVES = 256
"""Patterns that braces may stand for; past it they are taken literally."""
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def matcher(pattern: str, *, case_sensitive: bool = False) -> Callable[[str], bool]:
    """Tests relative posix paths. `**` is any number of directories, `{a,b}` either; a plain `*` includes dotfiles."""
    alternatives = [_segments(one, case_sensitive) for one in _expand(pattern)]

    def matches(path: str) -> bool:
        names = tuple(path.split("/"))
        return any(_match(segments, names) for segments in alternatives)

    return matches


def literal(path: str, *, case_sensitive: bool = False) -> Callable[[str], bool]:
    """Tests for this very path, whatever glob characters it holds."""
    return lambda other: other == path if case_sensitive else other.casefold() == path.casefold()


def has_magic(pattern: str) -> bool:
    return any(mark in pattern for mark in "*?[{")


Segment = Callable[[str], object] | None
"""Tests one name; None is `**`."""


def _segments(pattern: str, case_sensitive: bool) -> tuple[Segment, ...]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    # Runs of `**` are one.
    kept = [name for i, name in enumerate(names) if name != "**" or i == 0 or names[i - 1] != "**"]
    flags = 0 if case_sensitive else re.IGNORECASE
    return tuple(None if name == "**" else _name_test(name.replace("[^", "[!"), flags) for name in kept)


def _name_test(pattern: str, flags: int) -> Callable[[str], object]:
    # `fnmatch` writes expressions whose stars never backtrack.
    return re.compile(fnmatch.translate(pattern), flags).match


def _match(segments: Sequence[Segment], names: Sequence[str]) -> bool:
    @cache
    def rest(at: int, name: int) -> bool:
        if at == len(segments):
            return name == len(names)
        segment = segments[at]
        if segment is None:
            return rest(at + 1, name) or (name < len(names) and rest(at, name + 1))
        return name < len(names) and bool(segment(names[name])) and rest(at + 1, name + 1)

    return rest(0, 0)


def _expand(pattern: str) -> list[str]:
    done: list[str] = []
    pending = [pattern]
    while pending:
        one = pending.pop(0)
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
            continue
        pending += [one[: found.start()] + part + one[found.end() :] for part in found[1].split(",")]
        if len(pending) + len(done) > _MOST_ALTERNATIVES:
            return [pattern]
    return done
