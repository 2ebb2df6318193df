"""list_files: list a directory, optionally recursively; the task loop's name."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from interlock.state.calls import ToolError, ToolResult
from interlock.state.deps import StopFlag, in_thread
from interlock.state.text import clean
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.state.workspace import Workspace
from interlock.tools import list_directory
from interlock.tools._opening import kind_of, trouble

_MOST_ENTRIES = 200
"""Maximum entries of a recursive listing (Roo Code: 200)."""


class ListFilesArgs(Args):
    path: str = Field(
        min_length=1, description="Path of the directory, relative to the workspace or absolute inside it."
    )
    recursive: bool = Field(
        default=False,
        description="True: all files and directories below it. Default: what lies right inside it.",
    )


async def run(args: ListFilesArgs, context: ToolContext) -> ToolResult:
    if not args.recursive:
        return await list_directory.run(list_directory.ListDirectoryArgs(dir_path=args.path), context)
    return await in_thread(_below, args.path, context.workspace)


def _below(stop: StopFlag, path: str, workspace: Workspace) -> ToolResult:
    start = workspace.readable(path)
    kind = kind_of(workspace, start)
    if kind == "missing":
        raise trouble(workspace, start, FileNotFoundError())
    if kind != "directory":
        text = f"{workspace.relative(start)!r} is a file; name the directory around it."
        raise ToolError("not_a_directory", text)
    entries = _entries(start, workspace.walk(start, stop=stop.check))
    shown = workspace.relative(start)
    where = "the workspace" if shown == "." else repr(shown)
    count = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    lines = [f"{count} below {where}, ignored ones left out:", *entries[:_MOST_ENTRIES]]
    if len(entries) > _MOST_ENTRIES:
        lines.append(f"… {len(entries) - _MOST_ENTRIES} more aren't shown; list one of the directories.")
    return ToolResult(status="success", content=clean("\n".join(lines)), meta={"summary": count})


def _entries(start: Path, files: Sequence[Path]) -> list[str]:
    """Upper levels first, so that truncation removes the deepest entries; directories end with a slash."""
    names = [path.relative_to(start) for path in files]
    directories = {parent for name in names for parent in name.parents} - {Path()}
    all_names = [(len(d.parts), f"{d.as_posix()}/") for d in directories]
    return [name for _, name in sorted([*all_names, *((len(n.parts), n.as_posix()) for n in names)])]


TOOL = Tool(
    name="list_files",
    description="Lists the files and directories inside a directory; with recursive all that lies below it, the upper"
    f" levels first, at most {_MOST_ENTRIES} entries. What git or the user's ignore files ignore is left out.",
    args=ListFilesArgs,
    risk="read",
    summary=lambda args: f"List {args.path}" + (" and below" if args.recursive else ""),
    run=run,
    paths=lambda args: [(args.path, "read")],
)
