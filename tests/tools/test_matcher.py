"""The edit matcher: each strategy, what it refuses, and that it never chooses."""

from collections.abc import Callable
from typing import Any

import pytest
from folders import table
from hypothesis import assume, given
from hypothesis import strategies as st
from patience import lines_run

from interlock.tools.file_content import TextFile, decode_text_file
from interlock.tools.matcher.edit import EditProblem, apply_spans, locate_edit_with_corrections
from interlock.tools.matcher.find import find_match
from interlock.tools.matcher.windows import Match, Miscount, WorkBudget, replace_spans
from interlock.tools.text_diff import unified_diff

CODE = "def f():\n    if x:\n        a()\n\n        b()\n    return 1\n"
SOURCES = {"CODE": CODE, "TABS": CODE.replace("    ", "\t")}
TABLE: dict[str, list[Any]] = table(__file__, "matcher.yaml")


def made(text: str, old: str, new: str, expected: int | None = 1) -> tuple[str, str]:
    """The strategy and the new text."""
    found = find_match(text, old, new, expected, work=WorkBudget())
    assert isinstance(found, Match), found
    return found.strategy, replace_spans(text, found.spans)


def repaired(text: str, old: str, new: str) -> str:
    found = locate_edit_with_corrections("a", text, old, new, 1, work=WorkBudget())
    assert not isinstance(found, EditProblem), found
    return replace_spans(text, found.spans)


@pytest.mark.parametrize(("text", "old", "new", "strategy", "after"), TABLE["made"])
def test_each_strategy_makes_the_change_that_was_meant(
    text: str, old: str, new: str, strategy: str, after: str | list[str]
) -> None:
    text = SOURCES.get(text, text)
    assert made(text, old, new) == (strategy, after if isinstance(after, str) else text.replace(*after))


@pytest.mark.parametrize(("text", "old"), TABLE["not taken"])
def test_what_is_only_like_it_is_not_taken(text: str, old: str) -> None:
    assert find_match(text, old, "new", 1, work=WorkBudget()) is None


@pytest.mark.parametrize(("text", "old", "expected", "count"), TABLE["miscounted"])
def test_another_number_of_places_is_a_miscount(text: str, old: str, expected: int, count: int) -> None:
    found = find_match(text, old, "new", expected, work=WorkBudget())
    assert isinstance(found, Miscount)
    assert found.count == count


def test_overlapping_places_are_refused_unless_both_ways_give_the_same() -> None:
    for expected in (1, None):
        found = find_match("aaa", "aa", "b", expected, work=WorkBudget())
        assert isinstance(found, Miscount)
        assert found.overlapping
    assert made("aaaa", "aa", "b", 2)[1] == "bb"
    assert made("}\n}\n}\n", "}\n}\n", "}\n")[1] == "}\n}\n"


@pytest.mark.parametrize(("text", "old", "new", "after"), TABLE["mended"])
def test_both_strings_are_mended_alike(text: str, old: str, new: str, after: str) -> None:
    assert repaired(text, old, new) == after


@pytest.mark.parametrize(("text", "old", "new", "code"), TABLE["refused"])
def test_what_would_be_wrong_though_the_place_is_known_is_refused(
    text: str, old: str, new: str, code: str | None
) -> None:
    found = locate_edit_with_corrections("a", SOURCES.get(text, text), old, new, 1, work=WorkBudget())
    assert (found.code if isinstance(found, EditProblem) else None) == code


def test_lines_that_are_not_changed_keep_their_own_ending() -> None:
    file = decode_text_file(b"one\r\ntwo\nthree\r\n")
    assert file is not None
    found = locate_edit_with_corrections(
        "a", file.text, "one\ntwo\nthree\n", "one\n2\nthree\n", 1, work=WorkBudget()
    )
    assert not isinstance(found, EditProblem)
    assert apply_spans(file, found.spans) == "one\r\n2\r\nthree\r\n"


LINE = st.text(st.sampled_from(["a", "b", "(", " ", "\t", "“", '"', "é"]), max_size=6)
TEXT = st.lists(LINE, min_size=1, max_size=7).map("\n".join)
SPOILT = st.sampled_from(
    [
        str.strip,
        str.upper,
        lambda t: t.replace(" ", "  "),
        lambda t: t.replace("\n", "\n\n"),
        lambda t: " " + t,
        lambda t: t,
    ]
)


