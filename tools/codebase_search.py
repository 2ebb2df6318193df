"""codebase_search: find code by what it does, in words."""

from pydantic import Field

from interlock.state.calls import ToolError, ToolResult
from interlock.state.search import Hit, IndexInfo, IndexQuery, Progress
from interlock.state.text import format_count
from interlock.state.tooling import Args, Tool, ToolContext

_SHOWN = 10
"""Results shown by default: a model reads them all."""
_INDEXING_S = 60.0
"""Seconds a call may spend indexing; the next call continues."""
_EVERY = 1000
"""Files between progress reports."""


class CodebaseSearchArgs(Args):
    query: str = Field(
        min_length=1,
        description="What the code does or is about, in words or names: 'retry after a time-out'.",
    )
    path: str = Field(default=".", description="Folder or file to search. Default: the workspace.")
    language: str | None = Field(default=None, description="Only files in this language, such as 'python'.")
    limit: int = Field(default=_SHOWN, ge=1, le=50, description=f"Most results. Default {_SHOWN}.")


async def run_codebase_search(args: CodebaseSearchArgs, context: ToolContext) -> ToolResult:
    if context.index is None:
        raise ToolError("no_index", "Nothing is indexed here; use grep_search.")
    index = context.index()
    asked = index.validate_query(
        IndexQuery(query=args.query, path=args.path, language=args.language, limit=args.limit)
    )
    within = min(_INDEXING_S, context.time_left_s / 2 if context.time_left_s else _INDEXING_S)
    info = await index.update(asked.path, _make_progress_reporter(context), within)
    found = await index.find_candidates(asked)
    hits = await index.read_hits(index.rank_candidates(found, asked))
    return _format_result(args, hits, info, found.error)


def _make_progress_reporter(context: ToolContext) -> Progress:
    shown = 0

    def report(done: int, total: int) -> None:
        nonlocal shown
        if done - shown >= _EVERY:
            shown = done
            context.emit_output(f"indexed {done:,} of {total:,} files\n")

    return report


def _format_result(
    args: CodebaseSearchArgs, hits: list[Hit], info: IndexInfo, error: str | None
) -> ToolResult:
    notes: list[str] = []
    if info.state != "indexed":
        notes.append(f"The index isn't complete yet ({info.files:,} files are in it): more may be there.")
    if problem := error or info.error:
        notes.append(f"Only words were compared: {problem}")
    count = format_count(len(hits), "result")
    if not hits:
        text = (
            f"No relevant code found for {args.query!r}. Try other words, or grep_search for an exact text."
        )
    else:
        found = [
            f"{hit.path}:{hit.start_line}-{hit.end_line} (score {hit.score:.2f})\n{hit.code.strip()}"
            for hit in hits
        ]
        text = "\n\n".join([f"{count} for {args.query!r}, best first:", *found])
    return ToolResult(status="success", content="\n\n".join([text, *notes]), meta={"summary": count})


TOOL = Tool(
    name="codebase_search",
    description="Finds the code that answers a question, best matches first, from an index of the workspace: functions,"
    " classes and sections of documents by their words, names and paths. For exact text use grep_search.",
    args=CodebaseSearchArgs,
    risk="read",
    summary=lambda args: f"Search for {args.query!r}" + ("" if args.path == "." else f" in {args.path}"),
    run=run_codebase_search,
    paths=lambda args: [(args.path, "read")],
)
