"""problems: what language servers find in a file, and which of it an edit brought."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from interlock.state.text import to_one_line

_MOST = 10
"""Problems of one edit that the model is told (opencode: 20)."""
_LONGEST = 300
"""Characters of one problem's message."""
_LINE_END = re.compile(r"\r\n|\n|\r")
"""What ends a line in the protocol."""
_NUMBER = re.compile(r"\d+")


class Problem(NamedTuple):
    """One error in a text."""

    line: int
    """Counted from 0, as in the protocol."""
    column: int
    """In characters, from 0."""
    message: str
    code: str
    source: str
    """Who found it, such as `Pyright`."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """The problem without its place: messages name lines, which an edit moves."""
        return self.source, self.code, _NUMBER.sub("#", self.message)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text as the protocol counts them, without their ends."""
    return _LINE_END.split(text)


def find_new_problems(
    old: Sequence[Problem], before: str, found: Sequence[Problem], after: str
) -> list[Problem]:
    """Return the problems of `after` that `before` hasn't, wherever they moved to.

    Each old problem accounts for one found problem of the same kind and message, first for that in its own line.
    """
    moved = _map_unchanged_lines(split_lines(before), split_lines(after))
    left = [(moved.get(problem.line), problem.identity) for problem in old]
    others: list[Problem] = []
    for problem in found:
        here = (problem.line, problem.identity)
        if here in left:
            left.remove(here)
        else:
            others.append(problem)
    identities = [identity for _, identity in left]
    new: list[Problem] = []
    for problem in others:
        if problem.identity in identities:
            identities.remove(problem.identity)
        else:
            new.append(problem)
    return new


def _map_unchanged_lines(before: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    blocks = SequenceMatcher(None, before, after, autojunk=True).get_matching_blocks()
    return {a + offset: b + offset for a, b, size in blocks for offset in range(size)}


def describe_problems(path: str, problems: Sequence[Problem]) -> str:
    """Return a line that names the file, and one for each problem, for the model."""
    ordered = sorted(dict.fromkeys(problems))
    lines = [f"New problems in {path}:", *map(_describe_problem, ordered[:_MOST])]
    if len(ordered) > _MOST:
        lines.append(f"- and {len(ordered) - _MOST} more")
    return "\n".join(lines)


def _describe_problem(problem: Problem) -> str:
    by = " ".join(part for part in (problem.source, problem.code) if part)
    message = to_one_line(problem.message, _LONGEST)
    return f"- line {problem.line + 1}, column {problem.column + 1}: {message}" + (
        f" ({to_one_line(by, 80)})" if by else ""
    )
