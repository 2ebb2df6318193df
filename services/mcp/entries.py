"""entries: servers written into settings files, and taken out of them, with all else left as it is."""

from pathlib import Path
from typing import Any, cast

from interlock.services.config.changes import changed_settings
from interlock.state.errors import ConfigError, UserError


def add(file: Path, name: str, server: dict[str, Any]) -> bool:
    """Write a server into the settings file; whether it took another's place. Raises `ConfigError`."""
    with changed_settings(file, "mcpServers") as data:
        servers = _servers(data, file)
        there = name in servers
        servers[name] = server
    return there


def remove(file: Path, name: str) -> None:
    """Take a server out of the settings file. Raises `UserError` where it isn't there, `ConfigError`."""
    with changed_settings(file, "mcpServers") as data:
        servers = _servers(data, file)
        if name not in servers:
            known = ", ".join(map(repr, servers)) or "none"
            raise UserError(f"No MCP server {name!r} in {file}. There are: {known}.")
        del servers[name]


def _servers(data: Any, file: Path) -> dict[str, Any]:
    servers = cast(dict[str, Any], data).setdefault("mcpServers", {}) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f"{file}: expected a JSON object whose mcpServers is an object.")
    return cast(dict[str, Any], servers)
