"""execute_command: run a command line with bash; the task loop's name."""

from pydantic import Field

from interlock.state.tooling import Args
from interlock.tools import run_shell_command as shell


class ExecuteCommandArgs(Args):
    command: str = Field(min_length=1, description="The command line, as for `bash -c`.")
    cwd: str = Field(
        default=".",
        min_length=1,
        description="Directory to run it in, relative to the workspace or absolute inside it. Default: the workspace.",
    )


TOOL = shell.TOOL.renamed(
    "execute_command",
    ExecuteCommandArgs,
    lambda args: shell.RunShellCommandArgs(command=args.command, dir_path=args.cwd),
)
