"""started: starts a killing program for a test, and reads its findings."""

import json
import os
from pathlib import Path
from typing import Any

import warm
from databases import IN_POSTGRESQL, fresh_database


def killed(program: str, kind: str, first: int, second: int) -> dict[str, Any]:
    """`random N SEED`, `every|states FIRST STRIDE`, of `stops` `NAME FIRST STRIDE`.

    Prints the findings, so that a failing test shows them.
    """
    done = warm.run(
        [kind, str(first), str(second)],
        program=Path(__file__).with_name(f"{program}.py"),
        cwd=Path.cwd(),
        env={**({"KILL_STORE": fresh_database()} if IN_POSTGRESQL else {}), **os.environ, "PYTHONPATH": ""},
        timeout=None,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    print(told, done.stderr)
    return told


def seed(usual: int) -> int:
    """KILL_SEED, or else the usual seed."""
    return int(os.environ.get("KILL_SEED", usual))
