"""postgres_schema: what a store in PostgreSQL consists of, and the roles of those who use it, as SQL.

A writer that isn't Interlock leaves no record in the audit, and `audit verify` says so.
"""

from importlib.resources import files

from interlock.engine.store.sqlite import SCHEMA_VERSION as OF_TABLES

SCHEMA_VERSION = OF_TABLES + 5
"""Of the tables that SQLite has, too, and of those that only a server's store has."""
COMPLETE = OF_TABLES + 4
"""Stores from this version on lack nothing: those of the first have triggers, which note what nobody reads any more."""


def table_definitions_sql() -> str:
    """Return the statements that make the tables, or what a store of an earlier version lacks of them."""
    return _read_sql_file("postgres.sql")


def administrator_sql(queue_sql: str) -> str:
    """Return SQL that makes the tables of this version, the queue's, and three roles, for whoever may in the database.

    `queue_sql`: the queue's definitions. The audit is begun by the first program that uses the store.
    """
    by_hand = f"insert into store_version values ({SCHEMA_VERSION}, 0) on conflict do nothing"
    return ";\n\n".join(
        [
            table_definitions_sql().strip().removesuffix(";"),
            by_hand,
            queue_sql.strip().removesuffix(";"),
            _read_sql_file("roles.sql"),
        ]
    )


def _read_sql_file(file: str) -> str:
    return files("interlock.fleet").joinpath(file).read_text(encoding="utf-8")
