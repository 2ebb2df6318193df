"""mcp: MCP servers as settings name them, signed in to, asked and called. The rest of the house imports only this."""

from interlock.services.mcp.connection import ServerConnection, UnavailableError
from interlock.services.mcp.endpoint import open_http_streams
from interlock.services.mcp.exchanges import import_mcp_sdk
from interlock.services.mcp.servers import JoinedToolset, Keep, Servers
from interlock.services.mcp.sign_in import WAIT_S, Show, TokenFile, sign_in_with_browser
from interlock.services.mcp.spec import (
    ServerSpec,
    add_server_to_settings,
    build_server_specs,
    remove_server_from_settings,
)

__all__ = [
    "WAIT_S",
    "JoinedToolset",
    "Keep",
    "ServerConnection",
    "ServerSpec",
    "Servers",
    "Show",
    "TokenFile",
    "UnavailableError",
    "add_server_to_settings",
    "build_server_specs",
    "import_mcp_sdk",
    "open_http_streams",
    "remove_server_from_settings",
    "sign_in_with_browser",
]
