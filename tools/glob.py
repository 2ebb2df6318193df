"""glob: find files by name."""

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from interlock.state.calls import ToolError, ToolResult
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.text import format_count
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.state.workspace import Workspace
from interlock.tools.search.ripgrep import compile_glob, compile_literal, has_glob_characters
from interlock.tools.workspace_files import resolve_directory

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
            "path_refused", f"{args.pattern!r} leads outside {args.dir_path!r}; set dir_path instead."
        )
    test = _compile_path_test(pattern, start, args.case_sensitive)
    files = workspace.walk_names(start, include_ignored=not args.respect_git_ignore, stop=stop.check)
    base = len(f"{start}".rstrip("/")) + 1
    found = [path for path in files if test(path[base:])]
    return _format_result(args.pattern, [workspace.relative(Path(path)) for path in found])


def _make_pattern_relative(pattern: str, start: Path, workspace: Workspace) -> str | None:
    """Return the pattern relative to `start`; None: it leads outside."""
    if pattern.startswith("/"):
        base = next((str(d) for d in (start, workspace.root) if pattern.startswith(f"{d}/")), None)
        if base is None or base != str(start):
            return None
        pattern = pattern[len(base) + 1 :]
    return None if ".." in pattern.split("/") else pattern


def _compile_path_test(pattern: str, start: Path, case_sensitive: bool) -> Callable[[str], bool]:
    """Return a test of relative paths; existing names match literally, as in `app/[id]/page.tsx`."""
    if has_glob_characters(pattern) and os.path.lexists(start / pattern):
        return compile_literal(pattern, case_sensitive=case_sensitive)
    return compile_glob(pattern, case_sensitive=case_sensitive)


def _format_result(pattern: str, files: list[str]) -> ToolResult:
    if not files:
        text = f"No file matches {pattern!r}. Ignored files aren't searched; '**/' searches all directories."
        return ToolResult(status="success", content=text, meta={"summary": "no files"})
    count = format_count(len(files), "file")
    lines = [f"{count} for {pattern!r}:", *files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        lines.append(f"… {len(files) - _MOST_FILES} more aren't shown; narrow the pattern or dir_path.")
    return ToolResult(status="success", content="\n".join(lines), meta={"summary": count})


TOOL = Tool(
    name="glob",
    description="Finds files whose path matches a glob pattern, sorted by path. Dotfiles are included; what git or the"
    " user's ignore files ignore is not.",
    args=GlobArgs,
    risk="read",
    summary=lambda args: f"Find {args.pattern}" + ("" if args.dir_path == "." else f" in {args.dir_path}"),
    run=run_glob,
    paths=lambda args: [(args.dir_path, "read")],
)
