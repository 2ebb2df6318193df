"""edit: place an edit in a text and compute the result, or explain the failure in a way that helps to fix it."""

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from interlock.state.file_names import quote_name
from interlock.tools.file_content import TextFile, line_number_at, split_lines, truncate_line
from interlock.tools.matcher.find import find_exact_match, find_match
from interlock.tools.matcher.windows import Match, Miscount, Span, Strategy, TooMuchWork, WorkBudget
from interlock.tools.text_diff import Comparison

_MOST_NAMED = 20
_HOW = {
    "typography": "but for quotes, dashes or spaces",
    "whitespace": "but for whitespace",
    "tokens": "but for whitespace between words",
    "fuzzy": "nearly",
}
_ESCAPED = re.compile(r"""\\+(n|t|r|"|'|`|\\)""")
_SIGN = {"n": "\n", "t": "\t", "r": "\r"}
_QUOTED = re.compile(r"""\\+(["'`])""")
_UNESCAPED_QUOTE = re.compile(r"""(?<!\\)["'`]""")
_ENTITIES = {
    "&lt;": "<",
    "&gt;": ">",
    "&quot;": '"',
    "&#39;": "'",
    "&#x27;": "'",
    "&apos;": "'",
    "&amp;": "&",
}
_MOST_LINES = 10_000
_MOST_COLUMNS = 300
"""Limits the search for similar lines, which compares every line of the file."""
_COMES, _GOES_ON = re.compile(r"[\w.]"), re.compile(r"\w")
_SIMILAR = 0.6
_ADDED = 10
"""Least characters, but for blanks, of an addition that isn't made twice: closing brackets are."""
_MOST_SHOWN = 12


class EditProblem(NamedTuple):
    """Why an edit can't be made; `code` is listed in `docs/internals.md#reasons-of-a-failed-edit`."""

    code: str
    message: str


@dataclass(frozen=True)
class PlacedEdit:
    """Where an edit goes, and the new text; `repaired`: the strings had to be corrected first."""

    strategy: Strategy
    spans: tuple[Span, ...]
    correction: str = ""
    """The correction, one of `CORRECTIONS`."""

    @property
    def strategy_label(self) -> str:
        """What found it: `exact`, or `trim, then exact`."""
        return f"{self.correction}, then {self.strategy}" if self.correction else self.strategy

    @property
    def difference(self) -> str:
        """How the text found differs from old_string; empty: not at all."""
        if self.correction:
            return "once its escapes or the blanks around it were removed"
        return _HOW.get(self.strategy, "")


_WHAT = r"(?:code|file|content|contents|implementation|body|method|methods|function|functions|class|logic|lines|text)"
_PHRASE = (
    rf"(?:(?:the )?(?:rest|remainder) of (?:(?:the|this|your|our) )?(?:\w+ ){{0,2}}?{_WHAT}"
    rf"|(?:the )?(?:existing|unchanged|remaining|previous|original|other|same) (?:\w+ )?{_WHAT}"
    rf"|{_WHAT} (?:remains?|stays?|is|are) (?:unchanged|the same))"
    r"(?: (?:here|as before|unchanged|remains unchanged|stays the same|omitted))?"
)
_KEPT = r"(?:(?:(?:remains?|stays?|is|are|kept) )?(?:unchanged|the same|omitted|as before|as is)|here)"
_SAME = rf"(?:{_PHRASE}(?: {_KEPT})?|(?:the )?rest {_KEPT}|unchanged|omitted|(?:same )?as before)"
_DOTS = r"(?:\.(?: ?\.){2,}|⋯)"
_REST_OF = rf"(?:{_DOTS}\s*)?\(?(?:the )?rest of(?: the)?\s*{_DOTS}\s*{_DOTS}?\)?"
"""gemini-cli's: no noun, only dots."""
_MARK = r"(?://+|#+|--|/\*+|\*|<!--|\{/\*|;+|%+|\"{1,3}|REM\b|!)"
_COMMENT = rf"(?:{_MARK}|\()?"
_COMMENT_END = r"(?:\*/\}?|-->|\)|\"{3})?"
_LINE = (
    rf"^(?:{_COMMENT}\s*(?:{_DOTS}\s*{_PHRASE}\s*{_DOTS}?|{_PHRASE}\s*{_DOTS}|{_REST_OF})"
    rf"|{_MARK}\s*{_DOTS}\s*(?:(?:the )?rest of (?:\w+ ){{0,3}}\w+|\(?{_SAME}\)?)\s*{_DOTS}?"
    rf"|{_MARK}\s*(?:the )?rest of (?:\w+ ){{1,3}}{_KEPT})\s*{_COMMENT_END}$"
)
_BRACKETED = (
    rf"^{_COMMENT}\s*(?:\[\s*{_REST_OF}\s*\]|\[\s*{_DOTS}?\s*{_PHRASE}(?: {_KEPT})?\s*{_DOTS}?\s*\]"
    rf"|<\s*{_DOTS}?\s*{_PHRASE}(?: {_KEPT})?\s*{_DOTS}?\s*>"
    rf"|\(\s*{_DOTS}?\s*(?:{_PHRASE}(?: {_KEPT})?|unchanged|omitted|rest unchanged)\s*{_DOTS}?\s*\))\s*{_COMMENT_END}$"
)
"""Plain `[unchanged]` doesn't match: settings files have such section names. Compiling both takes 1 % of a start."""
_LONGEST_PLACEHOLDER = 120
"""Maximum characters of a placeholder line; also bounds the regex's work."""


