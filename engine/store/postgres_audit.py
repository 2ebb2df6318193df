"""postgres_audit: the triggers that note each audited row which changes, in PostgreSQL's SQL.

They note into a setting of the transaction: a writer that isn't Interlock leaves no record, and `audit verify` says so.
"""

from collections.abc import Iterator

from interlock.engine.store.audit import AUDITED, body_of, changed_body, noting

NOTES = "interlock.notes"
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
    begin perform set_config('{NOTES}', coalesce(current_setting('{NOTES}', true), '')
        || json_build_array(tbl, kind, run, key::text, body::text)::text || chr(10), true); end $$;
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
