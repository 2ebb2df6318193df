"""entries: servers written into settings files, and taken out of them, with all else left as it is."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from interlock.services.files.filesystem import locked, make_directories, replace_file
from interlock.state.errors import ConfigError, UserError


def add(file: Path, name: str, server: dict[str, Any]) -> bool:
    """Write a server into the settings file; whether it took another's place. Raises `ConfigError`."""
    with _changed(file) as data:
        servers = _servers(data, file)
        there = name in servers
        servers[name] = server
    return there


def remove(file: Path, name: str) -> None:
    """Take a server out of the settings file. Raises `UserError` where it isn't there, `ConfigError`."""
    with _changed(file) as data:
        servers = _servers(data, file)
        if name not in servers:
            known = ", ".join(map(repr, servers)) or "none"
            raise UserError(f"No MCP server {name!r} in {file}. There are: {known}.")
        del servers[name]


@contextmanager
def _changed(file: Path) -> Generator[dict[str, Any]]:
    """The file's object, written back unless something was raised meanwhile."""
    real = Path(os.path.realpath(file))
    try:
        make_directories(real.parent, 0o700)
        with locked(real.parent):
            text = real.read_text(encoding="utf-8-sig") if real.exists() else ""
            data = json.loads(text or "{}")
            yield data
            replace_file(real, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"{file}: can't be changed ({error.strerror}).") from None
    except ValueError:
        raise ConfigError(
            f"{file}: isn't plain JSON; comments in it would be lost. Change it by hand, below mcpServers."
        ) from None


def _servers(data: Any, file: Path) -> dict[str, Any]:
    servers = cast(dict[str, Any], data).setdefault("mcpServers", {}) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f"{file}: expected a JSON object whose mcpServers is an object.")
    return cast(dict[str, Any], servers)
