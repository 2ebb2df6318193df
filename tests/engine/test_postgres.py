"""What only the store in PostgreSQL does: a connection's next use, and rows that the queue adds to a driver's."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import get_ident

import pytest
from agent_runs.stage import Stage, call
from databases import postgres_store
from patience import until

from interlock.engine.audit import find_audit_problems, read_audit_records
from interlock.engine.store import Store, select_rows
from interlock.engine.store.connection import Connection, Rows, Values
from interlock.engine.store.queue import enqueue_run
from interlock.engine.store.runs import NewRun, insert_run
from interlock.fleet.queue_schema import create_queue_tables

psycopg = pytest.importorskip("psycopg")

RUN = NewRun("aa11", "main", "/work", "", {}, {}, "q")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = postgres_store(tmp_path)
    made.create_or_migrate()
    return made


def _used(store: Store) -> int:
    """The server's process behind a connection that is used and given back."""
    with closing(store.connect()) as conn:
        return conn.execute("select pg_backend_pid()").fetchone()[0]


def _is_there(conn: Connection, pid: int) -> bool:
    return bool(conn.execute("select 1 from pg_stat_activity where pid = $1", (pid,)).fetchone())


def test_a_connection_is_used_again_for_a_moment_unless_the_server_ended_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.fleet import postgres_sessions

    monkeypatch.setattr(postgres_sessions, "_IDLE_S", 60.0)
    first = _used(store)
    assert _used(store) == first
    with closing(store.connect()):
        assert _used(store) != first, "it is in use"
    with closing(store.connect_for_driver()) as other:
        ended = _used(store)
        other.execute("select pg_terminate_backend($1)", (ended,))
        until(lambda: not _is_there(other, ended))
    assert (second := _used(store)) != ended
    monkeypatch.setattr(postgres_sessions, "_KEPT_S", 0.0)
    assert _used(store) != second, "it is too old"


def test_nothing_holds_a_connection_once_the_moment_is_over(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.fleet import postgres_sessions

    monkeypatch.setattr(postgres_sessions, "_IDLE_S", 0.1)
    with closing(store.connect_for_driver()) as other:
        pid = _used(store)
        until(lambda: not _is_there(other, pid))


def test_a_run_and_its_job_are_stored_together_or_not_at_all(store: Store) -> None:
    create_queue_tables(store.path)
    with closing(store.connect_for_driver()) as conn:
        for fails in (True, False):
            try:
                with conn.transaction():
                    insert_run(conn, RUN)
                    enqueue_run(conn, RUN.run, "q")
                    if fails:
                        raise KeyError
            except KeyError:
                pass
            runs, jobs, noted = (
                conn.execute(f"select count(*) from {table}").fetchone()[0]
                for table in ("runs", "procrastinate_jobs", "audit where kind = 'begun'")
            )
            assert (runs, jobs, noted) == ((0, 0, 0) if fails else (1, 1, 1))


@pytest.mark.sweep
def test_a_commit_of_thousands_of_rows_is_recorded_whole_and_in_order(store: Store) -> None:
    """And the next commit's records are its own only."""
    odd = "/work\u2028a\x85b\x1cc"
    runs = [replace(RUN, run=f"{n:04x}", workspace=odd) for n in range(1_000)]
    with closing(store.connect()) as conn:
        with conn.transaction():
            for run in runs[:-1]:
                insert_run(conn, run)
        with conn.transaction():
            insert_run(conn, runs[-1])
    assert [record.run for record in read_audit_records(store.path.parent) if record.table == "runs"] == [
        run.run for run in runs
    ]
    assert find_audit_problems(store.path.parent)[1] == []


def test_the_server_ends_the_transaction_of_a_driver_that_is_paused_or_whose_host_is_gone(
    store: Store,
) -> None:
    """Not where answers are waited for without a `Sync`: then it counts as active, and would keep its locks."""
    from interlock.fleet.postgres_sessions import build_connection_string

    seen = list[str]()
    with closing(store.connect_for_driver()) as conn, closing(store.connect()) as other:

        def stands() -> str:
            pid = conn.execute("select pg_backend_pid()").fetchone()[0]
            return other.execute("select state from pg_stat_activity where pid = $1", (pid,)).fetchone()[0]

        conn.set_commit_check(lambda: seen.append(stands()))
        with conn.transaction():
            insert_run(conn, RUN)
            seen.append(stands())
        silence = "select name, setting from pg_settings where name like 'tcp_%' order by name"
        kept = dict(conn.execute(silence).fetchall())
    with psycopg.connect(build_connection_string(store.path)) as queues:
        assert dict(queues.execute(silence).fetchall()) == kept
    assert seen == ["idle in transaction"] * 2
    assert [*kept.values()] == ["3", "5", "2", "8000"], kept


def test_a_drive_uses_its_connection_in_one_thread(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another thread asks comes between the statements of a transaction: the server refuses both."""
    from interlock.fleet.postgres import PostgresConnection

    users: dict[PostgresConnection, set[int]] = {}
    stored = PostgresConnection.execute_raw

    def noted(self: PostgresConnection, sql: str, values: Values = ()) -> Rows:
        users.setdefault(self, set()).add(get_ident())
        return stored(self, sql, values)

    monkeypatch.setattr(PostgresConnection, "execute_raw", noted)
    writes = [call("write_file", file_path=f"{n}.txt", content="x\n") for n in range(2)]
    outcome = Stage(tmp_path, [{"tool_calls": writes}, {"text": "Done."}]).run(
        "main", {"prompt": "go"}, approval_mode="yolo", home=store.home
    )
    assert outcome.status == "done" and (tmp_path / "work/1.txt").exists()
    assert [len(threads) for threads in users.values()] == [1] * len(users)
    names = [name for (name,) in select_rows(store.home, "select name from blobs where part = 0")]
    assert sum(name.startswith("snapshots/") for name in names) == 3, "before, between and after"
