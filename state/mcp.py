"""mcp: input, output and state of the `mcp` pipeline, and the protocol of MCP servers."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from pydantic import Field, JsonValue

from interlock.state.calls import ToolResult
from interlock.state.messages import Frozen
from interlock.state.run import ErrorInfo, WorkflowInput, WorkflowOutput
from interlock.state.tools import ToolsState

McpAction = Literal["list", "call", "read", "prompt"]
ServerStatus = Literal["connected", "connecting", "failed", "disabled", "not started"]


class McpInput(WorkflowInput):
    action: McpAction = "list"
    server: str | None = Field(None, description="the server's name in settings; default for list: all")
    name: str | None = Field(None, description="call, prompt: the tool or prompt, as the server names it")
    args: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue], description="call, prompt: its arguments"
    )
    uri: str | None = Field(None, description="read: the resource")


class ServerItem(Frozen):
    """A tool, resource, resource template or prompt: its texts are the server's, made visible."""

    name: str
    """For tools, the name models and rules use; for resources, the URI."""
    description: str = ""
    args: tuple[str, ...] = ()
    """Names of a prompt's arguments; required ones end in `*`."""


class ServerView(Frozen):
    """One configured server, as far as it is known now."""

    name: str
    status: ServerStatus
    transport: Literal["stdio", "sse", "http"] | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    """Which of its tools are ignored, and why."""
    version: str = ""
    trust: bool = False
    instructions: str = ""
    tools: tuple[ServerItem, ...] = ()
    resources: tuple[ServerItem, ...] = ()
    templates: tuple[ServerItem, ...] = ()
    prompts: tuple[ServerItem, ...] = ()


class McpOutput(WorkflowOutput):
    status: Literal["done", "failed"]
    servers: list[dict[str, Any]]
    content: str | None = None
    is_error: bool | None = None
    error: ErrorInfo | None = None


class McpState(ToolsState, total=False):
    """State of `mcp`; a call is a batch of one."""

    request: str
    """Chain record of the request."""
    found: str
    """Chain record of the answer; empty: none."""
    servers: str
    """Chain record of the servers found; empty: none."""
    mcp_status: Literal["done", "failed", ""]
    error: dict[str, str]


class McpServers(Protocol):
    """The MCP servers of a run, started lazily."""

    def enabled_server_names(self) -> list[str]:
        """Servers that are configured and not disabled."""
        ...

    async def start_and_wait_for_servers(self, server: str | None = None) -> None:
        """Start all servers, or one, and wait until each is connected, has failed, or times out."""
        ...

    def list_servers(self) -> list[ServerView]: ...

    async def read_resource(self, server: str, uri: str) -> ToolResult:
        """Read a resource."""
        ...

    async def get_prompt(self, server: str, name: str, args: Mapping[str, JsonValue]) -> ToolResult:
        """A prompt's messages as text."""
        ...
