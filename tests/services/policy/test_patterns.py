"""Patterns of rule files: linear time, a plain refusal of what RE2 doesn't know, a lead that is true."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.policy.patterns import PatternError, compile_pattern


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "(a)\\1", "(?<!a)b", "a{2000}", "x" * 2001, "*"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_a_pattern_that_holds_pythons_engine_for_ages_answers_at_once() -> None:
    pattern = compile_pattern("(a+)+$|(a|a)*b|(.*)*c")
    started = time.process_time()
    assert not pattern.starts("a" * 50_000 + "!")
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("pattern", "leads"),
    [
        ("git push", "git push"),
        ("^git push", "git push"),
        ("git pu(sh|ll)", "git push,git pull"),
        ("git pu(sh|l+)", "git pu"),
        ("(curl|wget) .*", "curl ,wget "),
        ("(curl|wget)? x", ""),
        ("git (a|b)|svn", ""),
        ("git [|]x", ""),
        ("git [(]|svn", ""),
        ("(?s)git", "git"),
        ("git(?i) x", ""),
        ("\\Qa|b", ""),
        ("git push.*", "git push"),
        ("git pushx?", "git push"),
        ("gits* push", "git"),
        ("a{2}", ""),
        ("(?i)git", ""),
        ("git|svn", ""),
        ("[ab]c", ""),
        ("a+", "a"),
    ],
)
def test_every_match_begins_with_one_of_the_leads(pattern: str, leads: str) -> None:
    assert compile_pattern(pattern).leads == tuple(leads.split(","))


@given(
    st.lists(
        st.sampled_from(
            [*"ab|*?+().^$", "(a|b)", "(?:a|b)", "(?s)", "(?i)", "[ab]", "{0}", "{2}", "\\x61", "\\Q"]
        ),
        max_size=5,
    ),
    st.text("abAB ", max_size=5),
)
def test_looking_at_the_leads_first_never_changes_what_a_pattern_finds(pieces: list[str], text: str) -> None:
    try:
        pattern = compile_pattern("".join(pieces))
    except PatternError:
        return
    assert pattern.starts(text) is (pattern._match(text) is not None)
