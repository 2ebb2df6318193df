"""patience: how tests wait and count work, so that no result depends on how busy the machine is."""

import os
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

HANG_S = 120.0
"""Seconds that only a hang takes: whatever a test waits for happens long before."""


def sweep_part() -> tuple[int, int]:
    """Which part of the sweeps is tried, and of how many: SWEEP_PART=1/3 takes the second of three."""
    part, _, of = os.environ.get("SWEEP_PART", "0/1").partition("/")
    return int(part), int(of)


def until(holds: Callable[[], object], what: str = "it") -> None:
    """Wait until the condition holds. Longer waits look more seldom: what they wait for needs the processor, too."""
    begun = time.monotonic()
    while not holds():
        waited = time.monotonic() - begun
        assert waited < HANG_S, f"{what} never came"
        time.sleep(min(max(waited / 10, 0.002), 0.05))


def lines_run(deed: Callable[[], object]) -> int:
    """How many lines of Python a call runs: the same on every machine, busy or not."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        deed()
    finally:
        sys.settrace(before)
    return lines
