"""A run with hooks that is killed ends as the undisturbed one, and no hook ran twice behind anybody's back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent.parent / "kill_runs"
STRIDE = int(os.environ.get("HOOK_KILL_STRIDE", "43"))
"""Every so many-th commit or command is one that kills; 1 takes minutes."""


@pytest.mark.parametrize("program", ["hooks_program.py", "calls_program.py"])
def test_a_kill_around_hooks_changes_nothing(program: str) -> None:
    """Of prompts, requests and answers; and of calls, with the record of who decided what of them."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / program), "0", str(STRIDE)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
        check=False,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    print(told)
    assert told["differ"] == []
    assert told["kills"] >= 300 // STRIDE
