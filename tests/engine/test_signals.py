"""Ctrl-C once stops cleanly, twice ends the process (`docs/internals.md#stopping`)."""

import asyncio
import os
import pty
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import HANG_S, until
from warm import Warm

from interlock.engine.driver.stop import handle_signals, stop_on_signals

DRIVEN = Path(__file__).with_name("driven.py")


def start(deed: str, **options: Any) -> Warm:
    return Warm([deed], program=DRIVEN, cwd=Path.cwd(), env=os.environ, stdout=subprocess.PIPE, **options)


def lines(process: Warm, count: int) -> list[str]:
    assert process.stdout
    return [process.stdout.readline().strip() for _ in range(count)]


def finish(process: Warm) -> int:
    try:
        return process.wait(timeout=HANG_S)
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def press_again(process: Warm, number: signal.Signals) -> None:
    time.sleep(0.3)  # longer than an echo of the first
    process.send_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_cleanly_and_after_the_drive_they_mean_what_they_meant_before(
    number: signal.Signals,
) -> None:
    process = start("after")
    assert lines(process, 1) == ["driving"]
    process.send_signal(number)
    assert lines(process, 2) == ["stopping signal", "parked"]
    process.send_signal(signal.SIGTERM)
    assert finish(process) == -signal.SIGTERM


@pytest.mark.parametrize("deed", ["slow", "busy"])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process_at_once(deed: str, second: signal.Signals) -> None:
    process = start(deed)
    lines(process, 1)
    process.send_signal(signal.SIGINT)
    assert lines(process, 1) == ["stopping signal"]
    press_again(process, second)
    assert finish(process) == 130


def test_an_echo_of_the_first_signal_is_not_a_second() -> None:
    """`timeout` sends one to its child, and another right after that to the group of both."""
    process = start("brief")
    lines(process, 1)
    process.send_signal(signal.SIGSTOP)  # so that both are pending when it continues
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    assert lines(process, 2) == ["stopping signal", "parked"]
    assert finish(process) == 0


def test_the_second_signal_restores_the_terminal() -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    process = start("raw", stdin=slave, terminal=True)
    try:
        lines(process, 1)
        process.send_signal(signal.SIGINT)
        lines(process, 1)
        until(lambda: termios.tcgetattr(slave) != before)
        press_again(process, signal.SIGINT)
        assert finish(process) == 130
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(master)
        os.close(slave)


def test_a_hang_up_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handle_signals():
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_IGN, signal.SIG_DFL)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_before_the_drive_begins_stops_it() -> None:
    """Even before asyncio would install a handler of its own."""
    seen = list[bool]()

    async def drive() -> None:
        told = asyncio.Event()
        with stop_on_signals(told.set):
            seen.append(told.is_set())

    before = handlers()
    with handle_signals():
        os.kill(os.getpid(), signal.SIGINT)
        asyncio.run(drive())
    assert (seen, handlers()) == ([True], before)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def test_handlers_are_restored_also_after_an_error() -> None:
    async def drive() -> None:
        before = handlers()
        with pytest.raises(RuntimeError), stop_on_signals(lambda: None):
            assert handlers() != before
            raise RuntimeError
        assert handlers() == before

    asyncio.run(drive())


def test_drives_that_overlap_are_all_stopped_and_the_last_restores() -> None:
    async def drive(stop: Callable[[], None], started: asyncio.Event, told: asyncio.Event) -> None:
        with stop_on_signals(stop):
            started.set()
            await told.wait()

    async def main() -> None:
        before = handlers()
        first, second = asyncio.Event(), asyncio.Event()
        tasks: list[asyncio.Task[None]] = []
        for told in (first, second):
            started = asyncio.Event()
            tasks.append(asyncio.create_task(drive(told.set, started, told)))
            await started.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(asyncio.gather(*tasks), HANG_S)
        assert handlers() == before

    asyncio.run(main())


def test_a_drive_is_still_stopped_when_one_beside_it_is_over() -> None:
    async def drive(told: asyncio.Event) -> None:
        with stop_on_signals(told.set):
            await told.wait()

    async def main() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        over, goes_on = (asyncio.create_task(drive(token)) for token in (first, second))
        await asyncio.sleep(0)
        first.set()
        await over
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(goes_on, HANG_S)

    asyncio.run(main())


def test_a_drive_that_begins_after_the_signal_is_stopped_too() -> None:
    async def main() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        with stop_on_signals(first.set):
            os.kill(os.getpid(), signal.SIGTERM)
            await first.wait()
            with stop_on_signals(second.set):
                assert second.is_set()

    asyncio.run(main())


def test_outside_the_main_thread_nothing_is_installed() -> None:
    before, inside = handlers(), list[bool]()

    async def drive() -> None:
        with stop_on_signals(lambda: None):
            inside.append(handlers() == before)

    thread = threading.Thread(target=lambda: asyncio.run(drive()))
    thread.start()
    thread.join()
    assert inside == [True]
