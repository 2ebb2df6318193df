"""patterns: regular expressions of rule files. RE2 matches in linear time: no pattern can hold the loop."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from interlock.state.text import clean

_MEMORY = 1 << 20
"""Bytes that one compiled pattern may take; a larger one is refused at load."""
_LONGEST = 2_000
"""Characters of a pattern."""
_RANGE = 100
"""Bytes of a text by which it is known not to match."""
_CHOICE = re.compile(r'((?:\(\?s\))?["\w :/-]*)\((["\w :/|-]+)\)(?=["\w :/-])', re.ASCII)
"""Plain words to choose from (`(curl|wget) …`), which nothing that follows repeats or leaves out."""


class PatternError(ValueError):
    """A pattern that can't be used; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    text: str
    _match: Callable[[str], Any]
    _search: Callable[[str], Any]
    _ranges: Sequence[tuple[bytes, bytes]]
    """Every text that begins with a match lies in one of these."""

    def starts(self, text: str) -> bool:
        return self._match(clean(text)) is not None

    def may_start(self, known: str) -> bool:
        """Whether a text that begins with `known` might begin with a match: false only where the engine proves it."""
        begun = clean(known).encode()
        return any(least[: len(begun)] <= begun <= most for least, most in self._ranges)

    def leads_with(self, text: str) -> bool:
        """All that it matches begins so."""
        return all(end.startswith(text.encode()) for one in self._ranges for end in one)

    def found(self, text: str) -> bool:
        return self._search(clean(text)) is not None


@cache
def _engine() -> tuple[Any, Any]:
    try:
        import re2  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise PatternError("google-re2 isn't installed; run: pip install google-re2") from error
    module = cast(Any, re2)
    options = module.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return module, options


def compile_pattern(text: str) -> Pattern:
    """Raises `PatternError`: back-references and look-around are not in RE2's language."""
    if len(text) > _LONGEST:
        raise PatternError(f"pattern of {len(text)} characters, expected at most {_LONGEST}")
    module, options = _engine()
    try:
        compiled = module.compile(text, options)
    except module.error as error:
        detail = error.args[0] if error.args else ""
        said = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise PatternError(
            f"pattern {text!r}: {said} (RE2 syntax: no look-around, no back-references)"
        ) from None
    choice = _CHOICE.match(text)
    ways = [f"{choice[1]}({way}){text[choice.end() :]}" for way in choice[2].split("|")] if choice else [text]
    return Pattern(text, compiled.match, compiled.search, [_range(way) for way in ways])


def _range(text: str) -> tuple[bytes, bytes]:
    """Of what follows a match, too: an assertion at its end (`\\B`) looks at that."""
    module, options = _engine()
    try:
        return module.compile(f"^(?:{text})(?s:.*)", options).possiblematchrange(_RANGE)
    except module.error:  # an open `\\Q`
        return b"", b"\xff"
