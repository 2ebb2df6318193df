"""patterns: regular expressions of rule files. RE2 matches in linear time: no pattern can hold the loop."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from interlock.services.policy.leads import leads_of
from interlock.state.text import clean

_MEMORY = 1 << 20
"""Bytes that one compiled pattern may take; a larger one is refused at load."""
_LONGEST = 2_000
"""Characters of a pattern."""


class PatternError(ValueError):
    """A pattern that can't be used; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. Each match begins with one of `leads`."""

    text: str
    leads: tuple[str, ...]
    _match: Callable[[str], Any]
    _search: Callable[[str], Any]

    def starts(self, text: str) -> bool:
        # Most rules are about other commands: that is cheaper to see without the engine.
        return text.startswith(self.leads) and self._match(clean(text)) is not None

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
    return Pattern(text, leads_of(text), compiled.match, compiled.search)
