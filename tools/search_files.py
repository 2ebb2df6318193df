"""search_files: `grep_search` with the task loop's name and parameters."""

from dataclasses import replace

from pydantic import Field

from interlock.state.tooling import Args
from interlock.tools import grep_search

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


def _search(args: SearchFilesArgs) -> grep_search.GrepSearchArgs:
    return grep_search.GrepSearchArgs(
        pattern=args.regex,
        dir_path=args.path,
        include_pattern=args.file_pattern,
        case_sensitive=True,
        context=1,
        total_max_matches=_MOST_MATCHES,
    )


def _summary(args: SearchFilesArgs) -> str:
    return f"Search for {args.regex!r} in {args.path}"


TOOL = replace(
    grep_search.TOOL.renamed("search_files", SearchFilesArgs, _search),
    description="Searches the files below a directory with a regular expression, line by line. Each match is shown with"
    " the lines around it: 'NUMBER:line' for the match, 'NUMBER-line' for the others. What git or the user's ignore"
    " files ignore is left out, and so are binary files.",
    summary=_summary,
)
