"""simple: the simple commands of a shell line, read roughly: quotes count, expansions don't. No decision needs it."""

import re
import shlex
from collections.abc import Iterator

ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
"""A word that sets a variable: its name, and its value."""
_BETWEEN = "();<>|&\n"


def split_simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell line, with the assignments before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_BETWEEN)
    lexer.whitespace_split, lexer.commenters, lexer.whitespace = True, "", " \t\r"
    try:
        tokens = list(lexer)
    except ValueError:  # an open quote
        tokens = line.split()
    words: list[str] = []
    for token in [*tokens, ";"]:
        if token and set(token) <= set(_BETWEEN):
            if words:
                yield words
            words = []
        else:
            words.append(token)
