"""address: where the state directory is, and which database holds its store: a file in it, or the server it names."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from interlock.services.files.disk import make_private_directory, replace_private_file
from interlock.state.entry_points import find_entry_point
from interlock.state.errors import ConfigError

PARTS = (
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


def is_server(url: str) -> bool:
    """Whether it names a database server, whatever is installed to reach it."""
    scheme, is_address, _ = url.partition("://")
    known = scheme in ("postgresql", "postgres") or find_entry_point("interlock.stores", scheme)
    return bool(is_address and known)


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
        make_private_directory(found)
        replace_private_file(found / ADDRESS, url)
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


def state_home(env: Mapping[str, str] = os.environ) -> Path:
    """`$INTERLOCK_HOME`, else `$XDG_STATE_HOME/interlock`, else `~/.local/state/interlock`.

    If `$INTERLOCK_STORE` names a database: the folder in there for what this host keeps of that store.
    """
    if home := env.get("INTERLOCK_HOME"):
        found = Path(home).expanduser().absolute()
    else:
        base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or Path.home()) / ".local" / "state")
        found = Path(base).expanduser().absolute() / "interlock"
    return placed(found, env.get("INTERLOCK_STORE", ""))
