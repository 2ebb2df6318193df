"""The saver conforms to LangGraph's interface and keeps our guarantees."""

import asyncio
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from databases import DATABASES
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals
from interlock.engine.store.audit import AuditRecord
from interlock.engine.store.connection import Connection
from interlock.engine.store.foreign_saver import make_saver
from interlock.engine.store.saver import Saver, advance_checkpoint_id_clock, compute_status_and_outcome
from interlock.engine.store.steps import StepLog
from interlock.graphs.foreign import from_langgraph

ROOT: Any = {"configurable": {"thread_id": "r", "checkpoint_ns": ""}}


@pytest.fixture
def conn(store: Store) -> Iterator[Connection]:
    with closing(store.connect()) as connected:
        yield connected


@pytest.fixture
def driver(store: Store) -> Iterator[Connection]:
    with closing(store.connect_for_driver()) as connected:
        yield connected


class Kept(TypedDict):
    text: str


def keeps(state: Kept) -> Kept:
    return state


def _foreign(conn: Connection) -> Saver:
    """The saver of somebody's own graph."""
    graph: Any = StateGraph(Kept)
    workflow = from_langgraph(graph.add_node(keeps).add_edge(START, "keeps"))
    return make_saver(workflow, conn, StepLog(), SqlApprovals(conn, "r"), Path())


SLOW = ((Saver, "postgresql", False), (_foreign, "postgresql", True))
"""In the sweeps: each creates databases by the dozen. Every change is tried with the two others on that server."""


@pytest.mark.parametrize(
    ("kind", "database", "buffered"),
    [
        pytest.param(*one, marks=pytest.mark.sweep if one in SLOW else ())
        for one in product((Saver, _foreign), DATABASES, (False, True))
    ],
)
def test_it_passes_langgraphs_conformance_suite(
    tmp_path: Path, kind: Callable[[Connection], Saver], database: str, buffered: bool
) -> None:
    made = 0

    @checkpointer_test(name="interlock")
    async def saver() -> AsyncGenerator[Saver]:
        nonlocal made
        made += 1
        store = DATABASES[database](tmp_path / str(made))
        store.create_or_migrate()
        conn = store.connect_for_driver() if buffered else store.connect()
        yield kind(conn)
        conn.close()

    report = asyncio.run(validate(saver))
    told = {name: (result.passed, result.failures) for name, result in report.results.items()}
    assert report.passed_all_base(), told
    assert not [result for result in told.values() if result[1]], told


def test_what_came_before_is_found_although_the_config_names_no_checkpoint(conn: Connection) -> None:
    """So LangGraph looks for what a graph remembered when it is replayed; the suite above doesn't."""
    saver = Saver(conn)
    for name in ("1", "2", "3"):
        saver.put(ROOT, {**empty_checkpoint(), "id": name}, {"source": "loop", "step": 0}, {})
    where: Any = {"configurable": {**ROOT["configurable"], "checkpoint_id": None}}
    found = saver.list(where, before={"configurable": {"checkpoint_id": "3"}}, limit=1)
    assert [one.checkpoint["id"] for one in found] == ["2"]


def test_versions_of_another_saver_are_continued_in_its_own_form(conn: Connection) -> None:
    begun = InMemorySaver().get_next_version(None, None)
    assert isinstance(begun, str)
    newer = Saver(conn).get_next_version(begun, None)
    assert newer > begun
    assert Saver(conn).get_next_version(newer, None) > newer


