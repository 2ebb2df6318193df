"""postgres_schema: what a store in PostgreSQL consists of, and the roles of those who use it, as SQL.

Its triggers note each audited row that changes into settings of the transaction: a writer that isn't Interlock leaves
no record, and `audit verify` says so.
"""

import re
from collections.abc import Iterator
from importlib.resources import files

from interlock.engine.store.audit import AUDITED, SCHEMA, body_of, changed_body, noting
from interlock.engine.store.sqlite import ADDED, CONVERTED, DROPPED
from interlock.engine.store.sqlite import SCHEMA_VERSION as OF_TABLES

SCHEMA_VERSION = OF_TABLES + 4
"""Of the tables that SQLite has, too, and of those that only a server's store has."""
_FIRST = 10
"""Version of the schema of the oldest stores here."""
_TYPES = (
    (r"(?<=\w )text\b", 'text collate "C"'),  # ids are compared as bytes, as in SQLite
    (r"\bblob\b", "bytea"),
    (r"\breal\b", "double precision"),
    (r"\binteger\b", "bigint"),
    (r"\) without rowid", ")"),
    (r"\bcreate view if not exists\b", "create or replace view"),
    (
        r"json_each\(([\w.]+)\) n\b",
        r"lateral (select value, place - 1 as key from json_array_elements(\1::json) "
        r"with ordinality n (value, place)) n",
    ),
    (r"json_extract\(n.value, '\$\[([012])\]'\)", r"(n.value ->> \1)::bigint"),
    (r"json_extract\(n.value, '\$\[(\d)\]'\)", r"(n.value ->> \1)"),
    (r" / (1e\d)", r" / \1::double precision"),
)

_INDEXES = (
    "runs_updated on runs (updated)",
    "runs_created on runs (created)",
    "runs_status on runs (status, updated)",
    "runs_workspace on runs (workspace, updated)",
    "runs_loose on runs (run) where queue is not null and status = 'open'",
    "chain_run on chain (run)",
    "chain_parent on chain (parent)",
    "named_files_run on named_files (run)",
    "lease_held on lease (run) where held = 1",
    "approvals_open on approvals (asked_at, run) where answer is null and superseded = 0 and interrupt is not null",
    "snapshots_repository on snapshots (repository)",
    "sessions_run on sessions (run)",
    "model_calls_at on model_calls (at)",
)
"""What a server's store is searched by beside its keys: it holds the runs of many people."""


def schema_of(text: str) -> str:
    """SQLite's definitions of tables as PostgreSQL's."""
    text = re.sub(r"--.*", "", text)
    for ours, theirs in _TYPES:
        text = re.sub(ours, theirs, text)
    return text


def definitions() -> Iterator[str]:
    """The statements that make the tables, or what a store of an earlier version lacks of them, and the triggers."""
    yield "create table if not exists store_version (version bigint primary key, at double precision)"
    for name, *_ in CONVERTED:
        yield _if_table(name, f"alter table {name} rename to {name}_before")
    yield from _tables_of("schema.sql")
    for changed, table, name, kind, _ in ADDED:
        if changed > _FIRST:
            yield f"alter table {table} add column if not exists " + schema_of(f"{name} {kind}")
    yield from _tables_of("server.sql", "interlock.fleet")
    for name, *statements in CONVERTED:
        yield _if_table(
            f"{name}_before", *(schema_of(dialect(one)) for one in statements), f"drop table {name}_before"
        )
    yield from ("drop index if exists runs_open", *DROPPED)
    yield from (f"create index if not exists {index}" for index in _INDEXES)
    yield from (FUNCTIONS.strip(), schema_of(SCHEMA).strip(), *triggers())


def _tables_of(file: str, room: str = "interlock.engine.store") -> Iterator[str]:
    schema = files(room).joinpath(file).read_text(encoding="utf-8")
    yield from (part.strip() for part in schema_of(schema).split(";\n") if part.strip())


def _if_table(name: str, *statements: str) -> str:
    there = f"select from pg_tables where tablename = '{name}' and schemaname = current_schema"
    return f"do $$ begin if exists ({there}) then {'; '.join(statements)}; end if; end $$"


def for_administrators(queue: str) -> str:
    """SQL that makes the tables of this version, the queue's, and three roles, for whoever may in the database.

    `queue`: the queue's definitions. The audit is begun by the first program that uses the store.
    """
    by_hand = f"insert into store_version values ({SCHEMA_VERSION}, 0) on conflict do nothing"
    roles = files("interlock.fleet").joinpath("roles.sql").read_text(encoding="utf-8")
    return ";\n\n".join([*definitions(), by_hand, queue.strip().removesuffix(";"), roles])


_NOTES, _FULL = "interlock.notes", "interlock.notes_full"
"""The settings with the last notes, and with the number of those before, which are `_NOTES` and a number."""
_ROOM = 16_000
"""Characters: a setting is copied with each note, so a long one would take a time that grows with its square."""
_NUMBER = f"coalesce(nullif(current_setting('{_FULL}', true), ''), '0')::int"
NOTED = (
    f"concat((select string_agg(current_setting('{_NOTES}_' || n), '' order by n) "
    f"from generate_series(0, {_NUMBER} - 1) n), current_setting('{_NOTES}', true))"
)
"""SQL expression: all notes of the transaction, a line each."""
_DIALECT = (
    ("json_object(", "json_build_object("),
    ("json_array(", "json_build_array("),
    ("texts(", "json_build_array("),
)
FUNCTIONS = f"""
create or replace function sha(value bytea) returns text language sql immutable as $$
    select encode(sha256(value), 'hex') $$;
create or replace function sha(value text) returns text language sql immutable as $$
    select encode(sha256(convert_to(value, 'UTF8')), 'hex') $$;
create or replace function sha(value json) returns text language sql immutable as $$
    select encode(sha256(convert_to(value::text, 'UTF8')), 'hex') $$;
create or replace function part(value text, variadic names text[]) returns text language plpgsql immutable as $$
    begin return value::json #>> names; exception when others then return null; end $$;
create or replace function note(tbl text, kind text, run text, key json, body json) returns void language plpgsql as $$
    declare
        notes text := coalesce(current_setting('{_NOTES}', true), '')
            || json_build_array(tbl, kind, run, key::text, body::text)::text || chr(10);
    begin
        if length(notes) > {_ROOM} then
            perform set_config('{_NOTES}_' || {_NUMBER}, notes, true);
            perform set_config('{_FULL}', ({_NUMBER} + 1)::text, true);
            notes := '';
        end if;
        perform set_config('{_NOTES}', notes, true);
    end $$;
"""


def triggers() -> Iterator[str]:
    for table in AUDITED:
        yield f"drop trigger if exists audit on {table}"
        yield _function(table)
        changes = f"after insert or update or delete on {table}"
        yield f"create trigger audit {changes} for each row execute function audit_{table}()"


def _function(table: str) -> str:
    old, new = body_of(table, "old"), body_of(table, "new")
    inserted, deleted = noting(table, "insert", new), noting(table, "delete", "null")
    updated, changed = (
        noting(table, "update", changed_body(table)),
        f"{old}::text is distinct from {new}::text",
    )
    return dialect(f"""
create or replace function audit_{table}() returns trigger language plpgsql as $$ begin
    if tg_op = 'INSERT' then perform {inserted};
    elsif tg_op = 'DELETE' then perform {deleted};
    elsif {changed} then perform {updated}; end if;
    return null; end $$""")


def dialect(sql: str) -> str:
    for ours, theirs in _DIALECT:
        sql = sql.replace(ours, theirs)
    return sql
