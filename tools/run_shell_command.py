"""run_shell_command: run a command line with bash, in the foreground or background."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, JsonValue

from interlock.state.calls import Preview, ToolError, ToolResult, error_result
from interlock.state.errors import RunError
from interlock.state.text import replace_surrogates
from interlock.state.tooling import Args, ProcessEnd, Tool, ToolContext
from interlock.tools.shown_files import find_shown_files
from interlock.tools.workspace_files import resolve_directory


class RunShellCommandArgs(Args):
    command: str = Field(min_length=1, description="The command line, as for `bash -c`.")
    description: str | None = Field(
        default=None, description="What the command does, in a few words, for the user."
    )
    dir_path: str = Field(
        default=".",
        min_length=1,
        description="Directory to run it in, relative to the workspace or absolute inside it. Default: the workspace.",
    )
    is_background: bool = Field(
        default=False,
        description="True: start it in the background, for servers and watchers. Its output goes to a file. It ends"
        " with the run.",
    )
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="Seconds after which the command is stopped; the user's settings may allow less.",
    )


class _CommandWithoutBackground(RunShellCommandArgs):
    """A command of a tool that starts nothing in the background."""


async def run_command_line(args: RunShellCommandArgs, context: ToolContext) -> ToolResult:
    directory = resolve_directory(context.workspace, args.dir_path)
    argv = _build_argv(args.command)
    if args.is_background:
        return await _start_in_background(args, argv, directory, context)
    shell = context.settings.tools.shell
    timeout_s = min(
        args.timeout_s or shell.timeout_s, context.time_left_s or shell.timeout_s, shell.timeout_s
    )
    ended = await context.processes.run(
        argv,
        cwd=directory,
        timeout_s=timeout_s,
        inactivity_s=shell.inactivity_timeout_s,
        limit_chars=context.settings.tools.truncate_at,
        on_output=context.emit_output,
    )
    notes = (
        _describe_left_running(ended, args, sandboxed=bool(context.settings.tools.sandbox)),
        await asyncio.to_thread(context.workspace.describe_replaced_root),
    )
    result = _to_tool_result(ended, timeout_s, shell.inactivity_timeout_s, notes)
    shown = (args.command, directory, result.content, context.workspace)
    return result.model_copy(update={"seen": await asyncio.to_thread(find_shown_files, *shown)})


_PIECE = 30_000
"""Characters of one argument: Linux takes 128 KiB, and a character has up to four bytes."""
_JOINED = 'eval "set --; $(IFS=; printf %s "$*")"'
"""Runs its arguments as one command line, which sees none of them."""


def _build_argv(command: str) -> list[str]:
    """Return bash with a command line, in pieces if it is too long for one argument."""
    if len(command) <= _PIECE:
        return ["bash", "-c", command]
    pieces = (command[at : at + _PIECE] for at in range(0, len(command), _PIECE))
    return ["bash", "-c", _JOINED, "bash", *pieces]


async def _start_in_background(
    args: RunShellCommandArgs, argv: list[str], directory: Path, context: ToolContext
) -> ToolResult:
    try:
        pid = await context.processes.start_in_background(argv, cwd=directory, label=args.command)
    except RunError as error:
        return error_result("not_started", str(error))
    started = next(one for one in context.processes.list_background_processes() if one["pid"] == pid)
    text = f"Started in the background.\nPID: {pid}\nOutput file: {started['output_file']}\nIt ends with the run."
    return ToolResult(status="success", content=text, meta={"summary": f"started, pid {pid}", "pid": pid})


def _to_tool_result(
    ended: ProcessEnd, timeout_s: float, inactivity_s: float, notes: Sequence[str]
) -> ToolResult:
    if ended.how == "not_started":
        return error_result("not_started", f"The command could not be started: {ended.output}.")
    if ended.how == "lost":
        return error_result("unknown_outcome", "The process that ran the command was killed.")
    text, meta = replace_surrogates(_format_report(ended, notes)), _result_metadata(ended)
    if ended.how == "exited":
        return ToolResult(status="success", content=text, meta=meta)
    reasons = {
        "timeout": f"The command was stopped because it ran longer than {timeout_s:g} s.",
        "inactivity": f"The command was stopped because it wrote nothing for {inactivity_s:g} s.",
        "limit": f"The command was stopped because it used {ended.excess}.",
    }
    reason = reasons[ended.how]
    return error_result(ended.how, reason).model_copy(update={"content": f"{reason}\n{text}", "meta": meta})


_KEEP = "To keep a process running, start it without & by run_shell_command with is_background: true."
_KEEP_IN_LINE = "Needed by another command? Run both in one line."
_MAYBE_LEFT = "What the command may have left running with & ended with it."
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)
_IN_BACKGROUND = re.compile(r"(?<![&>|<])&(?![&>])")


def _describe_left_running(ended: ProcessEnd, args: RunShellCommandArgs, *, sandboxed: bool) -> str:
    """Return what ended with the command, and how to keep it; a sandbox hides it, so the command's text tells."""
    keep = _KEEP_IN_LINE if isinstance(args, _CommandWithoutBackground) else _KEEP
    if ended.left_running:
        return f"Still running when the command ended, and ended with it: {ended.left_running}. {keep}"
    text = _QUOTED.sub("", args.command)
    if sandboxed and ended.how == "exited" and "wait" not in text and _IN_BACKGROUND.search(text):
        return f"{_MAYBE_LEFT} {keep}"
    return ""