def test_a_crafted_checkpoint_runs_nothing(conn: Connection, tmp_path: Path) -> None:
    """A pickle, or a msgpack extension naming a callable, is just data, even without the variable that forbids them."""
    saver = Saver(conn)
    marker = tmp_path / "ran"

    class Attack:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {marker}",)

    extension = ormsgpack.packb(("os", "system", [f"touch {marker}"]))
    for kind, body in (
        ("pickle", pickle.dumps(Attack())),
        ("msgpack", ormsgpack.packb(ormsgpack.Ext(1, extension))),
        ("msgpack", ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {marker}"))))),
    ):
        try:
            saver.serde.loads_typed((kind, body))
        except Exception as refused:
            assert not isinstance(refused, AssertionError)
        assert not marker.exists()


def test_a_new_id_sorts_after_those_of_a_clock_that_was_ahead(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    saver = Saver(conn)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
    ahead = str(uuid6(clock_seq=1))
    saver.put(ROOT, {**empty_checkpoint(), "id": ahead}, {"source": "loop", "step": 0}, {})
    monkeypatch.setattr(time, "time_ns", real)
    from langgraph.checkpoint.base import id as ids

    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    assert str(uuid6(clock_seq=2)) < ahead
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    advance_checkpoint_id_clock(conn, "r")
    assert str(uuid6(clock_seq=3)) > ahead


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"branch:to:turn": None, "status": "running"}, ("open", "")),
        ({"__pregel_tasks": [1], "status": "running"}, ("open", "")),
        ({"__start__": {}}, ("open", "")),
        ({"status": "done"}, ("done", "done")),
        ({"status": "turn_limit"}, ("failed", "turn_limit")),
        ({"status": "cancelled"}, ("cancelled", "cancelled")),
        ({"status": "stopped"}, ("failed", "stopped")),
        ({"head": "x", "status": ""}, ("done", "done")),
    ],
)
def test_the_row_says_open_until_nothing_is_due(values: dict[str, Any], expected: tuple[str, str]) -> None:
    assert compute_status_and_outcome(values, "status") == expected


def test_writes_of_one_checkpoint_are_one_transaction(store: Store, conn: Connection) -> None:
    """Another connection sees the checkpoint and its run's row together, or neither."""
    other = store.connect()
    _insert_run(conn)
    seen: list[tuple[int, int]] = []

    def look() -> tuple[int, int]:
        step = other.execute("select step from runs").fetchone()[0]
        return other.execute("select count(*) from checkpoints").fetchone()[0], step

    class Spying(Saver):
        def _update_run_row_and_root_step(self, *args: Any, **how: Any) -> None:
            super()._update_run_row_and_root_step(*args, **how)
            seen.append(look())

    Spying(conn).put(ROOT, empty_checkpoint(), {"source": "loop", "step": 4}, {})
    assert [*seen, look()] == [(0, 0), (1, 4)]
    other.close()


def _insert_run(conn: Connection) -> None:
    conn.execute_raw(
        "insert into runs (run, workflow, workspace, title, created, updated, status, options, input) "
        "values ('r', 'main', '/', 't', 0, 0, 'open', '{}', '{}')"
    )


def test_what_waits_is_seen_by_every_read_of_the_driver_and_committed_with_its_next_commit(
    store: Store, driver: Connection
) -> None:
    conn, other = driver, store.connect()
    _insert_run(conn)
    saver = Saver(conn)

    def stored(table: str) -> int:
        return other.execute(f"select count(*) from {table}").fetchone()[0]

    checkpoint = empty_checkpoint()
    saved = saver.put(ROOT, checkpoint, {"source": "loop", "step": 4}, {})
    row = {"id": "c", "parent": "", "run": "r", "body": b"b"}
    conn.insert("chain", row)
    assert (stored("checkpoints"), stored("chain")) == (0, 0)
    assert conn.execute("select body from chain").fetchall() == [(b"b",)]
    assert (stored("checkpoints"), stored("chain")) == (1, 1), "a read commits all that waits, in its order"
    saver.put_writes(saved, [("key", 1)], "t")
    found = saver.get_tuple(ROOT)
    assert found is not None
    assert [write[1:] for write in found.pending_writes or []] == [("key", 1)]
    saver.put_writes(saved, [("key", 2)], "u")
    with pytest.raises(ZeroDivisionError), conn.transaction():
        raise ZeroDivisionError
    assert stored("writes") == 1
    with conn.transaction():
        pass
    assert stored("writes") == 2, "a transaction that failed takes nothing of it along"
    other.close()


