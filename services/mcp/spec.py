"""spec: how to reach each configured server, or why that is impossible; editing servers in settings; and server tools
as models and rules see them: name, schema, trusted annotations.

Nothing a server says about a tool is trusted by default. Texts are made visible; schemas are reduced to what every
provider accepts, without regular expressions to run or references to fetch.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import JsonValue

from interlock.services.config.formats import edit_json_settings
from interlock.services.tool_schemas import DESCRIPTION_CHARS, reduce_schema
from interlock.state.errors import ConfigError, UserError
from interlock.state.mcp import ServerItem
from interlock.state.names import mcp_server_key, mcp_tool_name
from interlock.state.settings import McpServer, OAuthSettings, Settings
from interlock.state.text import make_visible

MOST = 64 * 1024 * 1024
"""Maximum bytes of one message; a server that sends longer ones is unusable."""
TOO_LONG = f"it sent a message of more than {MOST >> 20} MB"
Transport = Literal["stdio", "sse", "http"]


@dataclass(frozen=True)
class ServerSpec:
    """One configured server. If `problem` is set, it can't be started."""

    name: str
    transport: Transport | None
    command: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    url: str = ""
    headers: Mapping[str, str] | None = None
    timeout_s: float = 600.0
    """Seconds for a request, and for the server to start."""
    start_wait_s: float | None = None
    """Seconds that others wait for it to start: its `timeout`, if settings have one; None: the usual times."""
    trust: bool = False
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    disabled: bool = False
    oauth: OAuthSettings = field(default_factory=OAuthSettings.default)
    problem: str = ""
    or_sse: bool = False
    """The address may speak SSE instead: settings name no type."""

    def includes_tool(self, tool: str) -> bool:
        """Return whether settings include this tool, named as by the server."""
        return tool not in self.exclude and (self.include is None or tool in self.include)


def build_server_specs(settings: Settings, workspace: Path) -> dict[str, ServerSpec]:
    """Return all servers in settings, in order. Those in `mcp.excluded` are disabled."""
    excluded, owners = {*settings.mcp.excluded}, _owners_of_tool_prefixes(settings.mcp_servers)
    return {
        n: _to_server_spec(n, server, workspace, n in excluded, owners[mcp_server_key(n)])
        for n, server in settings.mcp_servers.items()
    }


def _owners_of_tool_prefixes(names: Iterable[str]) -> dict[str, str]:
    """Return what tools' names call a server → the one that has it: a server of just this name, else the first."""
    owners: dict[str, str] = {}
    for name in names:
        key = mcp_server_key(name)
        owners[key] = name if name == key else owners.get(key, name)
    return owners


def _to_server_spec(
    name: str, server: McpServer, workspace: Path, excluded: bool, prefix_owner: str
) -> ServerSpec:
    transport, problem = _choose_transport(server)
    if prefix_owner != name:
        problem = (
            f"its tools would have the names of those of {prefix_owner!r}: rename one of the two servers"
        )
    return ServerSpec(
        name=name,
        transport=transport,
        command=(server.command, *server.args),
        env=server.env,
        cwd=Path(os.path.realpath(workspace / os.path.expanduser(server.cwd))),  # noqa: PTH111 - Path.expanduser raises for an unknown user
        url=server.http_url or server.url,
        headers=server.headers,
        timeout_s=server.timeout_ms / 1000,
        start_wait_s=server.timeout_ms / 1000 if "timeout_ms" in server.model_fields_set else None,
        trust=server.trust,
        # gemini-cli also accepts `name(…)`.
        include=None if server.include_tools is None else tuple(map(_strip_arguments, server.include_tools)),
        exclude=tuple(map(_strip_arguments, server.exclude_tools)),
        disabled=server.disabled or excluded,
        oauth=server.oauth,
        problem=problem,
        or_sse=transport == "http" and server.type is None and not server.http_url,
    )


def _strip_arguments(name: str) -> str:
    return name.partition("(")[0]


def _choose_transport(server: McpServer) -> tuple[Transport | None, str]:
    """Return the transport, and what is wrong with the configuration."""
    named = [key for key, value in (("command", server.command), ("url", server.url)) if value]
    named += ["httpUrl"] if server.http_url else []
    if not named:
        return None, "it needs `command`, or `url`, or `httpUrl`"
    if server.http_url and server.url:
        named.remove("url")  # gemini-cli: httpUrl takes precedence
    if len(named) > 1:
        return None, f"{' and '.join(named)} exclude each other"
    if server.command:
        if server.type not in (None, "stdio"):
            return None, f"type {server.type!r} needs `url`, not `command`"
        return "stdio", ""
    if server.type == "stdio":
        return None, "type 'stdio' needs `command`, not `url`"
    return ("sse" if server.type == "sse" and not server.http_url else "http"), _url_problem(server)


