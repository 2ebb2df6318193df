"""use_mcp_tool: call a tool of an MCP server by both names; becomes a call of that tool."""

import json
from typing import Any

from pydantic import Field, JsonValue, field_validator

from interlock.state.calls import failure
from interlock.state.tooling import Args, Tool, always


class UseMcpToolArgs(Args):
    server_name: str = Field(min_length=1, description="Name of the server.")
    tool_name: str = Field(min_length=1, description="Name of its tool, as the server has it.")
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue], description="The tool's arguments."
    )

    @field_validator("arguments", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            raise ValueError("expected one JSON object") from None


TOOL = Tool(
    name="use_mcp_tool",
    description="Calls a tool of an MCP server.",
    args=UseMcpToolArgs,
    risk="execute",
    summary=lambda args: f"{args.server_name}: {args.tool_name}",
    # Normally the graph calls the server's tool instead; this answers if there is none.
    run=always(failure("mcp_unavailable", "There is no such server here.")),
)
