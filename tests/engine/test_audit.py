"""Nobody without the key changes the record of who decided what, or a row that it is about, unnoticed."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kill_runs.scene import Scene

from interlock.engine import Decision, resume_sync, run_sync
from interlock.engine.audit import find_audit_problems, read_audit_records, sign_newest_record
from interlock.engine.client import Client, Options
from interlock.engine.store import Store
from interlock.engine.store import audit as audited_key_text
from interlock.engine.store.audit import AUDITED, AuditRecord, pack_audit_record

pytestmark = pytest.mark.sqlite
"""It changes rows in SQLite's own words; `test_fleet.py` has the same kinds of change in PostgreSQL's."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory after a run in which a person approved what changed files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("user")))
        scene = Scene(tmp_path_factory.mktemp("audit") / "scene")
        scene.prepare()
        outcome = run_sync("main", {"prompt": "Do it."}, options=scene.options, run_id="r")
        client = Client(scene.options)
        while outcome.status == "waiting":
            decisions = [
                Decision(r.id, "proceed_once", door="--approve") for r in client.waiting_requests("r")
            ]
            outcome = resume_sync("r", decisions=decisions, options=scene.options)
        assert outcome.status == "done"
        _with_more(scene.options.home)
        return scene.options.home


def _with_more(home: Path) -> None:
    """Rows of tables that the scene leaves empty, as a driver writes them."""
    when = {"run": "r", "attempt": 1, "epoch": 1, "intent_at": 1.0, "done_at": 2.0, "state": "done"}
    hook = {"event": "BeforeTool", "key": "k", "hook": "h", "place": 0, "subject": "s", "name": "lint"}
    source = {
        "source": "settings.json",
        "command": "./lint",
        "idempotent": 0,
        "reply": "{}",
        "reply_file": "f",
    }
    node = {"task": "t", "key": "k", "place": "main", "type": "json", "value": b"1"}
    with closing(Store(home).connect()) as conn, conn.transaction():
        conn.insert("hook_calls", {**when, **hook, **source})
        conn.insert("effects", {**when, **node})