def _format_report(ended: ProcessEnd, notes: Sequence[str]) -> str:
    """Return the text for the model. No times or pids, so that equal outcomes read the same."""
    lines = [f"Output:\n{ended.output.rstrip()}" if ended.output.strip() else "Output: (empty)"]
    if ended.omitted:
        lines.append(f"The output was too long to show. {_describe_full_output(ended)}")
    if ended.exit_code:
        lines.append(f"Exit Code: {ended.exit_code}")
    if ended.signal:
        lines.append(f"Signal: {ended.signal}")
    if ended.hint:
        lines.append(ended.hint)
    lines += filter(None, notes)
    return "\n".join(lines)


def _describe_full_output(ended: ProcessEnd) -> str:
    named = [f"All of it: {ended.full_output}"] if ended.full_output else []
    return "; ".join([*named, *([ended.note] if ended.note else [])]) + "."


def _result_metadata(ended: ProcessEnd) -> dict[str, JsonValue]:
    summary = ended.how if ended.how != "exited" else ended.signal or f"exit {ended.exit_code}"
    return {
        "summary": f"{summary}, {ended.duration_s:.1f} s",
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "duration_ms": round(ended.duration_s * 1000),
        "full_output": str(ended.full_output) if ended.full_output else None,
    }


async def preview_command_line(args: RunShellCommandArgs, context: ToolContext) -> Preview:
    try:
        where = context.workspace.display_path(resolve_directory(context.workspace, args.dir_path))
    except ToolError as problem:
        return Preview(text=args.command, problem=str(problem))
    lines = [args.command, f"in {'the workspace' if where == '.' else where}"]
    if args.is_background:
        lines.append("in the background")
    return Preview(text="\n".join(lines))


def _summarize_command(args: RunShellCommandArgs) -> str:
    command = " ".join(args.command.split())
    return f"{command[:200]}{'…' if len(command) > 200 else ''}"


TOOL = Tool(
    name="run_shell_command",
    description="Runs a command line with `bash -c` and returns its output (stdout and stderr in order), with the exit"
    " code when it isn't 0. There is no terminal and no input: use flags that answer questions. Processes that the"
    " command leaves behind are stopped with it; start servers with is_background.",
    args=RunShellCommandArgs,
    risk="execute",
    summary=_summarize_command,
    run=run_command_line,
    preview=preview_command_line,
    paths=lambda args: [(args.dir_path, "read")],
)


class ExecuteCommandArgs(Args):
    command: str = Field(min_length=1, description="The command line, as for `bash -c`.")
    cwd: str = Field(
        default=".",
        min_length=1,
        description="Directory to run it in, relative to the workspace or absolute inside it. Default: the workspace.",
    )


EXECUTE_COMMAND = TOOL.make_renamed_copy(
    "execute_command",
    ExecuteCommandArgs,
    lambda args: _CommandWithoutBackground(command=args.command, dir_path=args.cwd),
)