def find_omission_error(text: str, existing_text: str) -> str | None:
    """Return the error for the first line such as `// ... rest of the code ...` that isn't also in `existing_text`."""
    known = {line.strip() for line in existing_text.splitlines()}
    for line in text.splitlines():
        bare = line.strip()
        if len(bare) > _LONGEST_PLACEHOLDER or bare in known:
            continue
        plain = " ".join(unicodedata.normalize("NFKC", bare).split())
        if re.match(_LINE, plain, re.IGNORECASE) or re.match(_BRACKETED, plain, re.IGNORECASE):
            return f"The line {bare!r} stands for omitted text; write out every line of the file."
    return None


def edit_strings_problem(old: str, new: str) -> EditProblem | None:
    """Return what is wrong with the strings themselves, or None."""
    if omitted := find_omission_error(new, existing_text=old):
        return EditProblem("omission_placeholder", omitted)
    if old == new:
        return EditProblem("no_change", "old_string and new_string are the same; nothing would change.")
    return None


def file_already_exists_problem(display_path: str, file: TextFile) -> EditProblem:
    """Return why an empty old_string doesn't work for a file that exists."""
    if not file.text:
        text = (
            f"{quote_name(display_path)} exists and is empty; give it its text with the tool that writes "
            "whole files."
        )
    else:
        text = (
            f"{quote_name(display_path)} exists; an empty old_string only creates new files. Read it and "
            "name a text in it."
        )
    return EditProblem("create_existing", text)


def locate_edit(
    display_path: str,
    text: str,
    old: str,
    new: str,
    expected: int | None,
    *,
    work: WorkBudget,
    only_exact: bool = False,
) -> PlacedEdit | EditProblem:
    """Return where an edit goes, by the first strategy that finds it; or why it has no place."""
    found = (
        find_exact_match(text, old, new, expected)
        if only_exact
        else find_match(text, old, new, expected, work=work)
    )
    if isinstance(found, Match):
        return already_applied_problem(display_path, text, found) or PlacedEdit(found.strategy, found.spans)
    if isinstance(found, Miscount):
        return EditProblem("occurrence_mismatch", _miscount_message(display_path, text, found, expected))
    return EditProblem(
        "no_occurrence",
        f"old_string isn't in {quote_name(display_path)}. {describe_nearest_text(text, old, new, work)}",
    )


def already_applied_problem(display_path: str, text: str, found: Match) -> EditProblem | None:
    """Return a problem if the file has already what an edit adds: it keeps what it looks for, so that a repeated one
    would add it again."""
    if len(found.spans) != 1:
        return None
    span = found.spans[0]
    there, new = text[span.start : span.end], span.new
    for at in {new.find(there), new.rfind(there)}:
        added, begin = new[:at] + new[at + len(there) :], span.start - at
        several = "\n" in added and len("".join(added.split())) >= _ADDED
        if 0 <= at <= span.start and several and text.startswith(new, begin):
            line = line_number_at(text, begin)
            why = (
                f"What the edit would add stands in {quote_name(display_path)} already, from line {line} on."
            )
            again = "To have it there twice, search for more lines."
            return EditProblem("no_change", f"{why} {again}")
    return None


def locate_corrected_edit(
    text: str,
    old: str,
    new: str,
    expected: int | None,
    *,
    work: WorkBudget,
    whole_lines: bool = False,
) -> PlacedEdit | None:
    """Return where an edit goes after the first correction of both strings that yields the expected windows, else
    None."""
    for correction in CORRECTIONS:
        one, other = correction.correct_both(old, new)
        if not one or one == old:
            continue
        if correction.approximate:
            found = find_match(text, one, other, expected, whole_lines=whole_lines, work=work)
        else:
            found = find_exact_match(text, one, other, expected, whole_lines=whole_lines)
        if isinstance(found, Match) and (
            correction.approximate or _has_word_boundaries_at_trimmed_sides(text, found.spans, old)
        ):
            return PlacedEdit(found.strategy, found.spans, correction=correction.name)
    return None


