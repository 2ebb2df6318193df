"""access_mcp_resource: read a resource of an MCP server; becomes a call of the server's reader."""

from pydantic import Field

from interlock.state.calls import failure
from interlock.state.tooling import Args, Tool, always


class AccessMcpResourceArgs(Args):
    server_name: str = Field(min_length=1, description="Name of the server.")
    uri: str = Field(min_length=1, description="The resource's address.")


TOOL = Tool(
    name="access_mcp_resource",
    description="Reads a resource of an MCP server.",
    args=AccessMcpResourceArgs,
    risk="network",
    summary=lambda args: f"{args.server_name}: {args.uri}",
    # As with use_mcp_tool.
    run=always(failure("mcp_unavailable", "There is no such server here.")),
)
