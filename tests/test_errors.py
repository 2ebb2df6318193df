"""Texts of errors, wherever they are shown."""

import pytest

from interlock.state.errors import InterlockError, UserError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It can't be read: No such file..", "It can't be read: No such file."),
        ("Failed: No key 'x'.. Set one.", "Failed: No key 'x'. Set one."),
        ("Waiting ...", "Waiting ..."),
        ("There is no '..' here: cd ..", "There is no '..' here: cd .."),
        ("One sentence.", "One sentence."),
    ],
)
def test_an_error_that_quotes_a_sentence_ends_in_one_full_stop(text: str, shown: str) -> None:
    assert (str(InterlockError(text)), f"{UserError(text)}") == (shown, shown)
