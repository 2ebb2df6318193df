"""A parent with three running sub-agents that is killed ends as the undisturbed one: none lost, nothing done twice."""

import pytest
from kill_runs.started import killed, seed, stride

SHARES = 2


@pytest.mark.parametrize("share", range(SHARES))
def test_random_kills_lose_no_agent_and_repeat_no_step(share: int) -> None:
    """The seed is printed; KILL_SEED sets another."""
    told = killed("agents_program", "random", 20, seed(20261122) + share)
    assert told["differ"] == []
    assert told["kills"] >= 20


def test_kills_at_commits_and_effects_lose_no_agent_and_repeat_no_step() -> None:
    """Every 80th moment of some 2,000; KILL_STRIDE=1 takes all."""
    told = killed("agents_program", "every", 3, stride(80))
    assert told["differ"] == []
    assert told["kills"] >= 15
