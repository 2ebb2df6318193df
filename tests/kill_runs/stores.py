"""stores: the database on a server that KILL_STORE names: emptied, kept and brought back. Without it: nothing."""

import os
from typing import LiteralString, cast

_ADDRESS = os.environ.get("KILL_STORE", "")
_SERVER, _, _NAME = _ADDRESS.rpartition("/")


def empty() -> str:
    """Returns its address. A new database: connections that this process keeps know the old one's tables."""
    _replace(_NAME, "template1")
    return _ADDRESS


def keep(number: int) -> None:
    """Keep it as it is now."""
    _replace(f"{_NAME}_{number}", _NAME)


def bring_back(number: int) -> None:
    """Make it as it was when it was kept under this number."""
    _replace(_NAME, f"{_NAME}_{number}")


def _replace(name: str, template: str) -> None:
    _execute(f"{_SERVER}/postgres", f"drop database if exists {name} with (force)")
    _execute(f"{_SERVER}/postgres", f"create database {name} template {template}")


def _execute(address: str, sql: str) -> None:
    if _ADDRESS:
        import psycopg

        with psycopg.connect(address, autocommit=True) as conn:
            conn.execute(cast(LiteralString, sql))
