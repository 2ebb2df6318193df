"""started: what tests need of the programs that kill: start one, read what it found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal


def killed(
    program: str, kind: Literal["random", "every", "states"], first: int, second: int
) -> dict[str, Any]:
    """`random N SEED`, `every|states FIRST STRIDE`. What it found is printed, so that a failing test shows it."""
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
