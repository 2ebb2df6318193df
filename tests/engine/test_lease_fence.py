"""test_lease_fence: a driver that lost its run writes nothing of it."""

import asyncio
import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from interlock.engine.driver.lease import Lease, acquire
from interlock.engine.store import Store
from interlock.engine.store.leases import fence, fenced
from interlock.services.sqlite import transaction
from interlock.state.errors import BusyError

NAMES = {"checkpoints": "thread_id", "writes": "thread_id"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.open()
    return made


@pytest.fixture
def lease(store: Store) -> Iterator[Lease]:
    taken = asyncio.run(acquire(store, "r"))
    yield taken
    taken.release()


@pytest.fixture
def conn(store: Store, lease: Lease) -> Iterator[sqlite3.Connection]:
    connected = store.connect()
    fence(connected, lease)
    yield connected
    connected.close()


@pytest.fixture
def plain(store: Store) -> Iterator[sqlite3.Connection]:
    connected = store.connect()
    yield connected
    connected.close()


def tables(conn: sqlite3.Connection) -> list[str]:
    found = conn.execute(
        "select name from main.sqlite_master where type = 'table' and name not like 'sqlite_%'"
    )
    return [name for (name,) in found if name != "lease"]


def put(conn: sqlite3.Connection, table: str, run: str) -> None:
    columns = [(row[1], row[2]) for row in conn.execute(f"pragma main.table_info({table})")]
    key = NAMES.get(table, "run")
    values = [run if name == key else (1 if "INT" in kind.upper() else f"x-{run}") for name, kind in columns]
    conn.execute(f"insert into {table} values ({','.join('?' * len(values))})", values)


def take_over(conn: sqlite3.Connection) -> None:
    conn.execute("update lease set epoch = epoch + 1, pid = 77, host = 'elsewhere'")


def test_the_holder_writes_every_table(conn: sqlite3.Connection) -> None:
    for table in tables(conn):
        key = NAMES.get(table, "run")
        put(conn, table, "r")
        assert conn.execute(f"update {table} set {key} = {key}").rowcount == 1
        assert conn.execute(f"delete from {table}").rowcount == 1


def test_a_stale_driver_writes_no_table_of_the_schema(
    conn: sqlite3.Connection, plain: sqlite3.Connection
) -> None:
    for table in tables(conn):
        put(plain, table, "r")
    take_over(plain)
    for table in tables(conn):
        key = NAMES.get(table, "run")
        for statement in (f"update {table} set {key} = {key}", f"delete from {table}"):
            with pytest.raises(sqlite3.IntegrityError, match="stale lease"):
                conn.execute(statement)
        with pytest.raises(sqlite3.IntegrityError, match="stale lease"):
            put(conn, table, "r")
        assert plain.execute(f"select count(*) from {table}").fetchone() == (1,)


def test_a_driver_writes_no_other_run(conn: sqlite3.Connection, store: Store, lease: Lease) -> None:
    other = asyncio.run(acquire(store, "another"))
    assert other.epoch == lease.epoch
    with pytest.raises(sqlite3.IntegrityError, match="stale lease"):
        put(conn, "journal", "another")
    other.release()


def test_nothing_of_a_transaction_that_met_the_fence_stays(
    conn: sqlite3.Connection, plain: sqlite3.Connection, lease: Lease
) -> None:
    with pytest.raises(BusyError) as caught, fenced(conn, lease), transaction(conn):
        put(conn, "steps", "r")
        lease.epoch -= 1  # as if taken over: nobody else can write while this transaction is open
        put(conn, "journal", "r")
    assert "This process lost the run 'r' to pid" in str(caught.value)
    assert plain.execute("select count(*) from steps").fetchone() == (0,)


def test_the_line_names_the_process_that_drives_now(
    conn: sqlite3.Connection, plain: sqlite3.Connection, lease: Lease
) -> None:
    take_over(plain)
    with pytest.raises(BusyError) as caught, fenced(conn, lease):
        put(conn, "chain", "r")
    assert str(caught.value) == (
        "This process lost the run 'r' to pid 77 on elsewhere, after giving no sign of life for too long. "
        "What it did is kept; look with: interlock show r"
    )


def test_other_integrity_errors_pass_unchanged(conn: sqlite3.Connection, lease: Lease) -> None:
    put(conn, "chain", "r")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"), fenced(conn, lease):
        put(conn, "chain", "r")


def test_after_release_nothing_is_written(conn: sqlite3.Connection, lease: Lease) -> None:
    lease.release()
    with pytest.raises(BusyError, match="released it before this write"), fenced(conn, lease):
        put(conn, "chain", "r")


def test_a_person_answers_while_another_process_drives(
    conn: sqlite3.Connection, plain: sqlite3.Connection, lease: Lease
) -> None:
    put(conn, "approvals", "r")
    assert plain.execute("update approvals set answer = '{}' where run = 'r'").rowcount == 1
    assert lease.held


def test_the_fence_costs_a_few_steps_a_row_however_many_there_are(
    conn: sqlite3.Connection, plain: sqlite3.Connection
) -> None:
    def per_row(on: sqlite3.Connection, first: int) -> float:
        """Steps of SQLite's machine."""
        steps = count()
        on.set_progress_handler(lambda: next(steps) < 0, 1)
        with transaction(on):
            for seq in range(first, first + 200):
                on.execute(
                    "insert into chain (id, parent, run, body) values (?, '', 'r', '')", (f"{seq:08}",)
                )
        on.set_progress_handler(None, 0)
        return next(steps) / 200

    without = per_row(plain, 0)
    few = per_row(conn, 200) - without
    plain.executemany(
        "insert into lease select 'r' || ?, host, boot, pid, started, epoch, beat, held from lease where run = 'r'",
        [(n,) for n in range(500)],
    )
    many = per_row(conn, 400) - without
    print(f"a row takes {without:.1f} steps; the fence {few:.1f}, with 500 leases {many:.1f}")
    assert few < 60 and many < 60
