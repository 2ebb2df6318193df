"""fetch_instructions: how to write this program's configuration, read on demand."""

from typing import Literal

from pydantic import Field

from interlock.state.calls import ToolResult
from interlock.state.tooling import Args, Tool, ToolContext


class FetchInstructionsArgs(Args):
    task: Literal["create_mcp_server", "create_mode"] = Field(
        description="What is to be made: create_mcp_server (tools of a server of your own), create_mode (a mode with"
        " its own role and tools)."
    )


async def run(args: FetchInstructionsArgs, context: ToolContext) -> ToolResult:
    return ToolResult(status="success", content=context.instructions(args.task), meta={"summary": args.task})


TOOL = Tool(
    name="fetch_instructions",
    description="Returns the instructions for one of a few tasks that are about this program itself. Read them before"
    " you begin such a task.",
    args=FetchInstructionsArgs,
    risk="read",
    summary=lambda args: f"Read how to {args.task.replace('_', ' ')}",
    run=run,
)
