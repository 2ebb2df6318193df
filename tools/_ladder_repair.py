"""ladder_repair: both strings of an edit mended alike where none of the rungs found the old one.

Models escape what needs no escape (`\\n` for a line's end, `\\"` in code), and put blanks around a text.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from interlock.tools._ladder import Match, climb, exactly

_ESCAPED = re.compile(r"""\\+(n|t|r|"|'|`|\\)""")
_SIGN = {"n": "\n", "t": "\t", "r": "\r"}
_QUOTED = re.compile(r"""\\+(["'`])""")
_UNESCAPED_QUOTE = re.compile(r"""(?<!\\)["'`]""")


@dataclass(frozen=True)
class Mended:
    """Strings that were found, and where."""

    old: str
    new: str
    match: Match


def mended(text: str, old: str, new: str, expected: int | None) -> Mended | None:
    """The first mending of both strings with which as many windows are found as were expected."""
    for one, other, look in _tries(old, new):
        found = look(text, one, other, expected) if one and one != old else None
        if isinstance(found, Match):
            return Mended(one, other, found)
    return None


def _tries(old: str, new: str) -> Iterator[tuple[str, str, Callable[..., object]]]:
    for unescape, alike in ((_one_level, _is_one_level), (_quotes, _escapes_the_same), (_any, _is_one_line)):
        plain = unescape(old)
        if plain is not None and plain != old:
            yield plain, (unescape(new) or "") if alike(old, new) else new, climb
    yield old.strip(), new.strip(), exactly


def _one_level(text: str) -> str | None:
    """As the inside of a JSON string; null: it isn't one."""
    try:
        return json.loads(f'"{text}"')
    except ValueError:
        return None


def _is_one_level(_: str, new: str) -> bool:
    return _one_level(new) is not None


def _quotes(text: str) -> str:
    """Escapes before quotes only, so that `\\n` inside a literal stays."""
    return _QUOTED.sub(r"\1", text)


def _escapes_the_same(old: str, new: str) -> bool:
    """The kinds of quotes that are escaped in `old` are nowhere without an escape in `new`."""
    return not set(_QUOTED.findall(old)) & set(_UNESCAPED_QUOTE.findall(new))


def _any(text: str) -> str:
    """Every run of escapes, however long (gemini-cli's rule)."""
    return _ESCAPED.sub(lambda found: _SIGN.get(found[1], found[1]), text)


def _is_one_line(_: str, new: str) -> bool:
    return "\n" not in new
