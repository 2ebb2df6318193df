"""list_directory: list a directory's entries, the task loop's list also what lies below it; find files by name."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from interlock.state.calls import ToolError, ToolResult
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.file_names import quote_name
from interlock.state.text import format_count, replace_surrogates
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.state.workspace import PathRefused, Workspace
from interlock.tools.search.ripgrep import (
    compile_glob,
    compile_literal_path,
    has_glob_characters,
    select_paths_by_glob,
)
from interlock.tools.workspace_files import (
    entry_kind,
    open_directory,
    path_kind,
    resolve_directory,
    to_tool_error,
)

_MOST_ENTRIES = 2000


class ListDirectoryArgs(Args):
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


async def run_list_directory(args: ListDirectoryArgs, context: ToolContext) -> ToolResult:
    return await run_in_thread(_list_entries, args, context.workspace)


def _list_entries(stop: StopFlag, args: ListDirectoryArgs, workspace: Workspace) -> ToolResult:
    path = resolve_directory(workspace, args.dir_path)
    shown = workspace.display_path(path)
    left_out = [compile_glob(pattern) for pattern in args.ignore]
    ignored = workspace.make_ignore_test(path, git=args.respect_git_ignore)
    try:
        with (
            workspace.open_parent_directory(path) as place,
            open_directory(place) as directory,
            os.scandir(directory) as found,
        ):
            named = [
                _examine_entry(stop, workspace, path, e)
                for e in found
                if not any(test(e.name) for test in left_out)
            ]
            # Private files are listed by name, so that the model knows they exist; reading them is refused.
            kept = sorted(entry for entry in named if not ignored(entry.name, not entry.is_file))
            lines = [_format_entry(workspace, path, entry) for entry in kept[:_MOST_ENTRIES]]
    except OSError as error:
        raise to_tool_error(workspace, path, error) from error
    return _format_entries(shown, lines, len(kept), len(named) - len(kept))


class _Entry(NamedTuple):
    """An entry, sorted by its fields in order. Names are unique, so later fields aren't compared."""

    is_file: bool
    folded: str
    name: str
    entry: os.DirEntry[str]
    note: str


def _examine_entry(stop: StopFlag, workspace: Workspace, directory: Path, entry: os.DirEntry[str]) -> _Entry:
    """Return an entry, examined while its directory is open; links only if they may be followed."""
    stop.raise_if_stopped()
    kind, note = entry_kind(entry), ""
    if kind == "link":
        kind, note = _link_target_kind_and_note(workspace, directory / entry.name)
    return _Entry(kind != "directory", entry.name.casefold(), entry.name, entry, note)


def _format_entry(workspace: Workspace, directory: Path, entry: _Entry) -> str:
    name = workspace.display_path(directory / entry.name).rpartition("/")[2]
    if not entry.is_file:
        return f"[DIR] {name}{entry.note}"
    return name + (entry.note or f" ({_format_size(entry.entry)})")


def _link_target_kind_and_note(workspace: Workspace, link: Path) -> tuple[str, str]:
    """Return a link's target type and a remark about it."""
    try:
        kind = path_kind(workspace, workspace.resolve_readable(str(link)))
    except PathRefused:
        return "other", " (link) (leads where tools may not go)"
    return kind, " (link)" if kind in ("file", "directory") else " (link) (leads nowhere)"


def _format_size(entry: os.DirEntry[str]) -> str:
    try:
        return f"{entry.stat(follow_symlinks=False).st_size} bytes"
    except OSError:  # deleted meanwhile
        return "unreadable"


def _format_entries(display_path: str, lines: list[str], total: int, ignored: int) -> ToolResult:
    where = "the workspace" if display_path == "." else quote_name(display_path)
    if not lines:
        text = f"{where[0].upper() + where[1:]} is empty." if not ignored else f"Nothing to show in {where}."
    else:
        text = "\n".join([f"In {where}:", *lines])
    if total > len(lines):
        text += f"\n… {total - len(lines)} more entries aren't shown; narrow it with glob."
    if ignored:
        text += f"\n({ignored} ignored)"
    count = format_count(total, "entry", "entries")
    return ToolResult(status="success", content=replace_surrogates(text), meta={"summary": count})


LIST_DIRECTORY = Tool(
    name="list_directory",
    description="Lists the files and directories right inside a directory: directories first, files with their size in"
    " bytes. What git or the user's ignore files ignore is counted but not listed.",
    args=ListDirectoryArgs,
    risk="read",
    summary=lambda args: f"List {args.dir_path}",
    run=run_list_directory,
    paths=lambda args: [(args.dir_path, "read")],
)


_MOST_BELOW = 200
"""Maximum entries of a recursive listing (Roo Code: 200)."""


class ListFilesArgs(Args):
    path: str = Field(
        min_length=1, description="Path of the directory, relative to the workspace or absolute inside it."
    )
    recursive: bool = Field(
        default=False,
        description="True: all files and directories below it. Default: what lies right inside it.",
    )


async def _run_list_files(args: ListFilesArgs, context: ToolContext) -> ToolResult:
    if not args.recursive:
        return await run_list_directory(ListDirectoryArgs(dir_path=args.path), context)
    return await run_in_thread(_list_recursively, args.path, context.workspace)


