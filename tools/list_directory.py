"""list_directory: what a directory holds."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from interlock.state.calls import ToolResult, failure
from interlock.state.text import clean
from interlock.state.tooling import PathRefused, Tool, ToolContext, Workspace
from interlock.tools._globs import matcher
from interlock.tools._opening import checked, kind_of, trouble

_MOST_ENTRIES = 2000


class ListDirectoryArgs(BaseModel):
    model_config = ConfigDict(extra="forbid")
    dir_path: str = Field(
        default=".",
        min_length=1,
        description="Path of the directory, relative to the workspace or absolute inside it. Default: the workspace.",
    )
    ignore: list[str] = Field(
        default_factory=list[str], description="Glob patterns of names to leave out, such as '*.log'."
    )
    respect_git_ignore: bool = Field(
        default=True, description="False: list what git ignores too. Default true."
    )


async def run(args: ListDirectoryArgs, context: ToolContext) -> ToolResult:
    return await asyncio.to_thread(_list, args, context.workspace)


def _list(args: ListDirectoryArgs, workspace: Workspace) -> ToolResult:
    path = checked(workspace.readable, args.dir_path)
    if isinstance(path, ToolResult):
        return path
    shown = workspace.relative(path)
    if kind_of(workspace, path) in ("file", "other"):
        return failure("not_a_directory", f"{shown!r} is a file; read_file shows what is in it.")
    try:
        with os.scandir(path) as found:
            entries = sorted(found, key=lambda entry: (not entry.is_dir(), entry.name.casefold(), entry.name))
    except OSError as error:
        return trouble(workspace, path, error)
    left_out = [matcher(pattern) for pattern in args.ignore]
    named = [entry for entry in entries if not any(test(entry.name) for test in left_out)]
    kept = [entry for entry in named if not _ignored(workspace, entry, args.respect_git_ignore)]
    return _result(shown, [_line(workspace, path, entry) for entry in kept], len(named) - len(kept))


def _ignored(workspace: Workspace, entry: os.DirEntry[str], git: bool) -> bool:
    """Private files are shown as names, so that the model knows they are there; reading them is refused."""
    return workspace.ignored(Path(entry.path), git=git)


def _line(workspace: Workspace, directory: Path, entry: os.DirEntry[str]) -> str:
    name = workspace.relative(directory / entry.name).rpartition("/")[2]
    link = " (link)" if entry.is_symlink() else ""
    if entry.is_dir():
        return f"[DIR] {name}{link}"
    if link:
        return f"{name}{link}{_unusable(workspace, entry)}"
    return f"{name} ({_size(entry)})"


def _unusable(workspace: Workspace, entry: os.DirEntry[str]) -> str:
    try:
        workspace.readable(entry.path)
    except PathRefused:
        return " (leads outside the workspace)"
    return "" if entry.is_file() else " (leads nowhere)"


def _size(entry: os.DirEntry[str]) -> str:
    try:
        return f"{entry.stat(follow_symlinks=False).st_size} bytes"
    except OSError:  # gone meanwhile
        return "unreadable"


def _result(shown: str, lines: list[str], ignored: int) -> ToolResult:
    where = "the workspace" if shown == "." else repr(shown)
    if not lines:
        text = f"{where[0].upper() + where[1:]} is empty." if not ignored else f"Nothing to show in {where}."
    else:
        text = "\n".join([f"In {where}:", *_capped(lines)])
    if ignored:
        text += f"\n({ignored} ignored)"
    return ToolResult(status="success", content=clean(text), meta={"summary": _count(len(lines))})


def _capped(lines: list[str]) -> Iterable[str]:
    yield from lines[:_MOST_ENTRIES]
    if len(lines) > _MOST_ENTRIES:
        yield f"… {len(lines) - _MOST_ENTRIES} more entries aren't shown; narrow it with glob."


def _count(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"


TOOL = Tool(
    name="list_directory",
    description="Lists the files and directories right inside a directory: directories first, files with their size in"
    " bytes. What git or the user's ignore files ignore is counted but not listed.",
    args=ListDirectoryArgs,
    risk="read",
    summary=lambda args: f"List {args.dir_path}",
    run=run,
    paths=lambda args: [(args.dir_path, "read")],
)
