"""grep_search: find lines matching a regular expression; also by the task loop's name and parameters."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from pydantic import Field

from interlock.state.calls import ToolResult
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.file_names import quote_name
from interlock.state.text import format_count, replace_surrogates
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.state.workspace import Workspace
from interlock.tools.file_content import truncate_line
from interlock.tools.search.ripgrep import LINE_CHARS, Grep, Line, Search, select_paths_by_glob
from interlock.tools.workspace_files import NotAFileError, path_kind, to_tool_error

_ONE_MATCH_CONTEXT = 50
_FEW_MATCHES_CONTEXT = 15
"""Default lines of context on each side of one match, and of two or three (gemini-cli): saves a read."""
_FEW = 3


class GrepSearchArgs(Args):
    pattern: str = Field(min_length=1, description="Regular expression to search for in each line.")
    dir_path: str = Field(
        default=".",
        min_length=1,
        description="Directory or file to search, relative to the workspace or absolute inside it."
        " Default: the workspace.",
    )
    include_pattern: str | None = Field(
        default=None,
        description="Glob of files to search, such as '*.{ts,tsx}' or 'src/**', relative to the workspace.",
    )
    exclude_pattern: str | None = Field(
        default=None, description="Regular expression; lines that match it too are left out."
    )
    names_only: bool = Field(default=False, description="True: only the paths of files with a match.")
    case_sensitive: bool = Field(
        default=False, description="Whether upper and lower case differ. Default false."
    )
    fixed_strings: bool = Field(
        default=False, description="True: the pattern is plain text, not an expression."
    )
    context: int | None = Field(
        default=None, ge=0, le=200, description="Lines to show on both sides of each match."
    )
    before: int | None = Field(default=None, ge=0, le=200, description="Lines to show before each match.")
    after: int | None = Field(default=None, ge=0, le=200, description="Lines to show after each match.")
    no_ignore: bool = Field(default=False, description="True: search what git ignores too. Default false.")
    max_matches_per_file: int | None = Field(default=None, ge=1, description="Most matches of one file.")
    total_max_matches: int = Field(
        default=100, ge=1, le=1000, description="Most matches in all. Default 100."
    )


async def run_grep_search(args: GrepSearchArgs, context: ToolContext) -> ToolResult:
    start = context.workspace.resolve_readable(args.dir_path)
    kind = path_kind(context.workspace, start)
    if kind in ("missing", "other"):
        error = FileNotFoundError() if kind == "missing" else NotAFileError()
        raise to_tool_error(context.workspace, start, error)
    search = _build_search(args, start, context.workspace)
    grep = Grep(context, no_ignore=args.no_ignore)
    found, more = await grep.find_lines(search, args.exclude_pattern)
    found = _leave_out_sets_of_letters(found, search)
    lines, matches = await run_in_thread(_select_lines_and_count_matches, grep, found, args, search)
    if wider := _add_context_if_few_matches(search, args, lines, matches):
        found, _ = await grep.find_lines(wider, args.exclude_pattern)
        lines, _ = await run_in_thread(_select_lines_and_count_matches, grep, found, args, wider)
    result = _format_result(args, lines, more or matches > args.total_max_matches, context)
    if not grep.unread_files:
        return result
    count = format_count(grep.unread_files, "file")
    note = (
        f"\n{count} in other encodings than UTF-8 weren't decoded, as there are too many; name a directory."
    )
    return result.model_copy(update={"content": result.content + note})


def _build_search(args: GrepSearchArgs, start: Path, workspace: Workspace) -> Search:
    inside = (r for r in workspace.roots if start.is_relative_to(r))
    root = max(inside, key=lambda r: len(r.parts), default=start.parent)  # else a saved output
    # One extra match shows that there are more; exclusions are applied later, so they can't be counted here.
    shown = 1 if args.names_only else min(args.max_matches_per_file or 10**9, args.total_max_matches + 1)
    around = 0 if args.names_only else args.context or 0
    return Search(
        pattern=args.pattern,
        root=root,
        paths=(start,),
        case_sensitive=args.case_sensitive,
        fixed_strings=args.fixed_strings,
        before=around if args.before is None else args.before,
        after=around if args.after is None else args.after,
        most_per_file=0 if args.exclude_pattern else shown,
        include=f"{glob}**" if (glob := args.include_pattern) and glob.endswith("/") else glob,
    )


def _leave_out_sets_of_letters(lines: list[Line], search: Search) -> list[Line]:
    """Return the lines without files that a name with brackets only means as a set of letters, where others have it."""
    if not search.include or "[" not in search.include:
        return lines
    glob = search.include if "/" in search.include else f"**/{search.include}"
    names = {os.path.relpath(search.root / line.path, search.root): line.path for line in lines}
    meant = {names[name] for name in select_paths_by_glob(glob, [*names])}
    return [line for line in lines if line.path in meant]


def _add_context_if_few_matches(
    search: Search, args: GrepSearchArgs, lines: Sequence[Line], matches: int
) -> Search | None:
    """Return the same search with more context if there are few matches and no context was requested, else None."""
    asked = (args.context, args.before, args.after) != (None, None, None)
    if args.names_only or asked or not 1 <= matches <= min(_FEW, args.total_max_matches):
        return None
    around = _ONE_MATCH_CONTEXT if matches == 1 else _FEW_MATCHES_CONTEXT
    files = tuple(dict.fromkeys(line.path for line in lines))
    return replace(search, paths=files, before=around, after=around)


def _select_lines_and_count_matches(
    stop: StopFlag, grep: Grep, lines: Sequence[Line], args: GrepSearchArgs, search: Search
) -> tuple[list[Line], int]:
    """The lines to show (matches up to the limits, with their context), and the number of matches.

    Files are checked one by one until the limit is exceeded: one extra match shows that there are more.
    """
    kept: list[Line] = []
    total = 0
    for path, group in groupby(lines, key=lambda line: search.root / line.path):
        stop.raise_if_stopped()
        found = list(group)
        if not any(row.is_match for row in found):
            continue
        rows = grep.keep_showable_lines(path, found, search)
        hits = [row for row in rows if row.is_match][: 1 if args.names_only else args.max_matches_per_file]
        shown = hits[: max(0, args.total_max_matches - total)]
        total += len(hits)
        near = {n for hit in shown for n in range(hit.number - search.before, hit.number + search.after + 1)}
        numbers = {hit.number for hit in shown}
        kept += [row._replace(is_match=row.number in numbers) for row in rows if row.number in near]
        if total > args.total_max_matches:
            break
    return kept, total


def _format_result(
    args: GrepSearchArgs, lines: Sequence[Line], has_more: bool, context: ToolContext
) -> ToolResult:
    where = "" if args.dir_path == "." else f" in {quote_name(args.dir_path)}"
    matches = sum(line.is_match for line in lines)
    if not lines:
        text = f"No matches for {args.pattern!r}{where}. Ignored and binary files aren't searched."
        return ToolResult(status="success", content=text, meta={"summary": "no matches"})
    files = len({line.path for line in lines})
    count = format_count(files, "file")
    if not args.names_only:
        count = f"{format_count(matches, 'match', 'matches')} in {count}"
    if has_more:
        count = f"first {count}"
    body = "\n".join(_format_lines(lines, args.names_only, context.workspace))
    limit = context.settings.tools.truncate_at
    text = f"{count[0].upper()}{count[1:]} for {args.pattern!r}{where}:\n{body[:limit]}"
    if len(body) > limit:
        text += f"\n… cut after {limit} characters; narrow the search."
    elif has_more:
        text += "\n… there are more; narrow the search."
    return ToolResult(
        status="success", content=replace_surrogates(text), meta={"summary": count, "matches": matches}
    )


def _format_lines(lines: Sequence[Line], names_only: bool, workspace: Workspace) -> Iterator[str]:
    for path, group in groupby(lines, key=lambda line: line.path):
        name = workspace.display_path(path)
        if names_only:
            yield name
            continue
        yield f"\n{name}"
        last = 0
        for line in group:
            if last and line.number > last + 1:
                yield "--"
            last, text = line.number, truncate_line(line.text, LINE_CHARS, "… [truncated]")
            yield f"{line.number}{':' if line.is_match else '-'}{text}"


TOOL = Tool(
    name="grep_search",
    description="Searches file contents with a regular expression, line by line, with ripgrep. Results are sorted by"
    " path: 'NUMBER:line' for a match, 'NUMBER-line' for a line around it. What git or the user's ignore files ignore"
    " is left out, and so are binary files.",
    args=GrepSearchArgs,
    risk="read",
    summary=lambda args: (
        f"Search for {args.pattern!r}" + ("" if args.dir_path == "." else f" in {args.dir_path}")
    ),
    run=run_grep_search,
    paths=lambda args: [(args.dir_path, "read")],
    aliases=("search_file_content",),
)


_MOST_MATCHES = 300
"""Roo Code's limit."""


class SearchFilesArgs(Args):
    path: str = Field(
        min_length=1,
        description="Directory or file to search, relative to the workspace or absolute inside it.",
    )
    regex: str = Field(
        min_length=1, description="Regular expression (Rust's syntax) to search for in each line."
    )
    file_pattern: str | None = Field(
        default=None, min_length=1, description="Glob of files to search, such as '*.ts'. Default: all files."
    )


def _to_grep_args(args: SearchFilesArgs) -> GrepSearchArgs:
    return GrepSearchArgs(
        pattern=args.regex,
        dir_path=args.path,
        include_pattern=args.file_pattern,
        case_sensitive=True,
        context=1,
        total_max_matches=_MOST_MATCHES,
    )


def _summarize_search(args: SearchFilesArgs) -> str:
    return f"Search for {args.regex!r} in {args.path}"


SEARCH_FILES = replace(
    TOOL.make_renamed_copy("search_files", SearchFilesArgs, _to_grep_args),
    description="Searches the files below a directory with a regular expression, line by line. Each match is shown with"
    " the lines around it: 'NUMBER:line' for the match, 'NUMBER-line' for the others. What git or the user's ignore"
    " files ignore is left out, and so are binary files.",
    summary=_summarize_search,
)
