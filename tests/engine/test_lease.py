"""One driver per run, with real processes (`docs/internals.md#one-driver`)."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm
from patience import HANG_S, until

from interlock.engine.driver import lease as leases
from interlock.engine.driver.lease import Lease, acquire_lease
from interlock.engine.store import Store
from interlock.engine.store.leases import read_lease
from interlock.services.process.identity import (
    current_process_identity,
    host_and_pid_namespace,
    process_start_time,
)
from interlock.state.errors import BusyError

SCRIPT = Path(__file__).with_name("lease_process.py")
Start = Callable[..., "Process"]


class Process:
    """A real separate process, and its output."""

    def __init__(self, home: Path, run: str, deed: str, **options: object) -> None:
        words = [str(home), run, deed, *(f"{key}={value}" for key, value in options.items())]
        read, write = os.pipe()
        self.fork = warm.Warm(
            words, cwd=home, env=os.environ, stdin=read, stdout=subprocess.PIPE, program=SCRIPT
        )
        os.close(read)
        self.pid = self.fork.pid
        self._stdin = os.fdopen(write, "w")

    def line(self) -> str:
        assert self.fork.stdout
        return self.fork.stdout.readline().strip()

    def go_on(self) -> None:
        self._stdin.write("\n")
        self._stdin.flush()

    def tell_to_end(self) -> None:
        self._stdin.close()

    def wait_until_stopped(self) -> None:
        until(lambda: state_of(self.pid) == "T", "the stop of the owner")

    def send(self, number: signal.Signals) -> None:
        self.fork.send_signal(number)

    def end(self) -> None:
        self.fork.kill()
        self.fork.ends()
        self._stdin.close()


def execute(store: Store, sql: str) -> None:
    with closing(store.connect()) as conn:
        conn.execute_raw(sql)


def rows(store: Store, sql: str) -> list[tuple[object, ...]]:
    with closing(store.connect()) as conn:
        return conn.execute(sql).fetchall()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def start(store: Store) -> Iterator[Start]:
    started: list[Process] = []

    def begin(run: str, deed: str, **options: object) -> Process:
        started.append(Process(store.home, run, deed, **options))
        return started[-1]

    yield begin
    for process in started:
        process.end()


def take(store: Store, stale_after_s: float = 30, *, wait: bool = True) -> Lease:
    return asyncio.run(acquire_lease(store, "r", stale_after_s=stale_after_s, wait_if_alive=wait))


def test_a_run_that_the_store_did_not_take_back_is_given_back_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A living process that holds a run in silence would be ended by the run's next driver."""
    monkeypatch.setattr(leases, "_PATIENCE_S", 0.1)
    mine = take(store, stale_after_s=0.6)
    with closing(store.connect()) as other:
        with other.transaction():
            other.execute_raw("update lease set beat = beat + 1 where run = 'r'")
            mine.release()
            with closing(store.connect()) as third:
                assert (row := read_lease(third, "r")) and row.held
        until(lambda: (row := read_lease(other, "r")) and not row.held, "the run to be given back")


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't watch a lease's owner before taking it over."""

    async def watched(*_: object) -> None:
        pytest.fail("it waited for an owner that is gone")

    monkeypatch.setattr("interlock.engine.driver.lease._wait_for_or_kill_silent_owner", watched)


@pytest.mark.parametrize("races", [4, pytest.param(40, marks=pytest.mark.sweep)])
def test_of_two_that_start_at_the_same_moment_exactly_one_drives(start: Start, races: int) -> None:
    racers = start("r", "race", drivers=2, wait="no", races=races)
    for attempt in range(races):
        lines = sorted((racers.line(), racers.line()))
        assert lines[0] == f"acquired {attempt + 1}", lines
        assert lines[1].startswith("busy Run 'r' is driven by process "), lines
        racers.go_on()
    assert racers.fork.wait() == 0


def test_of_two_that_replace_a_stopped_owner_exactly_one_drives(start: Start) -> None:
    owner = start("r", "hold", stale=1)
    assert owner.line() == "acquired 1"
    owner.send(signal.SIGSTOP)
    racers = start("r", "race", drivers=2, stale=1)
    lines = sorted((racers.line(), racers.line()))
    assert lines[0] == "acquired 2"
    assert lines[1].startswith("busy ")
    assert owner.fork.wait() == -signal.SIGKILL
    racers.tell_to_end()


def test_a_dead_owner_that_its_parent_has_not_reaped_is_replaced_at_once(
    store: Store, nobody_waits: None
) -> None:
    for _ in range(2):  # what was released is free at once
        take(store).release()
    with subprocess.Popen(["sleep", "600"]) as owner:
        started = process_start_time(owner.pid)
        execute(store, f"update lease set held = 1, pid = {owner.pid}, started = '{started}'")
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        take(store).release()


@pytest.mark.parametrize("field", ["pid", "started", "boot"])
def test_an_owner_whose_pid_is_another_process_now_is_dead_and_nothing_is_killed(
    start: Start, store: Store, nobody_waits: None, field: str
) -> None:
    bystander = start("other", "hold")
    assert bystander.line() == "acquired 1"
    change = {
        "pid": "pid = 4194305",  # above the largest pid of Linux
        "started": f"pid = {bystander.pid}",
        "boot": "boot = 'an earlier one'",
    }[field]
    lease = take(store)
    lease.release()
    execute(store, f"update lease set held = 1, {change} where run = 'r'")
    take(store).release()
    assert bystander.fork.poll() is None


def test_a_living_owner_is_left_alone_and_named(start: Start, store: Store) -> None:
    owner = start("r", "hold", stale=6)
    assert owner.line() == "acquired 1"
    with pytest.raises(BusyError) as caught:
        take(store, 6)
    assert str(caught.value) == (
        f"Run 'r' is driven by process {owner.pid} on {host_and_pid_namespace()}. "
        f"Wait for it, or end it with: kill {owner.pid}"
    )
    assert owner.fork.poll() is None
    owner.tell_to_end()
    assert owner.line() == "released"
    take(store).release()


def test_who_does_not_wait_hears_at_once_that_the_owner_may_live(start: Start, store: Store) -> None:
    owner = start("r", "hold")
    owner.line()
    owner.send(signal.SIGSTOP)
    with pytest.raises(BusyError, match=str(owner.pid)):
        take(store, wait=False)


def test_the_same_process_cannot_drive_a_run_twice(store: Store) -> None:
    lease = take(store, 1)
    with pytest.raises(BusyError, match=f"process {os.getpid()} "):
        take(store, 10)
    assert lease.held
    lease.release()


def test_a_lease_that_this_process_failed_to_release_is_taken_without_ending_itself(store: Store) -> None:
    take(store).release()
    execute(store, "update lease set held = 1")
    lease = take(store, 0.6)
    assert lease.epoch == 2
    lease.release()


@pytest.mark.sample(2)
@pytest.mark.parametrize("deed", ["hold", "stop-in-transaction", "stop-before-effect"])
def test_a_stopped_owner_is_ended_then_replaced(start: Start, store: Store, deed: str) -> None:
    owner = start("r", deed, stale=1)
    assert owner.line() == "acquired 1"
    if deed == "hold":
        owner.send(signal.SIGSTOP)
    owner.wait_until_stopped()
    lease = take(store, 1)
    assert lease.epoch == 2
    owner.send(signal.SIGCONT)  # as if somebody woke it
    assert owner.fork.wait() == -signal.SIGKILL
    intents = rows(store, "select count(*) from journal")
    assert intents == [(1 if deed == "stop-before-effect" else 0,)]
    with (store.home / "effects").open("a") as effects:
        effects.write("challenger\n")
    assert (store.home / "effects").read_text() == "challenger\n"
    lease.release()


def test_an_owner_on_another_host_is_fenced_when_it_wakes(start: Start, store: Store) -> None:
    owner = start("r", "stop-before-effect", stale=1, host="elsewhere")
    assert owner.line() == "acquired 1"
    owner.wait_until_stopped()
    lease = take(store, 1)
    assert lease.epoch == 2
    owner.send(signal.SIGCONT)
    assert owner.fork.stdout
    refused = [line for line in owner.fork.stdout if line != "lost\n"]  # if its heartbeat came to say so
    here = current_process_identity()
    assert len(refused) == 1
    assert refused[0].startswith(f"refused This process lost the run 'r' to pid {here.pid} on {here.host}")
    assert owner.fork.wait() == 0
    assert rows(store, "select state from journal") == [("intent",)]
    lease.release()


def test_an_owner_on_another_host_learns_that_it_lost_the_run(start: Start, store: Store) -> None:
    owner = start("r", "hold", stale=1, host="elsewhere")
    owner.line()
    owner.send(signal.SIGSTOP)
    owner.wait_until_stopped()
    lease = take(store, 1)
    owner.send(signal.SIGCONT)
    assert owner.line() == "lost"
    owner.tell_to_end()
    assert owner.line() == "released"
    assert rows(store, "select epoch, held from lease") == [(2, 1)]
    lease.release()


def test_wall_clocks_two_hours_apart_change_nothing(start: Start) -> None:
    owner = start("r", "hold", stale=6, clock=3600)
    assert owner.line() == "acquired 1"
    assert start("r", "hold", stale=6, clock=-3600).line().startswith("busy ")
    owner.send(signal.SIGSTOP)
    assert start("r", "hold", stale=1, clock=-3600).line() == "acquired 2"


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who writes")
def test_a_store_that_a_third_process_holds_does_not_cost_the_owner_its_run(
    start: Start, store: Store
) -> None:
    if not store.path.exists():
        pytest.skip("on a server, no process holds the whole store")
    owner = start("r", "hold", stale=1.2)
    assert owner.line() == "acquired 1"
    third = store.connect()
    third.execute_raw("begin immediate")
    with pytest.raises(BusyError, match=f"held by process {os.getpid()}, so nobody can drive 'r'"):
        take(store, 1.2)
    assert owner.fork.poll() is None
    third.execute_raw("rollback")
    third.close()
    with pytest.raises(BusyError, match="is driven by process"):
        take(store, 6)


def test_a_challenger_that_was_stopped_itself_does_not_count_that_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = take(store, 6)
    suspended = count(step=100.0)
    # With `sleep` for a thread of an earlier test that still tries to give its lease back to a database that is gone.
    clock = SimpleNamespace(monotonic=lambda: next(suspended), sleep=time.sleep)
    monkeypatch.setattr("interlock.engine.driver.lease.time", clock)
    with pytest.raises(BusyError):
        take(store, 6)
    lease.release()


def test_a_run_that_was_removed_is_lost_to_its_driver(store: Store) -> None:
    told: list[bool] = []
    lease = asyncio.run(acquire_lease(store, "r", stale_after_s=0.6, on_lost=lambda: told.append(True)))
    conn = store.connect()
    conn.execute_raw("delete from lease")
    until(lambda: told)
    assert (lease.lost, lease.held, told) == (True, False, [True])
    lease.release()
    conn.close()


@pytest.mark.sqlite
def test_a_heartbeat_that_finds_the_store_gone_ends_the_drive(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_or_migrate()

    async def scene() -> bool:
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        lease = await acquire_lease(
            store, "r", stale_after_s=0.06, on_lost=lambda: loop.call_soon_threadsafe(gone.set)
        )
        store.path.unlink()
        await asyncio.wait_for(gone.wait(), HANG_S)
        lease.release()
        return lease.lost

    assert asyncio.run(scene())
