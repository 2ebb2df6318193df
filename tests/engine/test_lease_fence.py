"""A driver that lost its run writes nothing of it."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from interlock.engine.driver.lease import Lease, acquire_lease
from interlock.engine.store import Store
from interlock.engine.store.connection import Connection, Values
from interlock.engine.store.leases import fence_commits
from interlock.engine.store.tables import TABLES
from interlock.state.errors import BusyError

DRIVEN = [table for table in TABLES if table.name != "lease"]


@pytest.fixture
def lease(store: Store) -> Iterator[Lease]:
    taken = asyncio.run(acquire_lease(store, "r"))
    yield taken
    taken.release()


@pytest.fixture
def conn(store: Store, lease: Lease) -> Iterator[Connection]:
    with closing(store.connect_for_driver()) as connected:
        fence_commits(connected, lease)
        yield connected


@pytest.fixture
def plain(store: Store) -> Iterator[Connection]:
    with closing(store.connect()) as connected:
        yield connected


def put(conn: Connection, table: str, owner: str = "run") -> None:
    made = {str: "x", bytes: b"x", int: 1}
    row = {c.name: "r" if c.name == owner else made.get(c.kind, 1) for c in conn.list_columns(table)}  # pyright: ignore[reportCallIssue, reportArgumentType]
    conn.insert(table, row)


def count(conn: Connection, table: str) -> int:
    return conn.execute(f"select count(*) from {table}").fetchone()[0]


def take_over(conn: Connection) -> None:
    with conn.transaction():
        conn.execute_raw("update lease set epoch = epoch + 1, pid = 77, host = 'elsewhere'")


def test_the_holder_writes_every_table_and_a_stale_driver_none_and_hears_who_drives(
    conn: Connection, plain: Connection
) -> None:
    for table in DRIVEN:
        with conn.transaction():
            put(conn, table.name, table.owner)
    take_over(plain)
    lost = (
        "This process lost the run 'r' to pid 77 on elsewhere, after giving no sign of life for too long. "
        "What it did is kept; look with: interlock show r"
    )
    for table in DRIVEN:
        owned = {table.owner: "r"}
        change = partial(conn.update, table.name, {table.owner: "z"}, owned)
        for write in (change, partial(conn.delete, table.name, owned)):
            with pytest.raises(BusyError, match=f"^{lost}$"), conn.transaction():
                write()
            with pytest.raises(BusyError if table.waits else RuntimeError):
                write()
                conn.flush(drop_on_failure=True)
        found = plain.execute(f"select {table.owner} from {table.name} where {table.owner} <> ''").fetchall()
        assert found == [("r",)], table.name


def test_a_driver_writes_nothing_outside_a_transaction_that_may_not_wait_for_the_next(
    conn: Connection, plain: Connection
) -> None:
    """Such a write wouldn't be fenced."""
    with pytest.raises(RuntimeError, match="isn't fenced"):
        put(conn, "effects")
    put(conn, "journal")
    assert (count(plain, "effects"), count(plain, "journal")) == (0, 0)
    conn.flush()
    assert count(plain, "journal") == 1
    for sql in (
        "update journal set idx = 1",
        "delete from journal",
        "insert into effects select * from effects",
    ):
        with pytest.raises(RuntimeError, match="rows are written by insert, update and delete"):
            conn.execute(sql)


def test_nothing_of_a_transaction_that_met_the_fence_stays(
    conn: Connection, plain: Connection, lease: Lease
) -> None:
    with pytest.raises(BusyError, match="This process lost the run 'r' to pid"), conn.transaction():
        put(conn, "step_rows")
        lease.epoch -= 1  # as if taken over: nobody else can write while this transaction is open
        put(conn, "journal")
    assert count(plain, "step_rows") == 0


def test_after_release_nothing_is_written(conn: Connection, lease: Lease) -> None:
    lease.release()
    with pytest.raises(BusyError, match="released it before this write"), conn.transaction():
        put(conn, "chain")


def test_a_person_answers_while_another_process_drives(
    conn: Connection, plain: Connection, lease: Lease
) -> None:
    with conn.transaction():
        put(conn, "approvals")
    with plain.transaction():
        assert plain.execute_raw("update approvals set answer = '{}' where run = 'r'").rowcount == 1
    assert lease.held


def test_the_fence_reads_one_row_a_commit(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows it has."""
    asked: list[str] = []
    original = type(conn).execute

    def heard(self: Connection, sql: str, values: Values = (), /, **how: Any) -> object:
        asked.append(sql)
        return original(self, sql, values, **how)

    monkeypatch.setattr(type(conn), "execute", heard)
    with conn.transaction():
        for number in range(50):
            conn.execute_raw(
                "insert into chain (id, parent, run, body) values ($1, '', 'r', '')", (str(number),)
            )
    assert [sql for sql in asked if "epoch from lease" in sql] == [
        f"select epoch from lease where run = $1{conn.row_lock}"
    ]
