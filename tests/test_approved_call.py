"""What somebody who follows one approved call has to open: the figures only get smaller."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = Path(__file__).parent.parent / "benchmarks" / "modules.py"
AT_MOST = {
    "first y of a session": (99, 905),
    "later y of a session": (97, 817),
    "interlock resume": (116, 1224),
}
"""Modules and functions. Python 3.11 counts each comprehension as a function, later versions not all of them."""


def _exceeded() -> dict[str, tuple[int, int]]:
    """Measure; return the figures that are above `AT_MOST`."""
    done = subprocess.run(
        [sys.executable, str(MEASURE), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    counted = {where: (len(modules), sum(map(len, modules.values()))) for where, modules in found.items()}
    return {where: both for where, both in counted.items() if any(map(int.__gt__, both, AT_MOST[where]))}


@pytest.mark.sweep
def test_an_approved_call_enters_no_more_modules_and_functions_than_before() -> None:
    # Once more: on a busy machine, what another thread does now and then can fall into the time that is measured.
    more = _exceeded() and _exceeded()
    assert not more, f"at most {AT_MOST}; see which: benchmarks/modules.py --list"
