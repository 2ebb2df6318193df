"""parse: a line of bash → the simple commands that it would run, and the limits of looking."""

import re
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from interlock.services.shell.model import Found, ShellLine, TooMuch
from interlock.state.text import visible

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LONGEST = 20_000
"""Characters of a line that is looked into."""
_MOST_PIPES = 400
"""The grammar takes time with the square of `|` (measured: 5,000 take 1 s, 400 take 10 ms)."""
_DEEPEST = 5
"""`bash -c` in `bash -c`."""
_PARSE_S = 0.03
"""CPU seconds of the parser, so that a busy machine decides as an idle one."""
_GLUED_LINES = re.compile(r"(?<![ \t\n])\\\n")
"""Bash takes the break out and goes on in the same word or operator; the grammar doesn't always."""
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


@lru_cache(maxsize=256)
def parse(line: str) -> ShellLine:
    """Every simple command in `line`. Never raises; what can't be seen through is marked opaque."""
    found = Found(_look_into)
    _look_into(line, found)
    assigns = tuple(dict.fromkeys(found.assigns))
    return ShellLine(line, tuple(found.commands), tuple(found.redirects), assigns, found.opaque)


def _look_into(line: str, found: Found) -> None:
    """Add what `line` would run to `found`."""
    from interlock.services.shell.walk import Walk

    reason = _refused(line, found.depth)
    if reason is not None:
        found.blur(reason)
        return
    root = _tree(line)
    if root is None:
        found.blur("it takes too long to parse")
        return
    try:
        Walk(line, found, sound=not root.has_error).program(root)
    except TooMuch as much:
        found.blur(str(much))


def _refused(line: str, depth: int) -> str | None:
    if len(line) > LONGEST:
        return f"it has {len(line)} characters, more than {LONGEST}"
    if depth > _DEEPEST:
        return "shells in shells, too deep"
    if line.count("|") > _MOST_PIPES:
        return f"it has more than {_MOST_PIPES} pipes"
    if visible(line) != line:  # bash and people read it differently
        return "it has control or invisible characters, or letters that look like others"
    return "a line break within a word" if _GLUED_LINES.search(line) else None


def _tree(line: str) -> "Node | None":
    # One byte a character, so that offsets are the same; `%` is a word character to bash and no part of a name.
    data = _NOT_ASCII.sub("%", line).encode("ascii")
    stop = time.thread_time() + _PARSE_S

    def late(offset: int, has_error: bool) -> bool:  # noqa: ARG001 - what the parser calls it with
        return time.thread_time() > stop

    try:
        tree = _parser().parse(lambda offset, _: data[offset : offset + 4096], progress_callback=late)
    except ValueError:
        _parser().reset()
        return None
    return tree.root_node


class _Parsers(threading.local):
    """One parser a thread: two threads in one parser end the process."""

    parser: "Parser | None" = None


_PARSERS = _Parsers()


def _parser() -> "Parser":
    if _PARSERS.parser is None:
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        _PARSERS.parser = Parser(Language(tree_sitter_bash.language()))
    return _PARSERS.parser
