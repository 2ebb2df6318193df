"""overflow: the context window that a server names when it refuses a request as too long."""

import re
from typing import NamedTuple

_NUMBER = r"(\d[\d,_.]*\d|\d)"
_LIMITS = (
    re.compile(rf"(?:>|<=) *{_NUMBER}(?!\d)"),
    re.compile(rf"with {_NUMBER} maximum", re.I),
    re.compile(
        r"(?:tokens allowed|context (?:length|window|size|limit)|maximum|limit|n_ctx|up to|at most|allowed)"
        rf"[^\d\n]{{0,40}}?{_NUMBER}(?!\d)(?! *\+)",
        re.I,
    ),
)
"""How servers name the limit: the first that matches counts."""
_COUNTS = re.compile(_NUMBER)
_LEAST, _MOST = 256, 50_000_000
"""Tokens that a window can have."""


class OverflowLimits(NamedTuple):
    """What a server says of a request that is too long; 0: it doesn't."""

    window: int
    counted: int


def read_overflow_limits(text: str) -> OverflowLimits:
    """Return the window and the request's tokens that the text of a refusal names."""
    found = (match for limit in _LIMITS for match in limit.finditer(text))
    window = next((n for match in found if _LEAST <= (n := _parse_number(match[1])) <= _MOST), 0)
    numbers = [n for match in _COUNTS.finditer(text) if (n := _parse_number(match[1])) <= _MOST]
    counted = max((n for n in numbers if n > window), default=0) if window else 0
    return OverflowLimits(window, counted)


def _parse_number(text: str) -> int:
    return int(re.sub(r"\D", "", text))
