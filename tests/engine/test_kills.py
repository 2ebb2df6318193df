"""A run that is killed ends as the undisturbed one (`engine.md`, What "the same" means in a kill test)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent.parent / "kill_runs" / "program.py"
SHARES = 4
"""The work is cut in shares, for the workers of the suite."""


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
def test_random_kills_change_nothing(share: int) -> None:
    """200 in all. The seed is printed; KILL_SEED sets another."""
    seed = int(os.environ.get("KILL_SEED", "20261121")) + share
    told = killed("random", 200 // SHARES, seed)
    assert told["differ"] == []
    assert told["kills"] >= 200 // SHARES


@pytest.mark.parametrize("share", range(SHARES))
def test_a_kill_at_any_commit_or_effect_changes_nothing(share: int) -> None:
    told = killed("every", share, SHARES)
    assert told["differ"] == []
    assert told["kills"] >= 50
    assert told["asked"] >= 1, "no kill came between a command's intent and its end"