def _list_recursively(stop: StopFlag, path: str, workspace: Workspace) -> ToolResult:
    start = resolve_directory(workspace, path)
    entries = _relative_names_by_depth(start, workspace.list_files(start, stop=stop.raise_if_stopped))
    shown = workspace.display_path(start)
    where = "the workspace" if shown == "." else quote_name(shown)
    count = format_count(len(entries), "entry", "entries")
    lines = [f"{count} below {where}, ignored ones left out:", *entries[:_MOST_BELOW]]
    if len(entries) > _MOST_BELOW:
        lines.append(f"… {len(entries) - _MOST_BELOW} more aren't shown; list one of the directories.")
    return ToolResult(status="success", content=replace_surrogates("\n".join(lines)), meta={"summary": count})


def _relative_names_by_depth(start: Path, files: Sequence[str]) -> list[str]:
    """Return the names below a directory, upper levels first, so that truncation removes the deepest; directories end
    with a slash."""
    names = [Path(path).relative_to(start) for path in files]
    directories = {parent for name in names for parent in name.parents} - {Path()}
    all_names = [(len(d.parts), f"{d.as_posix()}/") for d in directories]
    return [name for _, name in sorted([*all_names, *((len(n.parts), n.as_posix()) for n in names)])]


LIST_FILES = Tool(
    name="list_files",
    description="Lists the files and directories inside a directory; with recursive all that lies below it, the upper"
    f" levels first, at most {_MOST_BELOW} entries. What git or the user's ignore files ignore is left out.",
    args=ListFilesArgs,
    risk="read",
    summary=lambda args: f"List {args.path}" + (" and below" if args.recursive else ""),
    run=_run_list_files,
    paths=lambda args: [(args.path, "read")],
)


_MOST_FILES = 1000


class GlobArgs(Args):
    pattern: str = Field(
        min_length=1,
        description="Glob pattern, such as 'src/**/*.py' or '**/*.{ts,tsx}'. '**' stands for any number of directories;"
        " '*' alone stays within one.",
    )
    dir_path: str = Field(
        default=".",
        min_length=1,
        description="Directory that the pattern starts from, relative to the workspace or absolute inside it."
        " Default: the workspace.",
    )
    case_sensitive: bool = Field(
        default=False, description="Whether upper and lower case differ. Default false."
    )
    respect_git_ignore: bool = Field(
        default=True, description="False: find what git ignores too. Default true."
    )


async def run_glob(args: GlobArgs, context: ToolContext) -> ToolResult:
    return await run_in_thread(_find_files, args, context.workspace)


def _find_files(stop: StopFlag, args: GlobArgs, workspace: Workspace) -> ToolResult:
    start = resolve_directory(workspace, args.dir_path)
    pattern = _make_pattern_relative(args.pattern, start, workspace)
    if pattern is None:
        raise ToolError(
            "path_refused",
            f"{quote_name(args.pattern)} leads outside {quote_name(args.dir_path)}; set dir_path instead.",
        )
    files = workspace.list_files(
        start, include_ignored=not args.respect_git_ignore, stop=stop.raise_if_stopped
    )
    base = len(f"{start}".rstrip("/")) + 1
    below = [path[base:] for path in files]
    if has_glob_characters(pattern) and os.path.lexists(start / pattern):
        found = [*filter(compile_literal_path(pattern, case_sensitive=args.case_sensitive), below)]
    else:
        found = select_paths_by_glob(pattern, below, case_sensitive=args.case_sensitive)
    return _format_found_files(args.pattern, [workspace.display_path(start / path) for path in found])


def _make_pattern_relative(pattern: str, start: Path, workspace: Workspace) -> str | None:
    """Return the pattern relative to `start`; None: it leads outside."""
    if pattern.startswith("/"):
        base = next((str(d) for d in (start, workspace.root) if pattern.startswith(f"{d}/")), None)
        if base is None or base != str(start):
            return None
        pattern = pattern[len(base) + 1 :]
    return None if ".." in pattern.split("/") else pattern


def _format_found_files(pattern: str, files: list[str]) -> ToolResult:
    if not files:
        text = f"No file matches {quote_name(pattern)}. Ignored files aren't searched; '**/' searches all directories."
        return ToolResult(status="success", content=text, meta={"summary": "no files"})
    count = format_count(len(files), "file")
    lines = [f"{count} for {quote_name(pattern)}:", *files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        lines.append(f"… {len(files) - _MOST_FILES} more aren't shown; narrow the pattern or dir_path.")
    return ToolResult(status="success", content="\n".join(lines), meta={"summary": count})


GLOB = Tool(
    name="glob",
    description="Finds files whose path matches a glob pattern, sorted by path. Dotfiles are included; what git or the"
    " user's ignore files ignore is not.",
    args=GlobArgs,
    risk="read",
    summary=lambda args: f"Find {args.pattern}" + ("" if args.dir_path == "." else f" in {args.dir_path}"),
    run=run_glob,
    paths=lambda args: [(args.dir_path, "read")],
)
