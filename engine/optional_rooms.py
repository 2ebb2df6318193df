"""optional_rooms: loads what the engine asks of rooms that not everybody needs, by the table of entry points."""

from typing import Any

from interlock.state.entry_points import (
    EntryPoint,
    find_entry_point,
    is_part_installed,
    missing_folder_message,
)
from interlock.state.errors import ConfigError


def require_optional_part(name: str, needed_by: str, folder: str) -> None:
    """Raise `ConfigError` if a part's folder is missing. `needed_by` needs it: the beginning of the error, with its
    verb."""
    if not is_part_installed(name):
        raise ConfigError(missing_folder_message(needed_by, folder))


NO_EXPORTER = missing_folder_message("telemetry.enabled needs", "telemetry")


def load_fleet_entry_point(group: str, name: str, needed_by: str) -> Any:
    """Load an entry that the fleet registers. Raises `ConfigError` if its folder or its packages are missing.

    `needed_by` needs it: the beginning of the error, with its verb.
    """
    entry = find_entry_point(group, name)
    if entry is None:
        raise ConfigError(missing_folder_message(needed_by, "fleet"))
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        raise ConfigError(f"{needed_by} the extra `fleet`. Run: interlock install fleet") from error


def find_telemetry_exporter() -> EntryPoint | None:
    """Return what sends traces, metrics and logs; None: this installation lacks it."""
    return find_entry_point("interlock.exporters", "opentelemetry")
