"""execute_command: run a command line with bash; the task loop's name."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from interlock.state.calls import Preview, ToolResult
from interlock.state.tooling import Args, ToolContext
from interlock.tools import run_shell_command as shell


class ExecuteCommandArgs(Args):
    command: str = Field(min_length=1, description="The command line, as for `bash -c`.")
    cwd: str = Field(
        default=".",
        min_length=1,
        description="Directory to run it in, relative to the workspace or absolute inside it. Default: the workspace.",
    )


def _as_shell(args: ExecuteCommandArgs) -> shell.RunShellCommandArgs:
    return shell.RunShellCommandArgs(command=args.command, dir_path=args.cwd)


async def run(args: ExecuteCommandArgs, context: ToolContext) -> ToolResult:
    return await shell.run(_as_shell(args), context)


async def preview(args: ExecuteCommandArgs, context: ToolContext) -> Preview:
    return await shell.preview(_as_shell(args), context)


def _paths(args: ExecuteCommandArgs) -> list[tuple[str, Literal["read", "write"]]]:
    return [(args.cwd, "read")]


TOOL = replace(
    shell.TOOL,
    name="execute_command",
    args=ExecuteCommandArgs,
    run=run,
    preview=preview,
    paths=_paths,
)
