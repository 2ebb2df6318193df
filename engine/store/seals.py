"""seals: which runs' definitions are as this host wrote them.

Others may write rows of a server's database. So a digest of what decides what a run executes is kept in the state
directory of the host that wrote it, and a process that serves others drives only what agrees with it. A store in a file
is its user's alone, and has no seals.
"""

import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store.connection import Connection
from interlock.services.files.disk import make_private_directory, path_below, replace_private_file
from interlock.state.errors import RunError, StoreError, UserError

PROGRESS = ("ignored_tests", "unsaved", "node_sources", "calls_before")
"""Options that say what a run did, which workers of other hosts write, too; they choose nothing that is executed."""


class Definition(NamedTuple):
    """What decides what a run executes."""

    workflow: str
    workspace: str
    options: dict[str, Any]
    input: str
    """JSON."""

    @property
    def digest(self) -> str:
        options = {name: value for name, value in self.options.items() if name not in PROGRESS}
        parts = json.dumps([self.workflow, self.workspace, options, self.input], sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()


def read_definition(conn: Connection, run: str, *, locked: bool = False) -> Definition:
    """Raises `UserError` if the run was removed. `locked`: inside a transaction: nobody changes it before its end."""
    lock = conn.change_lock if locked else ""
    sql = f"select workflow, workspace, options, input from runs where run = $1{lock}"
    row = conn.execute(sql, (run,)).fetchone()
    if row is None:
        raise UserError(f"Run {run!r} was removed meanwhile. List runs with: interlock runs --all")
    return Definition(row[0], row[1], json.loads(row[2]), row[3])


def seal(home: Path, run: str, definition: Definition) -> None:
    """Note that a run's definition is as this host, or a person at it, wants it."""
    file = _file(home, run)
    try:
        make_private_directory(file.parent)
        replace_private_file(file, definition.digest)
    except OSError as error:
        raise StoreError(f"Can't write {str(file)!r}: {error.strerror}.") from error


def seal_row(conn: Connection, run: str) -> None:
    """Inside the transaction that wrote a run's row: seal it as it is."""
    if conn.shared_home:
        seal(conn.shared_home, run, read_definition(conn, run))


def is_sealed(home: Path, run: str, definition: Definition) -> bool:
    try:
        return _file(home, run).read_text(encoding="utf-8") == definition.digest
    except OSError:
        return False


def is_row_sealed(conn: Connection, run: str) -> bool:
    """Inside a transaction: return whether a run is as this host wrote it; nobody changes it before the end."""
    if conn.shared_home is None:
        return True
    return is_sealed(conn.shared_home, run, read_definition(conn, run, locked=True))


@contextmanager
def resealed(conn: Connection, run: str) -> Generator[None]:
    """Inside a transaction: keep a run sealed whose row this process changes, if it was sealed before."""
    was_sealed = conn.shared_home is not None and is_row_sealed(conn, run)
    yield
    if was_sealed:
        seal_row(conn, run)


def forget_seal(home: Path, run: str) -> None:
    with suppress(OSError, RunError):  # a forged name
        _file(home, run).unlink()


def _file(home: Path, run: str) -> Path:
    return path_below(home / "seals", run)
