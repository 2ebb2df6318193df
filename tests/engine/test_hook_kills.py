"""A run with hooks that is killed ends as the undisturbed one, and no hook ran twice behind anybody's back."""

import pytest
from kill_runs.started import killed, stride


@pytest.mark.parametrize(("program", "usual"), [("hooks_program", 9), ("calls_program", 43)])
def test_a_kill_around_hooks_changes_nothing(program: str, usual: int) -> None:
    """Of prompts, requests and answers; and of calls, with the record of who decided what of them."""
    every = stride(usual)
    told = killed(program, "every", 0, every)
    assert told["differ"] == []
    assert told["kills"] >= 300 // every
    assert told["asked"] >= 1
