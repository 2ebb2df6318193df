"""targets: which of a project's named commands concern tests: by their names, a command line, and what they run."""

import re
from collections.abc import Iterable, Mapping

_TESTS = re.compile(r"test|spec|check|cover|verify|^ci$|^ci[-_:.]|^(pre|post)?t$", re.IGNORECASE)
_WORD = re.compile(r"[\w:.@/-]+")


def find_test_targets(old: Mapping[str, str], new: Mapping[str, str], words: Iterable[str]) -> set[str]:
    """Return the names, of targets of before and today, that concern tests; `words`: those of the check's line."""
    known = {*old, *new}
    wanted = known & {*words} | {name for name in known if _TESTS.search(name)}
    pending = [*wanted]
    while pending:
        name = pending.pop()
        run = {w for text in (old.get(name, ""), new.get(name, "")) for w in _WORD.findall(text)}
        around = {f"{when}{name}" for when in ("pre", "post")}
        found = (known & (run | around)) - wanted
        wanted |= found
        pending += found
    return wanted
