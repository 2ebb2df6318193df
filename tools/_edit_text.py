"""edit_text: an edit of a text: where it goes, what comes out, or why not, in words that help to do better."""

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

from interlock.tools._ladder import Match, Miscount, Span, Strategy, climb, exactly
from interlock.tools._ladder_repair import mended
from interlock.tools._matching import nearest_text, with_final_newline
from interlock.tools._omissions import omission, omission_message
from interlock.tools._text import TextFile, line_at

_MOST_NAMED = 20
_HOW = {
    "typography": "but for quotes, dashes or spaces",
    "whitespace": "but for whitespace",
    "tokens": "but for whitespace between words",
    "fuzzy": "nearly",
}


class Problem(NamedTuple):
    """Why an edit can't be made; `code` as `pipelines.md` §5 lists them."""

    code: str
    message: str


@dataclass(frozen=True)
class Placed:
    """Where an edit goes and what comes there; `repaired`: with strings that had to be mended first."""

    strategy: Strategy
    spans: tuple[Span, ...]
    repaired: bool = False

    @property
    def how(self) -> str:
        """How the text that was found differs from old_string; empty: not at all."""
        if self.repaired:
            return "once its escapes or the blanks around it were removed"
        return _HOW.get(self.strategy, "")


def unusable(old: str, new: str) -> Problem | None:
    """What is wrong with the strings themselves."""
    if line := omission(new, allowed=old):
        return Problem("omission_placeholder", omission_message(line))
    if old == new:
        return Problem("no_change", "old_string and new_string are the same; nothing would change.")
    return None


def placed(
    shown: str, text: str, old: str, new: str, expected: int | None, *, only_exact: bool = False
) -> Placed | Problem:
    """The rungs of the ladder; `no_occurrence` when none of them finds anything."""
    found = (exactly if only_exact else climb)(text, old, new, expected)
    if isinstance(found, Match):
        return Placed(found.strategy, found.spans)
    if isinstance(found, Miscount):
        return Problem("occurrence_mismatch", _mismatch(shown, text, found, expected))
    return Problem("no_occurrence", f"old_string isn't in {shown!r}. {nearest_text(text, old, new)}")


def repaired(text: str, old: str, new: str, expected: int | None) -> Placed | None:
    """With both strings mended alike, without a model."""
    found = mended(text, old, new, expected)
    return None if found is None else Placed(found.match.strategy, found.match.spans, repaired=True)


def placed_or_repaired(shown: str, text: str, old: str, new: str, expected: int | None) -> Placed | Problem:
    """All that is tried without a model."""
    found = placed(shown, text, old, new, expected)
    if isinstance(found, Problem) and found.code == "no_occurrence":
        return repaired(text, old, new, expected) or found
    return found


def raw_after(file: TextFile, spans: tuple[Span, ...]) -> str:
    """The file's new text with its own line endings; it ends with one as before, or without one."""
    text = file.text
    crlf = file.raw.count("\r\n")
    if 0 < crlf < file.raw.count("\n"):  # both kinds: lines that aren't changed keep theirs
        spans = tuple(small for span in spans for small in _smallest(text, span))
    return with_final_newline(file, file.splice([(span.start, span.end, span.new) for span in spans]))


def _smallest(text: str, span: Span) -> list[Span]:
    """The lines that change."""
    old = text[span.start : span.end].splitlines(keepends=True)
    new = span.new.splitlines(keepends=True)
    at = [span.start]
    for line in old:
        at.append(at[-1] + len(line))
    ops = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [Span(at[i1], at[i2], "".join(new[j1:j2])) for tag, i1, i2, j1, j2 in ops if tag != "equal"]


def _mismatch(shown: str, text: str, found: Miscount, expected: int | None) -> str:
    named = [str(line_at(text, place)) for place in found.places[:_MOST_NAMED]]
    lines = ", ".join([*named, "…"] if found.count > len(named) else named)
    how = f" ({_HOW[found.strategy]})" if found.strategy in _HOW else ""
    if found.overlapping:
        return (
            f"old_string stands in {shown!r}{how} at places that overlap (lines {lines}), so which is meant can't be"
            " known. Add surrounding lines to old_string."
        )
    return (
        f"old_string stands {found.count} {'time' if found.count == 1 else 'times'} in {shown!r}{how} (lines {lines}),"
        f" expected {expected}. Add surrounding lines to old_string, or set expected_replacements."
    )
