"""A long session that compresses, masks, is nudged, loses its model and is told to go on, killed again and again."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent.parent / "kill_runs" / "session_program.py"


def test_a_long_session_that_is_killed_ends_as_the_undisturbed_one() -> None:
    """The seed is printed; KILL_SEED sets another."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), os.environ.get("KILL_SEED", "20261121")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
        check=False,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    print(told)
    assert told["differ"] == []
    assert told["status"] == "done"
    assert told["kills"] >= 4
    crossed = told["crossed"]
    assert crossed.pop("turns") >= 150
    assert min(crossed.values()) >= 1, crossed
