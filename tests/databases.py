"""databases: those that a store may be in; PostgreSQL is a server of this test process, in a temporary folder."""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from interlock.engine.store import Store
from interlock.engine.store.database import placed

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
def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return found[-1].parent if found else None


def _run(folder: Path, *words: str) -> None:
    as_user = (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    )
    subprocess.run(
        [*as_user, *words], check=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


@cache
def _server() -> str:
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's server isn't installed")
    # The server's user can't enter a temporary folder of root's alone.
    folder = Path(tempfile.mkdtemp(prefix="interlock-postgres-", dir="/tmp" if os.getuid() == 0 else None))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    data, control = str(folder / "data"), str(programs / "pg_ctl")
    _run(
        folder,
        str(programs / "initdb"),
        "-D",
        data,
        "-A",
        "trust",
        "-U",
        "postgres",
        "--no-sync",
        "-E",
        "UTF8",
    )
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=50"
    _run(folder, control, "-D", data, "-l", str(folder / "log"), "-o", options, "-w", "start")

    def stop() -> None:
        _run(folder, control, "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)

    atexit.register(stop)
    return f"postgresql://postgres@127.0.0.1:{port}"
