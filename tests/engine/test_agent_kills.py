"""A parent with three running sub-agents that is killed ends as the undisturbed one: none lost, nothing done twice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent.parent / "kill_runs" / "agents_program.py"
SHARES = 2


def killed(kind: str, first: int, second: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(first), str(second)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
        check=False,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    print(told)
    return told


@pytest.mark.parametrize("share", range(SHARES))
def test_random_kills_lose_no_agent_and_repeat_no_step(share: int) -> None:
    """The seed is printed; KILL_SEED sets another."""
    seed = int(os.environ.get("KILL_SEED", "20261122")) + share
    told = killed("random", 20, seed)
    assert told["differ"] == []
    assert told["kills"] >= 20


def test_kills_at_commits_and_effects_lose_no_agent_and_repeat_no_step() -> None:
    """Every 80th moment of some 2,000; KILL_STRIDE=1 takes all."""
    told = killed("every", 3, int(os.environ.get("KILL_STRIDE", "80")))
    assert told["differ"] == []
    assert told["kills"] >= 15
