"""optional_rooms: loads what the engine asks of rooms that not everybody needs, by the table of entry points."""

from typing import Any

from interlock.state.entry_points import EntryPoint, find_entry_point, has_part, missing_room_line
from interlock.state.errors import ConfigError


def require_part(name: str, what: str, folder: str) -> None:
    """Raise `ConfigError` if a part's folder is missing. `what` needs it: the beginning of the error, with its verb."""
    if not has_part(name):
        raise ConfigError(missing_room_line(what, folder))


NO_EXPORTER = missing_room_line("telemetry.enabled needs", "telemetry")


def load_fleet_entry(group: str, name: str, what: str) -> Any:
    """Load an entry that the fleet registers. Raises `ConfigError` if its folder or its packages are missing.

    `what` needs it: the beginning of the error, with its verb.
    """
    entry = find_entry_point(group, name)
    if entry is None:
        raise ConfigError(missing_room_line(what, "fleet"))
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} the extra `fleet`. Install it with: pip install 'interlock-agent[fleet]'"
        ) from error


def find_exporter() -> EntryPoint | None:
    """Return what sends traces, metrics and logs; None: this installation lacks it."""
    return find_entry_point("interlock.exporters", "opentelemetry")
