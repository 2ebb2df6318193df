"""postgres_audit: the triggers that note each audited row which changes, in PostgreSQL's SQL.

They note into settings of the transaction: a writer that isn't Interlock leaves no record, and `audit verify` says so.
"""

from collections.abc import Iterator

from interlock.engine.store.audit import AUDITED, body_of, changed_body, noting

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
