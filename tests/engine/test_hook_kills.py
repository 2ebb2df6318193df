"""A run with hooks that is killed ends as the undisturbed one, and no hook ran twice behind anybody's back."""

import pytest
from kill_runs.started import killed, stride


@pytest.mark.parametrize("program", ["hooks_program", "calls_program"])
def test_a_kill_around_hooks_changes_nothing(program: str) -> None:
    """Of prompts, requests and answers; and of calls, with the record of who decided what of them."""
    every = stride(43)
    told = killed(program, "every", 0, every)
    assert told["differ"] == []
    assert told["kills"] >= 300 // every