def _has_word_boundaries_at_trimmed_sides(text: str, spans: tuple[Span, ...], old: str) -> bool:
    """Whether no word goes on where `old` has blanks: `    get()` is no part of `budget()` or `a.get()`."""
    begins = not old[:1].isspace() or not any(_COMES.match(text[s.start - 1 : s.start]) for s in spans)
    return begins and (not old[-1:].isspace() or not any(_GOES_ON.match(text, s.end) for s in spans))


def locate_edit_with_corrections(
    display_path: str, text: str, old: str, new: str, expected: int | None, *, work: WorkBudget
) -> PlacedEdit | EditProblem:
    """Return where an edit goes, by everything that needs no model; or why it has no place."""
    found = locate_edit(display_path, text, old, new, expected, work=work)
    if isinstance(found, EditProblem) and found.code == "no_occurrence":
        return locate_corrected_edit(text, old, new, expected, work=work) or found
    return found


def apply_spans(file: TextFile, spans: tuple[Span, ...], *, keep_final_newline: bool = True) -> str:
    """Return the file's new text with its own line endings; a final newline is kept or stays absent."""
    text = file.text
    crlf = file.raw.count("\r\n")
    if 0 < crlf < file.raw.count("\n"):  # mixed line endings: unchanged lines keep theirs
        spans = tuple(small for span in spans for small in _split_span_into_changed_lines(text, span))
    made = file.replace_spans([(span.start, span.end, span.new) for span in spans])
    return match_final_newline(file, made) if keep_final_newline else made


def _split_span_into_changed_lines(text: str, span: Span) -> list[Span]:
    old = text[span.start : span.end].splitlines(keepends=True)
    new = span.new.splitlines(keepends=True)
    at = [span.start]
    for line in old:
        at.append(at[-1] + len(line))
    ops = Comparison(old, new).get_opcodes()
    return [Span(at[i1], at[i2], "".join(new[j1:j2])) for tag, i1, i2, j1, j2 in ops if tag != "equal"]


def _miscount_message(display_path: str, text: str, found: Miscount, expected: int | None) -> str:
    if not found.count:
        return (
            f"old_string is like too many places of {quote_name(display_path)} to be compared with them all. Copy it "
            "exactly, or take lines that stand there only once."
        )
    named = [str(line_number_at(text, place)) for place in found.places[:_MOST_NAMED]]
    lines = ", ".join([*named, "…"] if found.count > len(named) else named)
    how = f" ({_HOW[found.strategy]})" if found.strategy in _HOW else ""
    if found.overlapping:
        return (
            f"old_string stands in {quote_name(display_path)}{how} at places that overlap (lines {lines}), so which "
            "is meant can't be known. Add surrounding lines to old_string."
        )
    return (
        f"old_string stands {found.count} {'time' if found.count == 1 else 'times'} in {quote_name(display_path)}{how} "
        f"(lines {lines}), expected {expected}. Add surrounding lines to old_string, or set expected_replacements."
    )


def _unescape_json_string(text: str) -> str | None:
    """Return a text unescaped as the inside of a JSON string; None: it isn't one."""
    try:
        return json.loads(f'"{text}"')
    except ValueError:
        return None


def _is_json_string_body(_: str, new: str) -> bool:
    return _unescape_json_string(new) is not None


def _is_escaping_ambiguous(old: str, new: str) -> bool:
    """Return whether `new` isn't like `old` but has its lines escaped, too: what its other escapes stand for is
    unknown."""
    return "\\n" in old and "\\n" in new and "\n" not in new and not _is_json_string_body(old, new)


def _unescape_quotes(text: str) -> str:
    """Unescape quotes only, so that `\\n` inside a literal is kept."""
    return _QUOTED.sub(r"\1", text)


def _has_same_escaped_quotes(old: str, new: str) -> bool:
    """Return whether the kinds of quotes escaped in `old` are always escaped in `new` too."""
    return not set(_QUOTED.findall(old)) & set(_UNESCAPED_QUOTE.findall(new))


def _unescape_backslash_sequences(text: str) -> str:
    """Unescape any run of backslashes (gemini-cli's rule)."""
    return _ESCAPED.sub(lambda found: _SIGN.get(found[1], found[1]), text)


def _is_one_line(_: str, new: str) -> bool:
    return "\n" not in new


def _has_escaped_newline_in_quotes(_: str, new: str) -> bool:
    """Return whether an escaped line break stands in quotes, where it may be meant as it is."""
    return any(line.replace('"""', "").count('"') % 2 for line in new.split("\\n"))


def _unescape_html_entities(text: str) -> str:
    for entity, sign in _ENTITIES.items():
        text = text.replace(entity, sign)
    return text


