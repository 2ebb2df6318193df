"""A long session that compresses, masks, is nudged, loses its model and is told to go on, killed again and again."""

from kill_runs.started import killed, seed


def test_a_long_session_that_is_killed_ends_as_the_undisturbed_one() -> None:
    """The seed is printed; KILL_SEED sets another."""
    told = killed("session_program", "random", 4, seed(20261121))
    assert told["differ"] == []
    assert told["status"] == "done"
    assert told["kills"] >= 4
    crossed = told["crossed"]
    assert crossed.pop("turns") >= 150
    assert min(crossed.values()) >= 1, crossed
