"""Runs in which helper models work, killed and resumed, end as the undisturbed ones."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent.parent / "kill_runs" / "helpers_program.py"
SEED = int(os.environ.get("KILL_SEED", "20261122"))
STRIDE = 16
"""Of some 640 moments every sixteenth is tried; KILL_SEED moves the first."""


def told(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAM), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    print(found)
    return found


def test_a_kill_while_an_output_is_summarised_or_the_conversation_compressed_changes_nothing() -> None:
    found = told("compressed", SEED % STRIDE, STRIDE)
    assert found["differ"] == []
    assert found["kills"] >= 30
    assert (found["accept"], found["chains"]) == (1, 1), "it was compressed"
    assert found["summarize"] >= 1


def test_a_long_session_with_everything_survives_random_kills() -> None:
    """157 turns: masking, three compressions, a nudge after a loop, a fallback to another model, a continuation."""
    found = told("session", 8, SEED)
    assert found["differ"] == []
    assert found["status"] == "done"
    assert found["kills"] >= 5
    for went in (found["undisturbed"], found["disturbed"]):
        assert went["turns"] >= 150
        assert went["masked"] >= 3
        assert went["chains"] >= 4, "compression and masking each began new ones"
        assert (went["accept"], went["nudge"], went["continue"], went["models"]) == (3, 1, 1, 2)
        assert went["summarize"] >= 2
