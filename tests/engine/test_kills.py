"""A run that is killed ends as the undisturbed one (`engine.md`, What "the same" means in a kill test)."""

import pytest
from kill_runs.started import killed, seed

SHARES = 2
"""The work is cut in shares, for the workers of the suite."""


@pytest.mark.parametrize("share", range(SHARES))
def test_random_kills_change_nothing(share: int) -> None:
    """200 in all. The seed is printed; KILL_SEED sets another."""
    told = killed("program", "random", 200 // SHARES, seed(20261121) + share)
    assert told["differ"] == []
    assert told["kills"] >= 200 // SHARES


@pytest.mark.parametrize("share", range(SHARES))
def test_a_kill_at_any_commit_or_effect_changes_nothing(share: int) -> None:
    told = killed("program", "every", share, SHARES)
    assert told["differ"] == []
    assert told["kills"] >= 200 // SHARES
    assert told["asked"] >= 1, "no kill came between a command's intent and its end"
