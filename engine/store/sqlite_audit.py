"""sqlite_audit: the triggers of our own connections that note each audited row which changes, in SQLite's SQL."""

import json
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from interlock.engine.store.audit import AUDITED, REMOVED, Audit, body_of, key_expression, sha
from interlock.engine.store.tables import TABLE


def _sha(value: object) -> str | None:
    if value is None:
        return None
    return sha(value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass"))


def _texts(*values: object) -> str:
    return json.dumps(values)


def _part(text: Any, *names: str) -> str | None:
    """A value inside JSON; null where there is none, and in a damaged row."""
    with suppress(ValueError, TypeError, KeyError):
        value = _parsed(text)
        for name in names:
            value = value[name]
        return value if value is None or isinstance(value, str) else json.dumps(value)
    return None


@lru_cache(maxsize=1)  # several parts of one text are asked for in turn
def _parsed(text: Any) -> Any:
    return json.loads(text)


def add_functions(conn: sqlite3.Connection) -> None:
    """What `body_of` calls."""
    conn.create_function("sha", 1, _sha, deterministic=True)
    conn.create_function("texts", -1, _texts, deterministic=True)
    conn.create_function("part", -1, _part, deterministic=True)


def installed(conn: sqlite3.Connection, path: Path) -> Audit | None:
    """None: the store has no chain yet."""
    if conn.execute("select 1 from sqlite_master where name = 'audit'").fetchone() is None:
        return None
    made = Audit(conn, path)
    add_functions(conn)
    conn.create_function("note", -1, partial(_noted, made))
    for table in AUDITED:
        for statement in _triggers(table):
            conn.execute(statement)
    return made


def _noted(audit: Audit, table: str, kind: str, run: str, key: str, body: str | None, old: str = "") -> None:
    """`old`: what would be recorded of the row before its change. The database would make both twice to compare."""
    if body != old:
        was = f',"was":"{_sha(old)}"}}' if old else ""  # as in `changed_body`
        audit.note(table, kind, run, key, body[:-1] + was if body and was else body)


def _triggers(table: str) -> Iterable[str]:
    what = AUDITED[table]
    owner = TABLE[table].owner
    begun = "'begun'" if table == "runs" else what.kind

    def noting(kind: str, row: str, body: str) -> str:
        kind = kind.replace("@", row)
        return (
            f"begin select note('{table}', {kind}, {row}.{owner}, {key_expression(table, row)}, {body}); end"
        )

    old, new = body_of(table, "old"), body_of(table, "new")
    of = f" of {what.changes}" if what.changes else ""
    made = f"create temp trigger audit_{table}"
    yield f"{made}_new after insert on {table} {noting(begun, 'new', new)}"
    yield f"{made}_set after update{of} on {table} {noting(what.kind, 'new', f'{new}, {old}')}"
    yield f"{made}_gone after delete on {table} {noting(repr(REMOVED), 'old', 'null')}"
