"""started: what tests need of the programs that kill: start one, read what it found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal


def killed(program: str, kind: Literal["random", "every"], first: int, second: int) -> dict[str, Any]:
    """`random N SEED` or `every FIRST STRIDE`; it is printed, so that a failing test shows it."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(f"{program}.py")), kind, str(first), str(second)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
        check=False,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    print(told, done.stderr)
    return told


def seed(usual: int) -> int:
    """KILL_SEED sets another."""
    return int(os.environ.get("KILL_SEED", usual))


def stride(usual: int) -> int:
    """KILL_STRIDE sets another; 1 takes every moment, and minutes."""
    return int(os.environ.get("KILL_STRIDE", usual))
