"""mcp: MCP servers as settings name them, signed in to, asked and called. The rest of the house imports only this."""

from interlock.services.mcp.connection import Connection, UnavailableError
from interlock.services.mcp.endpoint import open_streams
from interlock.services.mcp.exchanges import load_sdk
from interlock.services.mcp.servers import JoinedToolset, Keep, Servers
from interlock.services.mcp.sign_in import WAIT_S, Show, TokenFile, sign_in_with_browser
from interlock.services.mcp.spec import ServerSpec, add_server, remove_server, server_specs

__all__ = [
    "WAIT_S",
    "Connection",
    "JoinedToolset",
    "Keep",
    "ServerSpec",
    "Servers",
    "Show",
    "TokenFile",
    "UnavailableError",
    "add_server",
    "load_sdk",
    "open_streams",
    "remove_server",
    "server_specs",
    "sign_in_with_browser",
]
