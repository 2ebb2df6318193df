"""What is asked about many runs at once goes through, however few values the database takes with one statement."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from interlock.engine.store import Store, queries
from interlock.engine.store.blobs import filter_files_named_by_any_run
from interlock.engine.store.model_calls import UsageLedger, sum_usage_with_subtasks
from interlock.engine.store.queue import enqueue_run
from interlock.engine.store.runs import NewRun, insert_child_run_if_missing, insert_run
from interlock.engine.store.snapshots import SqlSnapshots
from interlock.engine.store.steps import StepLog
from interlock.engine.store.workspaces import find_newest_snapshot
from interlock.fleet.queue_schema import create_queue_tables
from interlock.services.snapshots.snapshots import WorkspaceSnapshots

MANY = [f"run{number}" for number in range(70_000)]
"""PostgreSQL takes 65,535 values, SQLite 32,766, or what it was built for."""
_FEW = 999
"""As SQLite's was before 3.32: it can be lowered, not the server's."""


@pytest.fixture(autouse=True)
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def limited(*args: Any, **more: Any) -> sqlite3.Connection:
        conn = connect(*args, **more)
        conn.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, _FEW)
        return conn

    monkeypatch.setattr(sqlite3, "connect", limited)


def begin(store: Store, *names: str, **options: Any) -> None:
    with closing(store.connect()) as conn, conn.transaction():
        for name in names:
            insert_run(conn, NewRun(name, "main", "/work", name, options, {}))


def begin_children(store: Store, **options: Any) -> None:
    """More than SQLite takes values; the server's limit would need too many."""
    names = [f"child{number}" for number in range(10 if store.blobs else _FEW + 1)]
    with closing(store.connect()) as conn, conn.transaction():
        for name in names:
            insert_child_run_if_missing(
                conn, "top", NewRun(name, "main", "/work", name, options, {}), sealed=False
            )


def test_runs_are_found_among_many_names(store: Store) -> None:
    begin(store, "run7", "other")
    assert [row["run"] for row in queries.list_runs_by_id(store.home, MANY)] == ["run7"]
    for wanted, found in (
        (queries.RunFilter(only_ids=MANY), ["run7"]),
        (queries.RunFilter(except_ids=MANY), ["other"]),
        (queries.RunFilter(rest_status="idle", also_ids=MANY), ["run7"]),
        (queries.RunFilter(only_ids=[]), []),
    ):
        rows = queries.list_root_run_ids_by_time(
            store.home, wanted, "created", newest=True, limit=9, offset=0
        )
        assert [row[0] for row in rows] == found
        assert queries.count_root_runs(store.home, wanted) == len(found)


def test_files_are_kept_for_many_names(store: Store) -> None:
    with closing(store.connect()) as conn, conn.transaction():
        conn.insert("named_files", {"name": "run7", "run": "other"})
        assert filter_files_named_by_any_run(conn, store.outputs, {*MANY, "run7"}) == {"run7"}


def test_a_budget_counts_many_runs(store: Store) -> None:
    with closing(store.connect()) as conn:
        usage = UsageLedger(conn, "run7", 1)
        with usage.transaction():
            usage.add_reservation("task", "", "model", 5)
        assert [one.tokens for one in usage.sum_reserved_calls_by_model(MANY)] == [5]
        assert usage.sum_answered_calls_by_model(MANY) == []


def test_a_task_has_many_subtasks_in_one_folder(store: Store) -> None:
    repository = {"url": "https://example.org/r.git", "at": "host:/work"}
    begin(store, "top", repository=repository)
    begin_children(store, subtask_of="top")
    with closing(store.connect()) as conn:
        assert sum_usage_with_subtasks(conn, "top")["total_tokens"] == 0
        if store.blobs:
            assert find_newest_snapshot(conn, "top") == ""


def test_a_run_was_forked_often(store: Store) -> None:
    begin(store, "top")
    begin_children(store)
    with closing(store.connect()) as conn:
        snapshots = SqlSnapshots(conn, "top", StepLog(), lambda _: None, never_made)
        assert asyncio.run(snapshots.snapshot_changes_since_start()) is None


def never_made() -> WorkspaceSnapshots:
    raise AssertionError


def test_many_runs_wait_for_a_worker(store: Store) -> None:
    if not store.blobs:
        pytest.skip("queues are in PostgreSQL")
    begin(store, "run7")
    create_queue_tables(store.path)
    with closing(store.connect()) as conn:
        with conn.transaction():
            enqueue_run(conn, "run7", "fast")
        assert [queue for queue, _ in conn.jobs.list_queues_and_waits_of_unserved_runs(MANY, 60)] == ["fast"]