class Correction(NamedTuple):
    """A way to correct both strings of an edit."""

    name: str
    correct: Callable[[str], str | None]
    has_same_fault: Callable[[str, str], bool] = lambda _old, _new: True
    """Whether the new string has the old one's fault, and is corrected too."""
    is_unclear: Callable[[str, str], bool] = lambda _old, _new: False
    """Whether it can't be told if the new string has it."""
    approximate: bool = True
    """Any strategy may find the corrected string, not only the exact one."""

    def correct_both(self, old: str, new: str) -> tuple[str, str]:
        """Return both strings corrected; an empty first one if nothing was to be corrected, or it is unclear what."""
        plain = self.correct(old)
        if plain is None or plain == old or self.is_unclear(old, new):
            return "", new
        return plain, (self.correct(new) or "") if self.has_same_fault(old, new) else new


CORRECTIONS = (
    Correction("unescape as JSON does", _unescape_json_string, _is_json_string_body, _is_escaping_ambiguous),
    Correction("unescape quotes", _unescape_quotes, _has_same_escaped_quotes),
    Correction(
        "unescape everything", _unescape_backslash_sequences, _is_one_line, _has_escaped_newline_in_quotes
    ),
    Correction("unescape HTML", _unescape_html_entities),
    Correction("trim", str.strip, approximate=False),
)
"""In the order in which they are tried."""


def match_final_newline(file: TextFile, raw: str) -> str:
    """`raw` with the file's original ending: with a final newline, or without."""
    if not raw or not file.raw:
        return raw
    ends = ("\n", "\r") if file.newline == "\r" else "\n"
    if file.raw.endswith(ends):
        return raw if raw.endswith(ends) else raw + file.newline
    return raw.removesuffix("\n").removesuffix("\r") if raw.endswith(ends) else raw


def describe_nearest_text(text: str, old: str, new: str, work: WorkBudget) -> str:
    """Return a hint for a model that misses its place: the edit was already made, or the most similar lines."""
    try:
        work.spend(len(text))
    except TooMuchWork:
        return "Read the file again."
    if new.strip() and new in text:
        where = f"line {line_number_at(text, text.find(new))}"
        return f"What it would put there stands at {where} already: the edit may have been made."
    wanted = split_lines(old)
    lines = split_lines(text)
    found = _find_start_and_reason_ignoring_whitespace(
        lines, wanted
    ) or _find_start_and_reason_by_similar_line(lines, wanted)
    if found is None:
        return "Nothing in it is similar; read the file again."
    start, why = found
    shown = lines[start : start + min(len(wanted), _MOST_SHOWN)]
    return f"{why} at line {start + 1}:\n" + "\n".join(
        truncate_line(line, _MOST_COLUMNS, " …") for line in shown
    )


def excerpt_around_similar_lines(text: str, old: str, max_chars: int) -> str:
    """Return about `max_chars` characters of a long text, in whole lines, around those most similar to `old`."""
    lines = split_lines(text)
    found = _find_start_and_reason_ignoring_whitespace(
        lines, split_lines(old)
    ) or _find_start_and_reason_by_similar_line(lines, split_lines(old))
    first = last = found[0] if found else 0
    room = max_chars - len(lines[first])
    while room > 0 and (first > 0 or last < len(lines) - 1):
        if first > 0:
            first -= 1
            room -= len(lines[first]) + 1
        if last < len(lines) - 1:
            last += 1
            room -= len(lines[last]) + 1
    shown = "\n".join(lines[first : last + 1])
    return f"[lines {first + 1} to {last + 1} of {len(lines)}]\n{shown[: 2 * max_chars]}"


def _find_start_and_reason_ignoring_whitespace(lines: list[str], wanted: list[str]) -> tuple[int, str] | None:
    bare = [line.strip() for line in wanted]
    if not any(bare):
        return None
    stripped = "\n".join(["", *(line.strip() for line in lines), ""])
    place = stripped.find("\n".join(["", *bare, ""]))
    if place < 0:
        return None
    return stripped.count("\n", 0, place), "The same text with other whitespace stands"


def _find_start_and_reason_by_similar_line(lines: list[str], wanted: list[str]) -> tuple[int, str] | None:
    """Return where the longest wanted line, which is the most distinctive, is most similar; None: nowhere."""
    from rapidfuzz import process
    from rapidfuzz.distance import Indel

    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    needle = wanted[anchor].strip()[:_MOST_COLUMNS]
    if not needle:
        return None
    candidates = [line.strip()[:_MOST_COLUMNS] for line in lines[:_MOST_LINES]]
    near = process.extractOne(
        needle, candidates, scorer=Indel.normalized_similarity, processor=None, score_cutoff=_SIMILAR
    )
    if near is None:
        return None
    return max(0, near[2] - anchor), "The most similar text stands"
