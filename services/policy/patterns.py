"""patterns: regular expressions of rule files. RE2 matches in linear time: no pattern can hold the loop."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

_MEMORY = 1 << 20
"""Bytes that one compiled pattern may take; a larger one is refused at load."""
_LONGEST = 2_000
"""Characters of a pattern."""


class PatternError(ValueError):
    """A pattern that can't be used; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. `lead`: text that all its matches begin with, as far as that is plain to see."""

    text: str
    lead: str
    _match: Callable[[str], Any]
    _search: Callable[[str], Any]

    def starts(self, text: str) -> bool:
        return self._match(text) is not None

    def found(self, text: str) -> bool:
        return self._search(text) is not None


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
    return Pattern(text, _lead(text), compiled.match, compiled.search)


def _lead(text: str) -> str:
    """The plain characters that a pattern begins with; empty where an alternative may begin differently."""
    if "|" in text or text.startswith("(?"):
        return ""
    body = text.removeprefix("^")
    size = next((i for i, c in enumerate(body) if not (c.isalnum() or c in " _-/=,:@%")), len(body))
    optional = size < len(body) and body[size] in "*?{"
    return body[: size - 1 if optional else size]
