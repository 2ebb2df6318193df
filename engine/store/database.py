"""database: which database a state directory's runs are in: SQLite beside it, or one on a server that it names."""

import hashlib
import re
from contextlib import AbstractContextManager
from pathlib import Path

from interlock.engine.store.connection import Adapter, Changes
from interlock.engine.store.sqlite import Sqlite
from interlock.services.files.disk import private_directory, write_private
from interlock.state.errors import ConfigError

ADDRESS = "store.url"
"""File of a state directory that names the server; readable by its owner only: the address may hold a password."""
_SCHEME = re.compile(r"postgres(?:ql)?://")


def is_server(url: str) -> bool:
    return bool(_SCHEME.match(url))


def placed(home: Path, url: str) -> Path:
    """The state directory for the store with this address; empty: `home`, with SQLite. Raises `ConfigError`.

    Each server's is a folder of its own below `home`, so that no file of another store is taken for one of its own.
    """
    if not url:
        return home
    if not is_server(url):
        raise ConfigError(
            f"INTERLOCK_STORE or --store names {without_password(url)!r}; expected postgresql://USER@HOST/DATABASE. "
            "For SQLite, leave it out and choose the folder with INTERLOCK_HOME."
        )
    found = home / "stores" / hashlib.sha256(without_password(url).encode()).hexdigest()[:12]
    if _read(found) != url:
        private_directory(found)
        write_private(found / ADDRESS, url)
    return found


def _read(home: Path) -> str:
    try:
        return (home / ADDRESS).read_text(encoding="utf-8")
    except OSError:
        return ""


def address_of(path: Path) -> str:
    """The address of the server that holds this store; empty: it is the file itself."""
    return _read(path.parent)


def shown(path: Path) -> str:
    """How people know the store."""
    return without_password(address_of(path)) or str(path)


def without_password(url: str) -> str:
    """An address as it may be shown."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1@", re.sub(r"([?&]password=)[^&]*", r"\1…", url))


def adapter_of(path: Path) -> Adapter:
    if not (path.parent / ADDRESS).exists():
        return Sqlite(path)
    try:
        from interlock.engine.store.postgres import Postgres  # its driver takes 0.3 s to import
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Runs in PostgreSQL need the extra `fleet`. Install it with: pip install 'interlock-agent[fleet]'"
        ) from error

    return Postgres(path)


def explained(path: Path) -> AbstractContextManager[None]:
    """Convert errors of the database and the disk to one line that says what to do."""
    return adapter_of(path).explained()


def changes(home: Path) -> Changes:
    return adapter_of(home / "interlock.db").changes()
