"""The statements of a run's life in PostgreSQL: each finds its rows by an index, however many runs there are.

Not among them, because they read the whole store: `runs --all`, `runs rm`, `stats`, `audit verify`, `doctor --store`.
"""

import os
import re
from pathlib import Path

import pytest
from commands import Run, run
from databases import fresh_database
from folders import put
from scripted import says, shell, tools

from interlock.engine.store.connection import Values

__all__ = ["run"]

SCRIPT = [
    says("write_file", file_path="made.txt", content="made\n"),
    tools(shell("true")),
    {"text": "Made it."},
]
_PLACE = re.compile(r"\$(\d+)")


def test_every_statement_of_a_runs_life_has_an_index(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    psycopg = pytest.importorskip("psycopg")
    from interlock.fleet.postgres import PostgresConnection

    monkeypatch.setenv("INTERLOCK_STORE", fresh_database())
    script = put(tmp_path / "script.json", SCRIPT)
    assert run("fleet", "init").code == 0
    seen, told = dict[str, None](), PostgresConnection.execute_pipelined
    monkeypatch.setattr(
        PostgresConnection,
        "execute_pipelined",
        lambda one, sql, given=(): seen.setdefault(sql) or told(one, sql, given),
    )
    _life(run, f"script:{script}")
    assert len(seen) > 60
    with psycopg.connect(os.environ["INTERLOCK_STORE"], autocommit=True) as conn:
        conn.execute("set enable_seqscan = off; set plan_cache_mode = force_generic_plan")
        slow = {sql: plan for sql in seen if "Seq Scan" in (plan := _plan(conn, sql))}
    assert not slow, "\n\n".join(f"{sql}\n{plan}" for sql, plan in slow.items())


def _life(run: Run, model: str) -> None:
    assert run("-p", "make it", "-m", model).code == 75
    (name,) = [row["run"] for row in run("runs", "--status", "waiting", "--json").json]
    run("approvals")
    while run("resume", "latest", "--approve", "all").code == 75:
        pass
    begun = run("run", "main", "--detach", "-m", model, "make it").out.strip()
    for words in (
        ("runs",),
        ("runs", "--status", "waiting"),
        ("approvals", name),
        ("fleet",),
        ("logs", begun),
        ("wait", name),
        ("cancel", begun),
        ("resume", begun),
        ("limits", "user=*", "--runs", "4"),
        ("limits",),
        ("schedule", "add", "@daily", "main", "-m", model, "--name", "one", "make it"),
        ("schedule", "list"),
        ("schedule", "remove", "one"),
        ("show", name, "--calls"),
        ("show", name[:5]),
        ("history", name),
        ("export", name),
        ("diff", name, "--files"),
        ("replay", name),
        ("fork", name, "--at", "1"),
        ("undo", name),
    ):
        assert run(*words).code in (0, 1, 75), words


def _plan(conn: "psycopg.Connection[tuple[str]]", sql: str) -> str:  # noqa: F821 - an extra
    if sql.split()[0].lower() not in ("select", "insert", "update", "delete", "with"):
        return ""
    number = max(map(int, _PLACE.findall(sql)), default=0)
    conn.execute(f"prepare one as {sql}")
    given = ", ".join(["null"] * number)
    rows = conn.execute(f"explain execute one{f'({given})' if number else ''}").fetchall()
    conn.execute("deallocate one")
    return "\n".join(line for (line,) in rows)


_SCANNED = re.compile(r"SCAN (?!CONSTANT ROW|\(|SUBQUERY|lease USING INDEX lease_held)(\w+)\b(?! VIRTUAL)")
_SHORT = {"c", "s", "chosen", "above", "related", "reached", "family", "sqlite_master"}
"""What a statement makes itself, and `runs` in `views` names so: it holds what was found. And the list of tables.
An index of the leases that are held has a row for each run at work."""


def test_no_look_up_of_one_run_in_a_file_scans_a_table(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from contextlib import closing

    from interlock.engine.store import resolve_state_directory, sqlite

    monkeypatch.delenv("INTERLOCK_STORE", raising=False)
    script = put(tmp_path / "script.json", SCRIPT)
    assert run("-p", "make it", "-m", f"script:{script}").code == 75
    (name,) = [row["run"] for row in run("runs", "--json").json]
    seen = dict[str, Values]()
    stored = sqlite.SqliteConnection.execute_raw

    def noted(conn: sqlite.SqliteConnection, sql: str, values: Values = ()) -> object:
        seen.setdefault(sql, values)
        return stored(conn, sql, values)

    monkeypatch.setattr(sqlite.SqliteConnection, "execute_raw", noted)
    looks = (
        ("show", name),
        ("show", name, "--calls"),
        ("approvals", name),
        ("history", name),
        ("logs", name),
    )
    for words in (*looks, ("wait", name), ("show", name[:5]), ("resume", name, "--approve", "all")):
        assert run(*words).code in (0, 75), words
    slow = dict[str, list[str]]()
    reader = sqlite.Sqlite(resolve_state_directory() / "interlock.db").connect_reader()
    assert reader
    with closing(reader) as conn:
        for sql, values in seen.items():
            if sql.split()[0].lower() in ("select", "with", "update", "delete"):
                plan = [row[3] for row in stored(conn, f"explain query plan {sql}", values)]
                slow[sql] = [
                    line for line in plan if (found := _SCANNED.match(line)) and found[1] not in _SHORT
                ]
    assert len(slow) > 30
    assert not any(slow.values()), {sql: lines for sql, lines in slow.items() if lines}
