"""Patterns of rule files: linear time, unknown RE2 syntax refused, and prefixes that are certain not to match."""

from typing import Any

import pytest
from folders import table
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interlock.services.policy.rule import PatternError, compile_pattern

TABLE: dict[str, list[Any]] = table(__file__, "rules.yaml")


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "(a)\\1", "(?<!a)b", "a{2000}", "x" * 2001, "*"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_a_pattern_that_holds_pythons_engine_for_ages_answers() -> None:
    pattern = compile_pattern("(a+)+$|(a|a)*b|(.*)*c")
    assert not pattern.has_match_at_start("a" * 50_000 + "!")


@pytest.mark.parametrize(("pattern", "known", "may"), TABLE["patterns"])
def test_a_known_beginning_is_ruled_out_only_where_that_is_certain(
    pattern: str, known: str, may: bool
) -> None:
    assert compile_pattern(pattern).can_match_continuation(known) is may


PIECES = """a b | * ? + ( ) . ^ $ (a|b) (ab|b) (?:a|b) (?s) (?i) (?m) [ab] {0} {2} \\x61 \\Q \\b \\B \\z "command":\""""


@given(
    st.lists(st.sampled_from(PIECES.split()), max_size=6),
    st.text("abAB \n", max_size=5),
    st.integers(0, 5),
)
@settings(max_examples=10 * settings.default.max_examples)
@example(["a", "(?s)", "{0}"], "b", 1)
@example(["a", "\\B"], "ab", 2)
@example(["a", "\\b"], "a ", 2)
def test_no_text_that_matches_begins_with_what_was_ruled_out(pieces: list[str], text: str, cut: int) -> None:
    try:
        pattern = compile_pattern("".join(pieces))
    except PatternError:
        return
    matches = pattern._match(text) is not None  # pyright: ignore[reportPrivateUsage] - without what rules it out
    assert pattern.has_match_at_start(text) == matches
    assert not matches or pattern.can_match_continuation(text[:cut])
    assert not (pattern.has_match_at_start(text) and pattern.is_limited_to_prefix('"command":"'))