@given(TEXT, TEXT, st.sampled_from([1, 2, None]), st.data())
def test_text_outside_the_windows_never_changes(
    text: str, new: str, expected: int | None, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text)))
    old = data.draw(SPOILT)(text[start : data.draw(st.integers(start, len(text)))])
    found = find_match(text, old, new, expected, work=WorkBudget())
    assume(isinstance(found, Match))
    assert isinstance(found, Match)
    assert expected in (None, len(found.spans))
    ends = [0, *(span.end for span in found.spans)]
    starts = [*(span.start for span in found.spans), len(text)]
    assert all(0 <= end <= begin for end, begin in zip(ends, starts, strict=True))
    kept = [text[end:begin] for end, begin in zip(ends, starts, strict=True)]
    whole = "".join(k + s.new for k, s in zip(kept, found.spans, strict=False)) + kept[-1]
    assert replace_spans(text, found.spans) == whole


@given(TEXT, st.text(st.sampled_from("abé( "), min_size=1, max_size=8), SPOILT)
def test_the_matcher_never_chooses_between_two_equally_good_windows(
    between: str, block: str, spoil: object
) -> None:
    """The same block twice, on separate lines: no old string justifies a single replacement."""
    assume(block.strip())
    text = f"{block}\n{between}|\n{block}\n"
    old = spoil(block)  # type: ignore[operator]
    found = find_match(text, old, "new", 1, work=WorkBudget())
    if isinstance(found, Match):
        # Found only between the two, better than in them.
        assert len(block) < found.spans[0].start
        assert found.spans[0].end <= len(text) - len(block) - 1


LINE_4 = "    value = compute(1)\n"
REPETITIVE: dict[str, Callable[[int], tuple[str, str, str, int | None]]] = {
    "exact": lambda n: (LINE_4 * n, LINE_4 * (n // 2), "x\n", 1),
    "every one": lambda n: (LINE_4 * n, LINE_4, "  other = 2\n", None),
    "indentation": lambda n: (LINE_4 * n, LINE_4[2:] * (n // 2), "  z\n", 1),
    "indentation, all of it": lambda n: (LINE_4 * n, LINE_4[2:] * n, LINE_4[2:] * n + "  z\n", 1),
    "two lines": lambda n: ("a = 1\nb = 2\n" * n, " a = 1\n b = 2\n" * n, " a = 1\n c = 2\n" * n, 1),
    "blank lines": lambda n: ("a = 1\n\n" * n, "a = 1\n" * n, "a = 1\nb = 2\n" * n, 1),
    "nearly": lambda n: (LINE_4 * n, "  valeu = compute(1)\n" * (n // 2), "z\n", 1),
    "nothing": lambda n: (LINE_4 * n, "unlike any of it at all\n" * (n // 2), "z\n", 1),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", REPETITIVE)
def test_an_edit_of_repeated_lines_takes_time_by_their_number_not_by_its_square(name: str) -> None:
    """Counted in executed lines of Python. Below 3,000 lines, near matches are compared pairwise."""
    least = 3_000 if name == "nearly" else 600
    few, many = (lines_run(lambda n=n: _edited(*REPETITIVE[name](n))) for n in (least, 4 * least))
    assert many < 8 * few + 100_000


def _edited(text: str, old: str, new: str, expected: int | None) -> None:
    found = locate_edit_with_corrections("a", text, old, new, expected, work=WorkBudget())
    if not isinstance(found, EditProblem):
        after = apply_spans(TextFile(text), found.spans)
        unified_diff("a", text.encode(), after.encode())


def test_too_many_places_to_compare_are_refused_not_searched_for_ever() -> None:
    text = "a b c d e f g h i\n" * 50_000 + "zz\n"
    old = "a  b c d e f g h i\n" * 400 + "zz zz\n"
    found = locate_edit_with_corrections("a", text, old, "x", 1, work=WorkBudget())
    assert isinstance(found, EditProblem)
    assert "too many places" in found.message


LINES = st.lists(st.sampled_from(["a", "b", "c", "}", ""]), max_size=40)
