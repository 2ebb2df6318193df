"""lease_process: a process for the lease tests, started as `python lease_process.py HOME RUN DEED [KEY=VALUE…]`.

It prints one line for each thing that happens. Deeds: hold, stop-in-transaction, stop-before-effect, race.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from interlock.engine.driver.lease import Lease, acquire_lease
from interlock.engine.store import Store
from interlock.engine.store.connection import Connection
from interlock.engine.store.leases import fence_commits
from interlock.services.process.identity import current_process_identity
from interlock.state.errors import BusyError


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # one write: lines of two processes don't mix


def turn_clock(seconds: float) -> None:
    """Shift the wall clock only: a monotonic clock can't be set."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)


async def take(store: Store, run: str, options: dict[str, str]) -> Lease | None:
    me = current_process_identity()
    try:
        lease = await acquire_lease(
            store,
            run,
            stale_after_s=float(options.get("stale", "30")),
            identity=me._replace(host=options.get("host", me.host)),
            wait_if_alive=options.get("wait", "yes") == "yes",
            on_lost=lambda: say("lost"),
        )
    except BusyError as error:
        say("busy", error)
        return None
    say("acquired", lease.epoch)
    return lease


async def hold(lease: Lease) -> None:
    """Hold the lease until a line comes in."""
    await asyncio.to_thread(sys.stdin.readline)
    lease.release()
    say("released")


def stop_in_transaction(store: Store, lease: Lease) -> None:
    conn = store.connect()
    fence_commits(conn, lease)
    with conn.transaction():
        intend(conn, lease)
        os.kill(os.getpid(), signal.SIGSTOP)
    say("committed")


def stop_before_effect(store: Store, lease: Lease) -> None:
    conn = store.connect("FULL")
    fence_commits(conn, lease)
    with conn.transaction():
        intend(conn, lease)
    os.kill(os.getpid(), signal.SIGSTOP)
    with (store.home / "effects").open("a") as effects:
        effects.write("owner\n")
    try:
        with conn.transaction():
            conn.execute_raw("update journal set state = 'done' where run = $1", (lease.run,))
    except BusyError as error:
        say("refused", error)
    else:
        say("done")


def intend(conn: Connection, lease: Lease) -> None:
    conn.execute_raw(
        "insert into journal (run, message, idx, attempt, tool, args_hash, state, epoch) "
        "values ($1, 'm', 0, 1, 'run_shell_command', '', 'intent', $2)",
        (lease.run, lease.epoch),
    )


def race(store: Store, run: str, options: dict[str, str]) -> None:
    """Fork `drivers` warm processes that acquire at the same moment; the winner holds on until a line comes in.

    So many `races`, one after the other.
    """
    for _ in range(int(options.get("races", "1"))):
        start, go = os.pipe()
        leave, end = os.pipe()
        children: list[int] = []
        for _ in range(int(options["drivers"])):
            child = os.fork()
            if child == 0:
                os.close(go)
                os.close(end)
                os.read(start, 1)  # end of file: everybody starts
                asyncio.run(take(store, run, options))
                os.read(leave, 1)
                os._exit(0)
            children.append(child)
        os.close(go)
        sys.stdin.readline()
        os.close(end)
        for child in children:
            os.waitpid(child, 0)
        os.close(start)
        os.close(leave)


async def drive(store: Store, run: str, deed: str, options: dict[str, str]) -> None:
    lease = await take(store, run, options)
    if lease is None:
        return
    if deed == "stop-in-transaction":
        stop_in_transaction(store, lease)
    elif deed == "stop-before-effect":
        stop_before_effect(store, lease)
    else:
        await hold(lease)


if __name__ == "__main__":
    home, name, what = sys.argv[1:4]
    settings = dict(item.split("=", 1) for item in sys.argv[4:])
    turn_clock(float(settings.get("clock", "0")))
    opened = Store(Path(home))
    if what == "race":
        race(opened, name, settings)
    else:
        asyncio.run(drive(opened, name, what, settings))
