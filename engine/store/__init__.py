"""store: everything a run leaves behind: which database holds it, where that is, opening it, and reading rows.

It is SQLite (WAL) in the state directory, or PostgreSQL on a server that the directory names.
"""

import hashlib
import json
import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from interlock.engine.optional_rooms import load_fleet_entry_point
from interlock.engine.store.connection import Adapter, ChangeDetector, Connection
from interlock.engine.store.sqlite import Sqlite
from interlock.services.files.disk import BUSY_TIMEOUT_S, make_private_directory, replace_private_file
from interlock.state.entry_points import find_entry_point
from interlock.state.errors import ConfigError, StoreError
from interlock.state.text import replace_surrogates


def open_adapter(path: Path) -> Adapter:
    """Raises `StoreError` if the state directory is another user's, as under `sudo -u` with HOME kept."""
    try:
        (path.parent / ADDRESS).lstat()
    except PermissionError as error:
        raise StoreError(
            f"Can't read the state directory {str(path.parent)!r}: {error.strerror}. "
            "Choose another with INTERLOCK_HOME."
        ) from error
    except OSError:
        return Sqlite(path)
    scheme = read_store_address(path).partition(":")[0] or "postgresql"
    adapter: type[Adapter] = load_fleet_entry_point("interlock.stores", scheme, "Runs in PostgreSQL need")
    return adapter(path)


def explain_store_errors(path: Path) -> AbstractContextManager[None]:
    """Convert errors of the database and the disk to one line that says what to do."""
    return open_adapter(path).explain_errors()


def make_change_detector(home: Path) -> ChangeDetector:
    return open_adapter(home / "interlock.db").make_change_detector()


@contextmanager
def open_reader(home: Path) -> Generator[Connection | None]:
    """A read-only connection; None if there is no store yet. Raises `StoreError` in one line."""
    database = open_adapter(home / "interlock.db")
    with database.explain_errors():
        if (conn := database.connect_reader()) is None:
            yield None
            return
        with closing(conn):
            current = database.is_schema_current(conn)
            if current is False:
                Store(home).create_or_migrate()
            yield None if current is None else conn


def select_rows(home: Path, sql: str, *values: object) -> list[Any]:
    """The rows; empty if there is no store yet. Raises `StoreError` in one line.

    An id that was typed, or the name of a folder, may have bytes that aren't UTF-8: no row has them.
    """
    values = tuple(replace_surrogates(value) if isinstance(value, str) else value for value in values)
    with open_reader(home) as conn:
        return conn.execute(sql, values).fetchall() if conn else []


def json_keys_subquery_sql(parameter: int = 1) -> str:
    """Return what `listed_as_keys` lists, for `in`: SQLite takes 32,766 parameters, PostgreSQL 65,535.

    `parameter`: the parameter's number.
    """
    return f"(select key from json_each(${parameter}))"


def encode_json_keys_parameter(values: Iterable[str]) -> str:
    """Return one parameter that lists any number of texts; both databases read the keys of a JSON object alike."""
    return json.dumps(dict.fromkeys(map(replace_surrogates, values)))


class Store:
    """The database, and connections to it. Each connection is opened and closed by one drive."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "interlock.db"
        self.database = open_adapter(self.path)
        self.blobs = self.database.connection.blobs
        """Whether it keeps long bodies, plans and snapshots in rows (`blobs.py`)."""
        self.outputs = home / "outputs"
        self.plans = home / "plans"
        """Plan files, in one folder per run."""

    def create_or_migrate(self) -> Self:
        """Create the folder and the tables if missing. Raises `StoreError` in one line."""
        try:
            make_private_directory(self.outputs)
        except OSError as error:
            raise StoreError(
                f"Can't make the state directory {str(self.home)!r}: {error.strerror}. "
                "Choose another with INTERLOCK_HOME."
            ) from error
        with self.database.explain_errors(), closing(self.database.connect("FULL")) as conn:
            if not self.database.is_schema_current(conn):
                self.database.create_or_migrate_schema(conn)
        return self

    def connect(
        self, synchronous: Literal["NORMAL", "FULL"] = "NORMAL", *, patience_s: float = BUSY_TIMEOUT_S
    ) -> Connection:
        """A connection in autocommit mode: don't `await` inside its transactions."""
        return self.database.connect(synchronous, patience_s=patience_s)

    @contextmanager
    def write_transaction(self, synchronous: Literal["NORMAL", "FULL"] = "NORMAL") -> Generator[Connection]:
        """A transaction on a connection of its own. Raises `StoreError` in one line."""
        with self.database.explain_errors(), closing(self.connect(synchronous)) as conn, conn.transaction():
            yield conn

    def connect_for_driver(self) -> Connection:
        """A drive's connection: rows may be buffered until its next commit."""
        return self.database.connect("NORMAL", buffers=True)


STATE_DIRECTORY_PARTS = (
    "interlock.db",
    "interlock.db-wal",
    "interlock.db-shm",
    *(
        "outputs",
        "audit",
        "plans",
        "snapshots",
        "input",
        "index",
        "sandbox",
        "live",
        "clones",
        "page.token",
        "served",
        "seals",
    ),
)
"""What is in the state directory."""
ADDRESS = "store.url"
"""File of a state directory that names the server; readable by its owner only: the address may hold a password."""


def is_server_address(url: str) -> bool:
    """Whether it names a database server, whatever is installed to reach it."""
    scheme, is_address, _ = url.partition("://")
    known = scheme in ("postgresql", "postgres") or find_entry_point("interlock.stores", scheme)
    return bool(is_address and known)


def prepare_state_directory_for_store(home: Path, url: str) -> Path:
    """The state directory for the store with this address; empty: `home`, with SQLite. Raises `ConfigError`.

    Each server's is a folder of its own below `home`, so that no file of another store is taken for one of its own.
    """
    if not url:
        return home
    if not is_server_address(url):
        raise ConfigError(
            f"INTERLOCK_STORE or --store names {mask_password(url)!r}; expected postgresql://USER@HOST/DATABASE. "
            "For SQLite, leave it out and choose the folder with INTERLOCK_HOME."
        )
    found = home / "stores" / hashlib.sha256(mask_password(url).encode()).hexdigest()[:12]
    if read_store_address(found / "interlock.db") != url:
        make_private_directory(found)
        replace_private_file(found / ADDRESS, url)
    return found


def read_store_address(path: Path) -> str:
    """The address of the server that holds this store; empty: it is the file itself."""
    try:
        return (path.parent / ADDRESS).read_text(encoding="utf-8")
    except OSError:
        return ""


def store_address_for_display(path: Path) -> str:
    """How people know the store."""
    return mask_password(read_store_address(path)) or str(path)


def mask_password(url: str) -> str:
    """An address as it may be shown."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1@", re.sub(r"([?&]password=)[^&]*", r"\1…", url))


def resolve_state_directory(env: Mapping[str, str] = os.environ) -> Path:
    """`$INTERLOCK_HOME`, else `$XDG_STATE_HOME/interlock`, else `~/.local/state/interlock`.

    If `$INTERLOCK_STORE` names a database: the folder in there for what this host keeps of that store.
    """
    if home := env.get("INTERLOCK_HOME"):
        found = Path(home).expanduser().absolute()
    else:
        base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or Path.home()) / ".local" / "state")
        found = Path(base).expanduser().absolute() / "interlock"
    return prepare_state_directory_for_store(found, env.get("INTERLOCK_STORE", ""))
