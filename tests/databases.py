"""databases: those that a store may be in; PostgreSQL is a server of this test process, in a temporary folder."""

import atexit
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from interlock.engine.store import Store
from interlock.engine.store.database import placed

sys.path.append(str(Path(__file__).parents[1] / "docs"))
import postgres_server

_NUMBERS = count(1)


def postgres_store(folder: Path) -> Store:
    """A store in an empty database; the test is skipped where no server is installed."""
    return Store(placed(folder, fresh_database()))


def fresh_database() -> str:
    """The address of an empty database."""
    import psycopg

    base, name = _server(), f"test_{next(_NUMBERS)}"
    with psycopg.connect(f"{base}/postgres", autocommit=True) as conn:
        conn.execute(f"create database {name}")
    return f"{base}/{name}"


DATABASES: dict[str, Callable[[Path], Store]] = {"sqlite": Store, "postgresql": postgres_store}


@cache
def _server() -> str:
    if not postgres_server.installed():
        pytest.skip("PostgreSQL's server isn't installed")
    made = postgres_server.Server("-c fsync=off -c max_connections=50")
    atexit.register(made.stop)
    return made.start().removesuffix("/postgres")
