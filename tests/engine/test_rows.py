"""Rows are written in one way, and both databases have the same tables for them."""

import ast
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Stage
from databases import DATABASES, postgres_store
from scripted import call, tools

from interlock.engine.store import Store
from interlock.engine.store.connection import Connection, Rows, Values
from interlock.engine.store.steps import StepRow, write_step_rows
from interlock.engine.store.tables import (
    NOT_NULL,
    TABLE,
    TABLES,
    Condition,
    Plus,
    build_delete,
    build_insert,
    build_update,
)

ROOT = Path(__file__).parents[2]
STEP = StepRow("r", 0, "", "t", "main", "ask", 1.0, 2.0, "", None, None, 0, "s")


@pytest.mark.skipif("sqlite" not in DATABASES, reason="it compares both databases")
def test_both_databases_have_the_same_tables_and_columns(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    stores = (Store(tmp_path / "file").create_or_migrate(), postgres_store(tmp_path / "server"))
    with closing(stores[0].connect()) as ours, closing(stores[1].connect()) as theirs:
        for table in (*TABLES, TABLE["step_kinds"], TABLE["audit"]):
            columns = [(c.name, c.kind) for c in ours.list_columns(table.name)]
            assert columns == [(c.name, c.kind) for c in theirs.list_columns(table.name)], table.name
            needed = {c.name for c in ours.list_columns(table.name) if c.needed}
            key = {*table.key}  # SQLite lets a text that is the key be null
            assert needed | key == {c.name for c in theirs.list_columns(table.name) if c.needed} | key, (
                table.name
            )
        for table in ("blobs", "limits", "limit_use", "limit_seconds", "schedules", "store_version"):
            assert {*TABLE[table].key} <= {c.name for c in theirs.list_columns(table)}, table


def test_a_write_names_each_column_and_condition_once() -> None:
    row = {"run": "r", "at": True}
    made = build_insert("traces", row, "replace")
    assert made.sql == (
        "insert into traces (run, at) values ($1, $2) on conflict (run) do update set at = excluded.at"
    )
    assert made.values == ("r", 1), "databases have no booleans"
    made = build_update(
        "lease", {"beat": Plus(1), "held": 0}, {"run": "r", "stop": None, "host": NOT_NULL, "pid": 7}
    )
    assert made.sql == (
        "update lease set beat = beat + $1, held = $2 "
        "where run = $3 and stop is null and host is not null and pid = $4"
    )
    assert made.values == (1, 0, "r", 7)
    made = build_delete("blobs", {"name": Condition("like", "plans/%"), "part": Condition(">", 0)})
    assert (made.sql, made.values) == ("delete from blobs where name like $1 and part > $2", ("plans/%", 0))


def test_a_waiting_row_is_seen_by_queries_of_its_table_and_goes_on_waiting_for_others(store: Store) -> None:
    """`step_rows` too, which `steps` is a view of."""
    with closing(store.connect_for_driver()) as conn, closing(store.connect()) as other:

        def stored() -> int:
            return other.execute("select count(*) from step_rows").fetchone()[0]

        write_step_rows(conn, [STEP], set())
        assert conn.execute("select 1 from journal", tables=("journal",)).fetchone() is None
        assert stored() == 0
        newest = conn.execute("select max(seq) from step_rows", tables=("step_rows",)).fetchone()
        assert (newest, stored()) == ((0,), 1)
        write_step_rows(conn, [STEP._replace(seq=1)], set())
        assert conn.execute("select count(*) from steps").fetchone() == (2,), "nobody said what this reads"


def test_a_row_that_is_written_again_while_it_waits_is_written_once(store: Store) -> None:
    with closing(store.connect_for_driver()) as conn:
        for under_way in (1, 0):
            row = {"run": "r", "task": "t", "epoch": 1, "agent": "", "model": "m", "tokens": 1, "at": 1.0}
            conn.insert("reservations", {**row, "under_way": under_way}, "replace")
        conn.update("reservations", {"tokens": 2}, {"run": "r", "task": "t", "epoch": 1})
        conn.delete("reservations", {"run": "other"})
        rows = conn.execute("select tokens, under_way from reservations", tables=("reservations",)).fetchall()
        assert rows == [(2, 0)]


def _read_by(sql: str) -> set[str]:
    """The tables of the store that a query reads, as SQLite's own compiler has it."""
    read = set[str]()

    def noted(_action: int, table: str | None, *_: object) -> int:
        read.add(table or "")
        return sqlite3.SQLITE_OK

    with closing(sqlite3.connect(":memory:")) as conn:
        conn.executescript((ROOT / "engine" / "store" / "schema.sql").read_text(encoding="utf-8"))
        conn.set_authorizer(noted)
        conn.execute(f"explain {sql}", dict.fromkeys(re.findall(r"\$(\d+)", sql))).fetchall()
    return read & {*TABLE}


def _declared() -> dict[str, set[str]]:
    """Queries that stand in one piece in the code, and the tables that they say they read."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "engine" / "store").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".execute"):
                said = next((k.value for k in node.keywords if k.arg == "tables"), None)
                if isinstance(said, ast.Tuple) and isinstance(node.args[0], ast.Constant):
                    found[str(node.args[0].value)] = {str(ast.literal_eval(one)) for one in said.elts}
    return found


@pytest.mark.sqlite
def test_what_a_query_says_that_it_reads_is_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a run that are put together, and all that stand in one piece."""
    said, execute = _declared(), Connection.execute

    def noted(self: Connection, sql: str, values: Values = (), /, **how: Any) -> Rows:
        if how.get("tables"):
            said[sql] = {*how["tables"]}
        return execute(self, sql, values, **how)

    monkeypatch.setattr(Connection, "execute", noted)
    calls = (call("write_file", file_path="a.txt", content="x\n"), call("read_file", file_path="a.txt"))
    stage = Stage(tmp_path / "stage", [tools(*calls), {"text": "done"}])
    assert stage.run("main", {"prompt": "go"}, approval_mode="yolo").status == "done"
    everywhere = {sql: tables for sql, tables in said.items() if "blobs" not in tables}
    assert len(everywhere) > 30
    assert [sql for sql, tables in everywhere.items() if not _read_by(sql) <= tables] == []
