"""list_directory: what a directory holds."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from interlock.state.calls import ToolResult, failure
from interlock.state.text import clean
from interlock.state.tooling import PathRefused, Tool, ToolContext, Workspace
from interlock.tools._opening import checked, kind_of, trouble
from interlock.tools._places import entry_kind, open_directory
from interlock.tools.search.globs import matcher

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
        with (
            workspace.place(path) as place,
            open_directory(place) as directory,
            os.scandir(directory) as found,
        ):
            entries = sorted(_shown(workspace, path, entry) for entry in found)
    except OSError as error:
        return trouble(workspace, path, error)
    left_out = [matcher(pattern) for pattern in args.ignore]
    named = [entry for entry in entries if not any(test(entry.name) for test in left_out)]
    # Private files are shown as names, so that the model knows they are there; reading them is refused.
    kept = [e for e in named if not workspace.ignored(path / e.name, git=args.respect_git_ignore)]
    return _result(shown, [entry.line for entry in kept], len(named) - len(kept))


class _Shown(NamedTuple):
    """An entry as it is listed; in the order of its fields."""

    is_file: bool
    folded: str
    name: str
    line: str


def _shown(workspace: Workspace, directory: Path, entry: os.DirEntry[str]) -> _Shown:
    """Looked at while the directory is open; links only where they may be followed."""
    name = workspace.relative(directory / entry.name).rpartition("/")[2]
    kind, note = entry_kind(entry), ""
    if kind == "link":
        kind, note = _led_to(workspace, directory / entry.name)
    elif kind != "directory":
        note = f" ({_size(entry)})"
    is_file = kind != "directory"
    line = f"{name}{note}" if is_file else f"[DIR] {name}{note}"
    return _Shown(is_file, entry.name.casefold(), entry.name, line)


def _led_to(workspace: Workspace, link: Path) -> tuple[str, str]:
    """What a link leads to, and what is said of it."""
    try:
        kind = kind_of(workspace, workspace.readable(str(link)))
    except PathRefused:
        return "other", " (link) (leads where tools may not go)"
    return kind, " (link)" if kind in ("file", "directory") else " (link) (leads nowhere)"


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
