"""rooms: finds by name what the engine asks of rooms that not everybody needs: it imports none of them."""

from importlib import import_module
from typing import Any

STORES = {"postgresql": "interlock.fleet.postgres:Postgres"}
"""Scheme of a store's address → its adapter, a `engine.store.connection.Adapter`."""
CLONES = "interlock.fleet.checkout"
"""Clones of the repositories of runs."""
MIRRORS = "interlock.fleet.mirrors"
"""Asks the servers of repositories."""
WORKERS = "interlock.fleet.setup"
"""Sets a database up for workers, and works."""
EXPORTER = "interlock.telemetry"
"""Sends traces, metrics and logs."""


def load_entry(entry: str) -> Any:
    """Import a module, or the object in it of `MODULE:NAME`. Raises `ModuleNotFoundError`."""
    module, _, name = entry.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found