@pytest.fixture
def home(ended: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    copy.mkdir()
    with closing(sqlite3.connect(ended / "interlock.db")) as conn:
        conn.execute("pragma wal_checkpoint(truncate)")
    for name in ("interlock.db", "audit", "outputs"):
        source = ended / name
        target = copy / name
        if source.is_dir():
            target.mkdir()
            for file in source.iterdir():
                (target / file.name).write_bytes(file.read_bytes())
        else:
            target.write_bytes(source.read_bytes())
    (copy / "untouched").write_bytes((copy / "interlock.db").read_bytes())
    return copy


def test_every_decision_says_who_and_where_and_every_effect_has_an_intent(home: Path) -> None:
    assert find_audit_problems(home)[1] == []
    found = [(r.kind, r.table, json.loads(r.body or "{}")) for r in read_audit_records(home)]
    answers = [body for kind, _, body in found if kind == "answer"]
    assert answers and all(b["who"] and b["door"] == "--approve" and b["shown"] for b in answers)
    assert {"store", "begun", "request", "decision", "intent", "effect"} <= {kind for kind, *_ in found}
    done = {r.key for r in read_audit_records(home) if r.kind == "effect" and r.table == "journal"}
    assert {r.key for r in read_audit_records(home) if r.kind == "intent" and r.table == "journal"} <= done


def _recomputed(conn: sqlite3.Connection) -> None:
    """What somebody does who knows the program, but not the key."""
    before = ""
    for row in conn.execute("select * from audit order by seq").fetchall():
        before = AuditRecord.from_row(row).expected_hash(before)
        conn.execute("update audit set hash = ? where seq = ?", (before, row[0]))


def _lied(conn: sqlite3.Connection, seq: int) -> None:
    """An answer came from the page."""
    (row,) = conn.execute("select * from audit where seq = ?", (seq,)).fetchall()
    record = AuditRecord.from_row(row)
    body = (record.body or "").replace("--approve", "page")
    assert body != record.body
    changes = (*pack_audit_record(record.key, body), seq)
    conn.execute("update audit set key = ?, body = ? where seq = ?", changes)


def _renumbered(conn: sqlite3.Connection) -> None:
    rows = conn.execute("select seq from audit order by seq").fetchall()
    for number, (seq,) in enumerate(rows, 1):
        conn.execute("update audit set seq = ? where seq = ?", (number, seq))
    _recomputed(conn)


def _shifted(conn: sqlite3.Connection, seq: int) -> None:
    """Insert a copy of the record before `seq` there, and number what follows anew."""
    conn.execute("update audit set seq = -seq where seq >= ?", (seq,))
    conn.execute("update audit set seq = 1 - seq where seq < 0")
    columns = "at, kind, run, tbl, key, body, hash, mac"
    conn.execute(f"insert into audit select {seq}, {columns} from audit where seq = {seq - 1}")


def _swapped(conn: sqlite3.Connection, seq: int) -> None:
    """Exchange a record with the one before it."""
    for old, new in ((seq, 0), (seq - 1, seq), (0, seq - 1)):
        conn.execute("update audit set seq = ? where seq = ?", (new, old))


_CHAIN: dict[str, Any] = {
    "changed": _lied,
    "changed time": "update audit set at = at - 3600 where seq = :seq",
    "removed": "delete from audit where seq = :seq",
    "end removed": "delete from audit where seq >= :seq",
    "inserted": "insert into audit select max(seq) + 1, at, kind, run, tbl, key, body, hash, mac from audit",
    "inserted before": _shifted,
    "swapped": _swapped,
    "moved": "update audit set (kind, body) = (select kind, body from audit b where b.seq = :seq - 1) "
    "where seq = :seq",
    "another mac": "update audit set mac = (select mac from audit b where b.seq = :seq - 1) where seq = :seq",
    **{
        f"another {name}": f"update audit set {name} = coalesce({name}, '') || 1 where seq = :seq"
        for name in ("kind", "run", "tbl", "key", "body")
    },
}


@pytest.mark.parametrize("then", [None, _recomputed, _renumbered], ids=["left", "recomputed", "renumbered"])
@pytest.mark.parametrize("change", _CHAIN)
def test_each_change_of_the_chain_is_found(home: Path, change: str, then: Any) -> None:
    last = max(r.seq for r in read_audit_records(home))
    with closing(sqlite3.connect(home / "interlock.db")) as conn:
        (answer,) = conn.execute("select max(seq) from audit where kind = 'answer'").fetchone()
        for seq in {2, answer, last} if change not in ("changed", "inserted") else {answer}:
            made = _CHAIN[change]
            made(conn, seq) if callable(made) else conn.execute(made, {"seq": seq} if ":seq" in made else {})
            if then:
                then(conn)
            conn.commit()
            assert find_audit_problems(home)[1], seq
            _restored(conn, home, "audit")
            assert find_audit_problems(home)[1] == []


def _restored(conn: sqlite3.Connection, home: Path, table: str) -> None:
    conn.execute(f"delete from {table}")
    conn.commit()
    conn.execute(f"attach '{home / 'untouched'}' as was")
    conn.execute(f"insert into {table} select * from was.{table}")
    conn.commit()
    conn.execute("detach was")


_UNRECORDED = {
    "runs": {"title", "updated", "status", "outcome", "step", "error", "queue"},
    "approvals": {"interrupt", "number"},
}
"""Columns that say nothing of who did what: a run's progress, and the engine's wiring."""
_INSIDE = {("runs", "options"): """json_set(options, '$.rights', json('{"allow": "all"}'))"""}
"""What is recorded of a column that holds more than that."""


@pytest.mark.parametrize("table", AUDITED)
def test_each_change_of_a_row_is_found_and_names_the_run(home: Path, table: str) -> None:
    unrecorded: set[str] = _UNRECORDED.get(table, set())
    with closing(sqlite3.connect(home / "interlock.db")) as conn:
        conn.execute("pragma foreign_keys = off")
        kinds = {name: kind for _, name, kind, *_ in conn.execute(f"pragma table_info({table})")}
        names = [*kinds]
        assert conn.execute(f"select count(*) from {table}").fetchone()[0] and unrecorded <= {*names}
        one = f"where rowid = (select min(rowid) from {table})" if table in ("runs", "approvals") else ""
        changes = [f"delete from {table} {one}"]
        copied = ", ".join(_other(table, name) for name in names)
        changes.append(f"insert into {table} select {copied} from {table} limit 1")
        for name in {*names} - unrecorded:
            other = (
                f"coalesce({name}, 0) + 0.001"
                if kinds[name].lower() == "real"
                else f"coalesce({name}, '') || 1"
            )
            new = _INSIDE.get((table, name), other)
            changes.append(f"update or ignore {table} set {name} = {new} {one}")
        for change in changes:
            conn.execute(change)
            conn.commit()
            assert any("run r" in line for line in find_audit_problems(home)[1]), change
            _restored(conn, home, table)
        assert find_audit_problems(home)[1] == []


def test_an_exchange_of_two_rows_is_found(home: Path) -> None:
    with closing(sqlite3.connect(home / "interlock.db")) as conn:
        for table in ("journal", "decisions"):
            two = f"(select idx, message from {table} group by 1, 2 limit 2)"
            ((i, m), (j, n)) = conn.execute(f"select * from {two}").fetchall()
            for old, new in (((i, m), (-1, m)), ((j, n), (i, m)), ((-1, m), (j, n))):
                conn.execute(
                    f"update {table} set idx = ?, message = ? where idx = ? and message = ?", new + old
                )
            conn.commit()
            assert sum(f"a row of {table!r} was" in line for line in find_audit_problems(home)[1]) >= 2
            _restored(conn, home, table)


def _written(home: Path) -> None:
    """What an unsuspecting Interlock writes next."""
    with closing(Store(home).connect()) as conn, conn.transaction(synced=True):
        conn.update("hook_calls", {"state": "skipped"}, {"key": "k"})


@pytest.mark.parametrize(
    "change", ["delete from audit where seq > 10", "drop table audit; pragma user_version = 8"]
)
def test_what_is_written_after_a_cut_does_not_hide_it(home: Path, change: str) -> None:
    with closing(sqlite3.connect(home / "interlock.db")) as conn:
        conn.executescript(change)
        if "drop" in change:
            conn.execute("update approvals set answered_by = 'somebody else'")
            conn.commit()
    Store(home).create_or_migrate()
    for _ in range(2):
        _written(home)
        (line,) = [line for line in find_audit_problems(home)[1] if "end was cut off before" in line]
        assert '"record": ' in line


def test_a_change_is_found_although_interlock_changed_the_row_later(home: Path) -> None:
    with closing(sqlite3.connect(home / "interlock.db")) as conn, conn:
        conn.execute("update hook_calls set command = './another'")
    _written(home)
    (line,) = find_audit_problems(home)[1]
    assert "a row of 'hook_calls' was changed before record" in line and "run r" in line


def _other(table: str, name: str) -> str:
    key = {"runs": "run", "approvals": "id", "journal": "attempt", "decisions": "task"}.get(table, "key")
    changed = "'run r, another'" if name != "attempt" else "99"
    return changed if name == key else "'other'" if (table, name) == ("approvals", "key") else name


def test_a_replaced_key_is_named(home: Path) -> None:
    (home / "audit" / "key").unlink()
    audited_key_text._read_or_create_key_file.cache_clear()  # as in another process
    records, (unread, told, *_) = find_audit_problems(home)
    assert "audit/head" in told and "INTERLOCK_AUDIT_KEY" in unread, unread
    assert unread.startswith(f"{records} records, from record 1 (")


def test_a_head_that_was_kept_elsewhere_shows_an_older_store_put_back(home: Path, ended: Path) -> None:
    one = sign_newest_record(home)
    assert find_audit_problems(home, (one,)) == (one["seq"], [])
    forged = {**one, "seq": one["seq"] + 1}
    assert any("isn't signed" in line for line in find_audit_problems(home, (forged,))[1])
    with closing(sqlite3.connect(home / "interlock.db")) as conn, conn:
        conn.execute("delete from audit where seq = ?", (one["seq"],))
    assert any("cut off or replaced" in line for line in find_audit_problems(home, (one,))[1])


def test_a_removed_run_and_a_store_of_before_leave_no_complaint(home: Path) -> None:
    with closing(sqlite3.connect(home / "interlock.db")) as conn, conn:
        conn.execute("drop table audit")
        conn.execute("pragma user_version = 8")
    (home / "audit" / "head").unlink()  # an older version knew none
    Store(home).create_or_migrate()
    assert find_audit_problems(home)[1] == []
    assert {r.kind for r in read_audit_records(home)} == {"store", "taken over unverified"}
    Client(Options(home=home)).remove_run_and_list_kept_files("r")
    assert find_audit_problems(home)[1] == []
    assert [*read_audit_records(home)][-1].kind == "removed"


def test_a_commit_that_fails_leaves_no_head_of_a_record_that_never_was(home: Path) -> None:
    """As on a full disk, or in a driver that lost its run."""
    with closing(Store(home).connect()) as conn:
        conn.set_commit_check(lambda: conn.execute("select no_such_column"))
        with pytest.raises(sqlite3.OperationalError), conn.transaction(synced=True):
            conn.update("decisions", {"attempt": 9}, {"run": "r"})
    assert find_audit_problems(home)[1] == []


def test_a_key_of_ones_own_signs_and_another_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Path
) -> None:
    monkeypatch.setenv("INTERLOCK_AUDIT_KEY", str(ended / "audit" / "key"))
    Store(tmp_path / "own").create_or_migrate()
    one = sign_newest_record(tmp_path / "own")
    assert find_audit_problems(tmp_path / "own", (one,)) == (1, [])
    monkeypatch.delenv("INTERLOCK_AUDIT_KEY")
    assert any("another key" in line for line in find_audit_problems(tmp_path / "own")[1])
