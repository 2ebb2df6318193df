"""No look-up of one run reads all rows of a table: the database's planner is asked about every query of a session."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from databases import IN_POSTGRESQL
from scripted import says

from interlock.engine import Options, resume_sync, run_sync
from interlock.engine.client import Client
from interlock.engine.options import Decision
from interlock.engine.store import Store
from interlock.engine.store.connection import Connection, Values
from interlock.engine.store.tables import Write

QUEUED = r"procrastinate|pg_|information_schema|sqlite_master|store_version|recorded_|temp\."
"""Tables of the database itself, of the queue, and those that only the store of a replay has."""
SMALL = {"step_kinds", "checkpoint_migrations", "audit_key", "reservations"}
"""Tables that don't grow with the number of runs."""
OF_THE_STORE = [
    r"select \S+ from audit order by seq desc limit 1",  # by its key, from the end
    r"select id(, parent)? from chain\b(?!.* = )",  # a replay's store has one run
    r"update runs set queue = \$1 where queue is not null",  # the same
]
WRITE = {"name": "write_file", "args": {"file_path": "a.txt", "content": "x"}}
REPLIES = [says("read_file", file_path="b.txt"), {"tool_calls": [WRITE]}, {"text": "done"}, {"text": "again"}]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Values]]:
    """Every query, once, with its values."""
    found: dict[str, Values] = {}
    execute, perform = Connection.execute, Connection._execute_write

    def note(sql: str, values: Values) -> None:
        if re.match(r"\s*(select|with|update|delete)\b", sql) and not re.search(QUEUED, sql):
            found.setdefault(sql, values)

    def executed(self: Connection, sql: str, values: Values = (), /, **how: Any) -> object:
        note(sql, values)
        return execute(self, sql, values, **how)

    def performed(self: Connection, write: Write) -> object:
        note(write.sql, write.values)
        return perform(self, write)

    monkeypatch.setattr(Connection, "execute", executed)
    monkeypatch.setattr(Connection, "_execute_write", performed)
    yield found


def scanned(conn: Connection, sql: str, values: Values) -> list[str]:
    """The tables that the query reads from end to end."""
    if IN_POSTGRESQL:
        conn.execute_raw("set enable_seqscan = off")  # where an index would do, the planner takes it now
        plan = [row[0] for row in conn.execute_raw(f"explain {sql}", values).fetchall()]
        return [name for line in plan for name in re.findall(r"Seq Scan on (\w+)", line)]
    plan = [row[3] for row in conn.execute_raw(f"explain query plan {sql}", values).fetchall()]
    named = {
        alias: table for table, alias in re.findall(r"(?:from|join)\s+(\w+)(?:\s+as)?(?:\s+(\w+))?", sql)
    }
    tables = {
        row[0] for row in conn.execute("select name from sqlite_master where type = 'table'").fetchall()
    }
    found = [
        match
        for line in plan
        if (match := re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", line))
    ]
    names = [(named.get(match[1], match[1]), match[2] or "") for match in found]
    # An index of those that wait or are driven holds only them; `runs_updated` is read from its end, up to a limit.
    partial = ("approvals_open", "lease_held", "runs_updated")
    return [name for name, index in names if name in tables and index not in partial]


def test_nothing_that_is_asked_about_one_run_reads_whole_tables(
    tmp_path: Path, home: Path, run: Run, asked: dict[str, Values]
) -> None:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    (work / "b.txt").write_text("b")
    script = tmp_path / "script.json"
    script.write_text(json.dumps(REPLIES))
    options = Options(
        home=home / "interlock", workspace=work, model=f"script:{script}", env={"PATH": "/usr/bin:/bin"}
    )
    parked = run_sync("main", {"prompt": "Do it."}, options=options)
    assert run("approvals", parked.run, "--json").json
    decisions = [Decision("all", "proceed_once")]
    assert resume_sync(parked.run, decisions=decisions, options=options).status == "done"
    resume_sync(parked.run, prompt="And?", options=options)
    for words in (
        *(("show",), ("history", "--json"), ("diff", "--files"), ("export", "--format", "json"), ("replay",)),
        *(
            ("show", "--verify"),
            ("show", "--at", "2"),
            ("fork", "--at", "2", "--in-place"),
            ("undo",),
            ("logs",),
        ),
    ):
        ended = run(words[0], parked.run, *words[1:])
        assert ended.code == 0, ended.err
    for words in (
        ("runs",),
        ("runs", "--status", "waiting"),
        ("runs", "--status", "running"),
        ("approvals",),
    ):
        assert run(*words).code == 0
    client = Client(options)
    assert client.find_run(parked.run[:6]) and client.find_run("latest", work)
    client.find_run_to_continue(has_prompt=False)
    run("runs", "rm", parked.run)
    assert len(asked) > 100
    with closing(Store(options.home).connect()) as conn:
        queries = {
            sql: values for sql, values in asked.items() if not any(re.match(p, sql) for p in OF_THE_STORE)
        }
        found = {
            sql: names for sql, values in queries.items() if (names := {*scanned(conn, sql, values)} - SMALL)
        }
    assert not found, "\n\n".join(f"{names}: {' '.join(sql.split())}" for sql, names in found.items())
