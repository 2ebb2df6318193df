"""The registry names every table of the store: key, owner, and what reads its columns; old stores migrate."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from commands import execute, one_call
from databases import IN_POSTGRESQL

from interlock.engine.read import list_runs
from interlock.engine.store import ADDRESS, Store, select_rows
from interlock.engine.store.integrity import find_unreadable_rows
from interlock.engine.store.steps import StepRow
from interlock.engine.store.tables import TABLES


def test_every_table_is_in_the_registry_with_its_columns(store: Store) -> None:
    schema = Path(sqlite_schema()).read_text(encoding="utf-8")
    made = {line.split()[5] for line in schema.splitlines() if line.startswith("create table")}
    assert made == {table.name for table in TABLES} | {"step_kinds", "audit"}
    with closing(store.connect()) as conn:
        for table in TABLES:
            columns = {column.name for column in conn.list_columns(table.name)}
            assert {table.owner, *table.key, *table.holds} <= columns, table.name
        assert list(find_unreadable_rows(conn, store.outputs)) == []


def test_stores_of_every_process_are_where_the_tests_want_them(tmp_path: Path) -> None:
    Store(tmp_path / "here").create_or_migrate()
    assert execute(tmp_path, *one_call("list_directory"), env={"INTERLOCK_HOME": f"{tmp_path}/there"}).stdout
    for home in (tmp_path / "here", tmp_path / "there"):
        assert ((home / ADDRESS).exists(), (home / "interlock.db").exists()) == (
            IN_POSTGRESQL,
            not IN_POSTGRESQL,
        )


OLD_STEPS = [
    ("top", 0, "turn:1f2e3d4c", "1f2e3d4c.0", "turn", "ask", 7.5, 0.25, "head,x", "short", "why", 1, "ab.0"),
    ("top", 1, "turn:1f2e3d4c", "1f2e3d4c.0.1", "turn", "ask", 8.5, 3.0, "head,x", None, None, 1, "ab.0.1"),
    ("top", 2, "", "1f2e3d4c", "", "turn", 7.25, 4.0, "", None, None, 1, "ab"),
]


def sqlite_schema() -> Path:
    from interlock.engine.store import sqlite

    return Path(sqlite.__file__).with_name("schema.sql")


@pytest.mark.sqlite
def test_a_store_of_the_version_before_is_migrated_when_it_is_read(tmp_path: Path) -> None:
    """Requests keep the order in which they were asked, and subtasks their task."""
    store = Store(tmp_path)
    store.create_or_migrate()
    with closing(sqlite3.connect(store.path)) as conn, conn:
        conn.execute("alter table approvals drop column seq")
        conn.execute("alter table runs drop column subtask_of")
        conn.execute("drop view steps")
        conn.execute(
            "create table steps (run, seq, namespace, task, workflow, node, started, ms, keys, route, reason, "
            "root_step, superstep)"
        )
        for taken in OLD_STEPS:
            conn.execute(f"insert into steps values ({', '.join('?' * len(taken))})", taken)
        conn.execute("pragma user_version = 6")
        for run, parent, options in (("top", None, "{}"), ("sub", "top", '{"subtask_of": "top"}')):
            conn.execute(
                "insert into runs (run, workflow, parent, workspace, title, created, updated, status, options, input) "
                "values (?, 'main', ?, '/', '', 1, 1, 'open', ?, '{}')",
                (run, parent, options),
            )
        for name in ("b", "a"):
            conn.execute(
                "insert into approvals (id, run, key, request, asked_at) values (?, 'top', ?, '{}', 1)",
                (f"top-{name}", name),
            )
    assert {row.run: row.subtask for row in list_runs(tmp_path)} == {"top": False, "sub": True}
    rows = select_rows(tmp_path, "select id, seq from approvals order by seq")
    assert [tuple(row) for row in rows] == [("top-b", 1), ("top-a", 2)]
    taken = select_rows(tmp_path, f"select {', '.join(StepRow._fields)} from steps order by seq")
    assert [tuple(row) for row in taken] == OLD_STEPS
