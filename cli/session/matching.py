"""matching: which of many names a few typed letters mean, the best first."""

import re
from collections.abc import Sequence
from heapq import nsmallest


class Names:
    """Names that are looked through again and again, as letters are typed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._lower = [name.lower() for name in names]

    def matching(self, typed: str, most: int) -> list[int]:
        """Places of the names that have the typed letters in this order, whatever their case; the likeliest first."""
        wanted = typed.lower()
        if not wanted:
            return list(range(min(most, len(self._names))))
        # Each letter up to its first occurrence: one pass over a name, whatever is typed.
        pattern = re.compile("".join(f"[^{_in_class(c)}]*{re.escape(c)}" for c in wanted), re.DOTALL)
        found = (place for place, name in enumerate(self._lower) if pattern.match(name))
        return nsmallest(most, found, key=lambda place: self._rank(place, wanted))

    def _rank(self, place: int, wanted: str) -> tuple[int, int, int]:
        name = self._lower[place]
        last = name.rstrip("/").rpartition("/")[2]
        tests = (
            name == wanted,
            last.startswith(wanted),
            name.startswith(wanted),
            wanted in last,
            wanted in name,
        )
        kind = next((number for number, holds in enumerate(tests) if holds), len(tests))
        return kind, len(name), place


def _in_class(letter: str) -> str:
    return f"\\{letter}" if letter in "\\]^-[&~|" else letter
