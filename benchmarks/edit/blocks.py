"""blocks: the same corpus as search/replace blocks for `apply_diff`, with line hints that are right, nearly, or wrong.

An ambiguous edit must be applied where the hint says, or be refused; nothing may be changed anywhere else.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from case import Case, Seed, seeds
from corpus import MAKERS, cases
from slips import by_line

from interlock.tools.apply_diff import apply_blocks
from interlock.tools.file_content import decode_text_file
from interlock.tools.matcher.blocks import OFF, parse_blocks
from interlock.tools.matcher.windows import WorkBudget

_MARKERS = re.compile(r"(?m)^(?=\\?(?:<{7}|={7}|>{7}|-{7}|:start_line:|:end_line:))")
HINTS = ("none", "right", "a few lines off", "of another state")
_TWICE = "repeated anchors"


def as_diff(old: str, new: str, line: int) -> str:
    hint = f":start_line:{line}\n-------\n" if line else ""
    old, new = (_MARKERS.sub(r"\\", text.replace("\r\n", "\n")) for text in (old, new))
    return f"<<<<<<< SEARCH\n{hint}{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def by_apply_diff(before: bytes, old: str, new: str, line: int | None) -> bytes | None:
    """The file as `apply_diff` would write it."""
    file = decode_text_file(before)
    assert file is not None
    work = apply_blocks("file", file, parse_blocks(as_diff(old, new, line or 0)), WorkBudget())
    after = file.encode(work.final_text)
    return None if not work.places or after == before else after


def hinted_cases(random: Random, texts: list[str], per_kind: int, hint: str) -> Iterator[Case]:
    """As many cases of each class as `cases` yields; `expected`, which the edit gets, holds the line hint here."""
    for case in cases(random, texts, per_kind):
        if case.kind != _TWICE:
            file = decode_text_file(case.before)
            yield replace(case, expected=_hint(random, file.text if file else "", case.where[0], hint))
    stream = seeds(random, texts)
    for _ in range(per_kind if _TWICE in MAKERS else 0):
        yield _twice(random, next(stream), hint)


def _hint(random: Random, text: str, start: int, hint: str) -> int:
    line = text.count("\n", 0, start) + 1
    far = {"none": 0, "right": 0, "a few lines off": random.randint(1, OFF)}.get(
        hint, random.randint(60, 400)
    )
    return 0 if hint == "none" else max(1, line + random.choice((-1, 1)) * far)


def _twice(random: Random, seed: Seed, hint: str) -> Case:
    """A case with the window repeated at the end of the file: either may be meant."""
    text = f"{seed.text}\n{seed.old}\n"
    starts = (seed.start, len(seed.text) + 1)
    start = random.choice(starts)
    line = _hint(random, text, start, hint)
    told = any(abs(line - text.count("\n", 0, place) - 1) <= OFF for place in starts)
    if told and hint == "of another state":  # by chance it names one of them
        return _twice(random, seed, hint)
    right = text[:start] + seed.new + text[start + len(seed.old) :]
    spoil = random.choice((str, by_line(lambda one: "  " + one)))
    return Case(
        f"twice, hint {hint}"[:20],
        text.encode(),
        spoil(seed.old),
        spoil(seed.new),
        right.encode() if told else None,
        expected=line,
        where=(start, start + len(seed.old)),
    )
