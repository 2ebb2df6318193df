"""spec: how each configured server is reached, or what is wrong with it; servers written into settings."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from interlock.services.config.formats import changed_settings
from interlock.state.errors import ConfigError, UserError
from interlock.state.settings import McpServer, OAuthSettings, Settings

MOST = 64 * 1024 * 1024
"""Bytes of one message; a server that sends longer ones can't be worked with."""
TOO_LONG = f"it sent a message of more than {MOST >> 20} MB"
Transport = Literal["stdio", "sse", "http"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""Tools are called `mcp_SERVER_TOOL`, which providers take up to 63 characters of."""


@dataclass(frozen=True)
class ServerSpec:
    """One server that can be started. `problem` set: why it can't."""

    name: str
    transport: Transport | None
    command: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    url: str = ""
    headers: Mapping[str, str] | None = None
    timeout_s: float = 600.0
    trust: bool = False
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    disabled: bool = False
    oauth: OAuthSettings = field(default_factory=lambda: OAuthSettings.model_validate({}))
    problem: str = ""

    def counts(self, tool: str) -> bool:
        """Whether settings let this tool in, as the server names it."""
        return tool not in self.exclude and (self.include is None or tool in self.include)


def specs_of(settings: Settings, workspace: Path) -> dict[str, ServerSpec]:
    """Every server that settings name, in their order. `mcp.excluded` ones are disabled."""
    excluded = {*settings.mcp.excluded}
    return {n: _spec(n, server, workspace, n in excluded) for n, server in settings.mcp_servers.items()}


def _spec(name: str, server: McpServer, workspace: Path, excluded: bool) -> ServerSpec:
    transport, problem = _transport(name, server)
    return ServerSpec(
        name=name,
        transport=transport,
        command=(server.command, *server.args),
        env=server.env,
        cwd=Path(os.path.realpath(workspace / Path(server.cwd).expanduser())),
        url=server.http_url or server.url,
        headers=server.headers,
        timeout_s=server.timeout_ms / 1000,
        trust=server.trust,
        # gemini-cli also takes `name(…)`.
        include=None if server.include_tools is None else tuple(map(_bare, server.include_tools)),
        exclude=tuple(map(_bare, server.exclude_tools)),
        disabled=server.disabled or excluded,
        oauth=server.oauth,
        problem=problem,
    )


def _bare(name: str) -> str:
    return name.partition("(")[0]


def _transport(name: str, server: McpServer) -> tuple[Transport | None, str]:
    """What it speaks, and what is wrong with that."""
    given = [key for key, value in (("command", server.command), ("url", server.url)) if value]
    given += ["httpUrl"] if server.http_url else []
    if not _NAME.fullmatch(name):
        return (
            None,
            f"the name {name!r} can't be part of a tool's name: letters, digits, `-` and `_`, at most 40",
        )
    if not given:
        return None, "it needs `command`, or `url`, or `httpUrl`"
    if server.http_url and server.url:
        given.remove("url")  # gemini-cli: httpUrl goes first
    if len(given) > 1:
        return None, f"{' and '.join(given)} exclude each other"
    if server.command:
        if server.type not in (None, "stdio"):
            return None, f"type {server.type!r} needs `url`, not `command`"
        return "stdio", ""
    if server.type == "stdio":
        return None, "type 'stdio' needs `command`, not `url`"
    return ("sse" if server.type == "sse" and not server.http_url else "http"), _bad_url(server)


def _bad_url(server: McpServer) -> str:
    url = server.http_url or server.url
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    return "" if fine else f"{url!r} is no address: expected http://… or https://…"


def add_server(file: Path, name: str, server: dict[str, Any]) -> bool:
    """Write a server into the settings file; whether it took another's place. Raises `ConfigError`."""
    with changed_settings(file, "mcpServers") as data:
        servers = _servers(data, file)
        there = name in servers
        servers[name] = server
    return there


def remove_server(file: Path, name: str) -> None:
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