def _url_problem(server: McpServer) -> str:
    url = server.http_url or server.url
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    return "" if fine else f"{url!r} isn't an address: expected http://… or https://…"


def add_server_to_settings(file: Path, name: str, server: dict[str, Any]) -> bool:
    """Add a server to the settings file; returns whether it replaced one. Raises `ConfigError`."""
    with edit_json_settings(file, "mcpServers") as data:
        servers = _get_or_create_servers_section(data, file)
        there = name in servers
        servers[name] = server
    return there


def remove_server_from_settings(file: Path, name: str) -> None:
    """Remove a server from the settings file. Raises `UserError` if it isn't there, and `ConfigError`."""
    with edit_json_settings(file, "mcpServers") as data:
        servers = _get_or_create_servers_section(data, file)
        if name not in servers:
            known = ", ".join(map(repr, servers)) or "none"
            raise UserError(f"No MCP server {name!r} in {file}. There are: {known}.")
        del servers[name]


def _get_or_create_servers_section(data: Any, file: Path) -> dict[str, Any]:
    servers = cast(dict[str, Any], data).setdefault("mcpServers", {}) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f"{file}: expected a JSON object whose mcpServers is an object.")
    return cast(dict[str, Any], servers)


_LISTED = 100
"""Maximum number of resources listed in the reading tool's description."""
_RESTRICTING: Mapping[str, bool] = {
    "readOnlyHint": False,
    "idempotentHint": False,
    "destructiveHint": True,
    "openWorldHint": True,
}
"""Annotations that can only make rules stricter: believed from any server."""


@dataclass(frozen=True)
class ServerTool:
    """A tool that an MCP server offers."""

    name: str
    """`mcp_SERVER_TOOL`."""
    server: str
    original: str
    """The server's own name for it."""
    description: str
    parameters: dict[str, Any]
    read_only: bool = False
    idempotent: bool = False
    """Both are set only for trusted servers."""
    annotations: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """For rules that refer to them (`toolAnnotations`)."""
    reads_resource: bool = False
    """Not one of the server's tools, but our tool for reading its resources."""


def to_server_tool(spec: ServerSpec, tool: Any) -> ServerTool | str:
    """Convert a tool; returns why it can't be offered, or an empty string if settings exclude it."""
    if not spec.includes_tool(tool.name):
        return ""
    shown = make_visible(tool.name)
    if tool.execution and tool.execution.task_support == "required":
        return f"tool {shown!r}: it runs as a task only, and Interlock makes plain calls"
    try:
        parameters = reduce_schema(tool.input_schema)
    except ValueError as error:
        return f"tool {shown!r}: {error}"
    hints: dict[str, Any] = {}
    if tool.annotations:
        hints = tool.annotations.model_dump(by_alias=True, exclude_none=True)
    flags = {k: v for k, v in hints.items() if isinstance(v, bool)}
    believed: dict[str, JsonValue] = {
        k: v for k, v in flags.items() if spec.trust or _RESTRICTING.get(k) is v
    }
    description = make_visible((tool.description or tool.title or "").strip())[:DESCRIPTION_CHARS]
    return ServerTool(
        name=mcp_tool_name(spec.name, tool.name),
        server=spec.name,
        original=tool.name,
        description=description or f"Tool {shown} of the MCP server {spec.name}.",
        parameters=parameters,
        read_only=believed.get("readOnlyHint") is True,
        idempotent=believed.get("idempotentHint") is True,
        annotations=believed,
    )


def make_resource_reader_tool(spec: ServerSpec, resources: Sequence[ServerItem]) -> ServerTool:
    """Build the reading tool. It belongs to the server, so that rules and trust for the server apply."""
    lines = [f"{r.name}: {r.description}" if r.description else r.name for r in resources[:_LISTED]]
    if len(resources) > _LISTED:
        lines.append(f"… and {len(resources) - _LISTED} more")
    uri = {"type": "string", "description": "The resource's address; of a template with its {…} filled in."}
    return ServerTool(
        name=mcp_tool_name(spec.name, "read_resource"),
        server=spec.name,
        original="read_resource",
        description="\n".join([f"Read a resource of the MCP server {spec.name}. It offers:", *lines]),
        parameters={"type": "object", "properties": {"uri": uri}, "required": ["uri"]},
        read_only=spec.trust,
        idempotent=True,
        annotations={"readOnlyHint": True} if spec.trust else {},
        reads_resource=True,
    )
