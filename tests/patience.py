"""patience: how tests wait and count work, so that no result depends on how busy the machine is."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

HANG_S = 120.0
"""Seconds that only a hang takes: whatever a test waits for happens long before."""


def sweep_part() -> tuple[int, int]:
    """Which part of the sweeps is tried, and of how many: SWEEP_PART=1/3 takes the second of three."""
    part, _, of = os.environ.get("SWEEP_PART", "0/1").partition("/")
    return int(part), int(of)


def sampled(cases: Iterable[str], *always: str) -> list[Any]:
    """Parameters of a test that each suite tries with the cases named, and the sweeps with the others."""
    return [
        pytest.param(case, marks=[] if case in always else [pytest.mark.sweep], id=case) for case in cases
    ]


def until(holds: Callable[[], object], what: str = "it") -> None:
    """Wait until the condition holds. Longer waits look more seldom: what they wait for needs the processor, too."""
    begun = time.monotonic()
    while not holds():
        waited = time.monotonic() - begun
        assert waited < HANG_S, f"{what} never came"
        time.sleep(min(max(waited / 10, 0.002), 0.05))


@contextmanager
def interrupted_at_a_delay() -> Generator[None]:
    """Press Ctrl-C when a scripted reply keeps a run waiting, however long the run took to ask for it."""

    async def sleep(seconds: float) -> None:
        if seconds:
            os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interlock.services.models.script.asyncio", SimpleNamespace(sleep=sleep))
        yield


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
