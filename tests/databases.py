"""databases: those that a store may be in; PostgreSQL is a server of these tests, in a temporary folder.

TEST_STORE=postgresql (`make postgres`): every store of every test is in PostgreSQL, in a database of its own.
"""

import atexit
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from interlock.engine import store
from interlock.engine.store import ADDRESS, Store, prepare_state_directory_for_store
from interlock.engine.store.connection import Adapter
from interlock.engine.store.tables import TABLES

sys.path.append(str(Path(__file__).parents[1] / "docs"))
import postgres_server
import shared

IN_POSTGRESQL = os.environ.get("TEST_STORE") == "postgresql"
_TEMPLATE = "template_store"


def postgres_store(folder: Path) -> Store:
    """A store in a new database with its tables; the test is skipped where no server is installed."""
    return Store(prepare_state_directory_for_store(folder, fresh_database(_TEMPLATE)))


def fresh_database(template: str = "template1") -> str:
    """The address of an empty database."""
    name = f"test_{uuid4().hex}"
    _execute(f"create database {name} template {template}" + _by_files())
    return f"{server()}/{name}"


DATABASES: dict[str, Callable[[Path], Store]] = {"sqlite": Store, "postgresql": postgres_store}
if IN_POSTGRESQL:
    del DATABASES["sqlite"]


def everywhere(given: str = "") -> None:
    """From now on, in this process and its forks: a state directory without a store gets a database on the server."""
    if not postgres_server.installed():
        pytest.exit("PostgreSQL's server isn't installed", 0)
    import psycopg  # noqa: F401 - once, not in each fork

    if given:
        os.environ["TEST_SERVER"] = given
    os.environ["TEST_SERVER"] = server()  # which remembers it: a fork has another environment
    of_file, connect = store.open_adapter, sqlite3.connect

    def adapter_of(path: Path) -> Adapter:
        if not (path.parent / ADDRESS).exists() and not path.exists():
            _place(path.parent)
        return of_file(path)

    def connected(path: Any, *given: Any, **named: Any) -> sqlite3.Connection:
        if Path(path).name == "interlock.db" and Path(path).with_name(ADDRESS).exists():
            pytest.fail("this test looks into SQLite's file: mark it `sqlite`, or use the store's functions")
        return connect(path, *given, **named)

    store.open_adapter = adapter_of
    sqlite3.connect = connected


def _make_template(address: str) -> None:
    """Tables, without an audit: each store begins its own."""
    from interlock.fleet.postgres_schema import SCHEMA_VERSION, table_definitions_sql

    _execute(f"create database {_TEMPLATE}", address)
    made = f"insert into store_version values ({SCHEMA_VERSION}, 0)"
    _execute(table_definitions_sql() + made, address, _TEMPLATE)


_placed: dict[Path, str] = {}


def _place(home: Path) -> None:
    if home in _placed:  # the folder was made anew
        _drop(_placed[home])
    address = _placed[home] = fresh_database(_TEMPLATE)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = home / f"{ADDRESS}.{os.getpid()}.{threading.get_ident()}"
    made.touch(0o600)
    made.write_text(address)
    with suppress(FileExistsError):  # another process was faster
        (home / ADDRESS).hardlink_to(made)
    made.unlink()


def rows_of(home: Path, run: str = "") -> list[tuple[object, ...]]:
    """Every row of a store, or those of one run, except heartbeats."""
    found: list[tuple[object, ...]] = []
    with store.open_reader(home) as conn:
        assert conn
        for table in TABLES:
            where = f"where {table.owner} = $1" if run else ""
            sql = f"select '{table.name}', * from {table.name} {where} order by {', '.join(table.key)}"
            found += [(*row,) for row in conn.execute(sql, (run,) if run else ()) if table.name != "lease"]
    return found


def changed(home: Path, sql: str, *values: object) -> None:
    """Change rows behind the product's back."""
    with closing(Store(home).connect()) as conn:
        conn.execute_raw(sql, values)


def drop_below(*folders: Path) -> None:
    """Drop the databases of the stores in these folders."""
    for file in (file for folder in folders for file in folder.rglob(ADDRESS)):
        _drop(file.read_text())


def _drop(address: str) -> None:
    _execute(f"drop database if exists {address.rpartition('/')[2]} with (force)")


def _by_files() -> str:
    """Three times as fast where nothing is synced; until version 14 there was no other way."""
    return "" if "/14/" in str(postgres_server.installed()) else " strategy file_copy"


def _execute(sql: str, address: str = "", name: str = "postgres") -> None:
    import psycopg

    with psycopg.connect(f"{address or server()}/{name}", autocommit=True) as conn:
        conn.execute(sql.encode())


@cache
def server() -> str:
    """Its address without a database's name; a process above this one may have started it."""
    if "TEST_SERVER" in os.environ:
        return os.environ["TEST_SERVER"]
    if not postgres_server.installed():
        pytest.skip("PostgreSQL's server isn't installed")
    if shared.IS_OFFERED:
        return shared.given("server")[0]
    made = postgres_server.Server("-c fsync=off -c full_page_writes=off -c max_connections=200")
    atexit.register(made.stop)
    address = made.start().removesuffix("/postgres")
    _make_template(address)
    return address


if IN_POSTGRESQL:

    def pytest_configure() -> None:
        everywhere()

    @pytest.fixture(autouse=True)
    def databases(request: pytest.FixtureRequest) -> Generator[None]:
        """Drop those of a test's stores with it."""
        names = {"home", "tmp_path"}.intersection(request.fixturenames)
        folders = [request.getfixturevalue(name) for name in names]
        yield
        drop_below(*(folder for folder in folders if isinstance(folder, Path)))
