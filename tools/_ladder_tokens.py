"""ladder_tokens: windows that have `old`'s words and signs in its order, with any whitespace between them."""

import re
from collections.abc import Iterator

from interlock.tools._ladder_types import Window

TOKEN = re.compile(r"\w+|[^\w\s]")
_MOST = 4_000
"""Tokens of `old`; compiling the expression takes 0.1 s then."""
_SHORTEST = 2
"""Fewer tokens say too little about a place."""


def token_windows(text: str, old: str) -> list[Window]:
    """Beginning with a line, after its indentation. Words stay apart: `return x` isn't `returnx`."""
    tokens: list[str] = TOKEN.findall(old)
    if not _SHORTEST <= len(tokens) <= _MOST or max(tokens, key=len) not in text:
        return []
    pattern = re.compile(r"^[^\S\n]*" + "".join(_joined(tokens)), re.MULTILINE)
    return list(_found(text, pattern))


def _joined(tokens: list[str]) -> Iterator[str]:
    """Only escaped tokens and runs of whitespace between them: nothing for the expression to try twice."""
    before = ""
    for token in tokens:
        if before:
            yield r"\s+" if _is_word(before) and _is_word(token) else r"\s*"
        yield re.escape(token)
        before = token
    yield r"(?!\w)" if _is_word(before) else ""


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _found(text: str, pattern: re.Pattern[str]) -> Iterator[Window]:
    """Overlapping ones too: whether one of them is meant is decided by who counts them."""
    found = pattern.search(text)
    while found is not None:
        start = found.end() - len(found[0].lstrip())
        yield Window(start, found.end())
        following = text.find("\n", found.start())
        if following < 0:
            return
        found = pattern.search(text, following + 1)