def test_a_row_that_is_written_anew_before_its_commit_is_recorded_once_and_one_that_changes_later_twice(
    driver: Connection,
) -> None:
    place = {"run": "r", "message": "m", "idx": 0, "attempt": 1, "tool": "glob", "args_hash": "h", "epoch": 1}
    for result in ("first", "second"):
        driver.insert("journal", {**place, "state": "done", "result": result}, "replace")
    driver.insert("journal", {**place, "idx": 1, "state": "done"}, "replace")
    driver.flush()

    def recorded() -> list[tuple[int, bool]]:
        """Of each record, the call's number, and whether it says what was there before."""
        found = map(
            AuditRecord.from_row, driver.execute("select * from audit where kind = 'effect' order by seq")
        )
        return [(json.loads(one.key)[2], "was" in json.loads(one.body or "")) for one in found]

    assert driver.execute("select result from journal order by idx").fetchall() == [("second",), (None,)]
    assert recorded() == [(0, False), (1, False)]
    for result in ("third", "third"):
        driver.insert("journal", {**place, "state": "done", "result": result}, "replace")
        driver.flush()
    assert driver.execute("select result from journal where idx = 0").fetchall() == [("third",)]
    assert recorded()[2:] == [(0, True)], "the same again is no change"


def test_rows_of_a_nested_graph_that_is_over_never_reach_the_disk(driver: Connection) -> None:
    conn, saver = driver, Saver(driver)
    nested: Any = {"configurable": {"thread_id": "r", "checkpoint_ns": "turn:t"}}
    first = saver.put(ROOT, {**empty_checkpoint(), "id": "1"}, {"source": "loop", "step": 0}, {})

    def rows() -> list[tuple[str, str]]:
        return conn.execute("select checkpoint_ns, checkpoint_id from checkpoints order by 1, 2").fetchall()

    for name in ("1", "2"):
        inside = saver.put(nested, {**empty_checkpoint(), "id": name}, {"source": "loop", "step": 0}, {})
        saver.put_writes(inside, [("key", 1)], f"inner {name}")
    conn.flush()
    assert rows() == [("", "1"), ("turn:t", "2")], "only its newest checkpoint is of use"
    assert conn.execute("select checkpoint_id from writes").fetchall() == [("2",)]
    other: Any = {"configurable": {"thread_id": "r", "checkpoint_ns": "turn:u|part:v"}}
    saver.put(other, {**empty_checkpoint(), "id": "3"}, {"source": "loop", "step": 0}, {})
    saver.put_writes(first, [("key", 1)], "u")
    conn.flush()
    assert rows() == [("", "1"), ("turn:t", "2")], "its task is done, so it isn't entered again"
    saver.put(first, {**empty_checkpoint(), "id": "2"}, {"source": "loop", "step": 1}, {})
    conn.flush()
    assert rows() == [("", "1"), ("", "2")]
    assert conn.execute("select count(*) from writes where checkpoint_ns <> ''").fetchone() == (0,)


def test_rows_that_come_while_a_thread_commits_are_written(driver: Connection) -> None:
    """An effect in a thread commits; meanwhile a node beside it ends."""
    saver = Saver(driver)
    at = saver.put(ROOT, {**empty_checkpoint(), "id": str(uuid6())}, {"source": "loop", "step": 0}, {})
    ending = threading.Thread(target=lambda: saver.put_writes(at, [("done", 1)], "task"))
    with driver.transaction(synced=True):
        ending.start()
        ending.join(0.2)  # it waits for its turn
    ending.join()
    (found,) = saver.list(ROOT)
    assert found.pending_writes == [("task", "done", 1)]


_READS_UNTIL_IT_IS_CLOSED = """
import sqlite3, sys, threading
from pathlib import Path
from interlock.engine.store import Store

store = Store(Path(sys.argv[1]))
MANY = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) select * from n"

def read(conn, began, said):
    try:
        while True:
            conn.execute(MANY).fetchall()
            began.set()
    except sqlite3.ProgrammingError as error:
        said.append(str(error))

for _ in range(100):
    conn, began, said = store.connect_for_driver(), threading.Event(), []
    thread = threading.Thread(target=read, args=(conn, began, said))
    thread.start()
    began.wait()
    conn.close()
    thread.join()
    assert said == ["Cannot operate on a closed database."], said
"""


def test_a_thread_that_reads_while_its_drive_closes_hears_it_and_the_process_lives(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _READS_UNTIL_IT_IS_CLOSED, tmp_path], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
