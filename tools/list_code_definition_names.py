"""list_code_definition_names: list the functions, classes etc. of a source file, or of a directory's source files."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from interlock.state.calls import ToolError, ToolResult
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.file_names import quote_name
from interlock.state.text import format_count, replace_surrogates
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.state.workspace import PathRefused, Workspace
from interlock.tools.code_definitions import (
    EXTRA,
    detect_language,
    find_definitions,
    grammar_modules,
    is_parser_installed,
)
from interlock.tools.file_content import MOST_CHARS, decode_text_file, split_lines, truncate_line
from interlock.tools.workspace_files import path_kind, read_file_bytes, to_tool_error

_LEAST_LINES = 4
"""Minimum lines of a listed definition (Roo Code: 4): one-liners are found by searching."""
_MOST_FILES = 50
"""Maximum files parsed per directory (Roo Code: 50)."""
_MOST_BYTES = 1024 * 1024
"""Maximum bytes of a file in a directory listing; larger ones are generated."""
_MOST_COLUMNS = 200


class ListCodeDefinitionNamesArgs(Args):
    path: str = Field(
        min_length=1,
        description="Source file, or directory whose source files are looked at (not those below it), relative to the"
        " workspace or absolute inside it.",
    )


async def run_list_code_definition_names(
    args: ListCodeDefinitionNamesArgs, context: ToolContext
) -> ToolResult:
    return await run_in_thread(_list_definitions, args.path, context.workspace)


def _list_definitions(stop: StopFlag, path: str, workspace: Workspace) -> ToolResult:
    if not is_parser_installed():
        raise ToolError("not_installed", f"list_code_definition_names needs the extra `code`; {EXTRA}")
    start = workspace.resolve_readable(path)
    kind = path_kind(workspace, start)
    if kind not in ("file", "directory"):
        raise to_tool_error(workspace, start, FileNotFoundError())
    if kind == "file":
        language = detect_language(start)
        if language is None or language not in grammar_modules():
            known = ", ".join(sorted(grammar_modules()))
            raise ToolError(
                "unknown_language",
                f"{quote_name(workspace.display_path(start))} is in no language whose definitions are known "
                f"({known}); read it.",
            )
        return _format_result(
            [*_format_definitions(workspace, start, language, read_file_bytes(workspace, start))], 0
        )
    found = [
        p for p in map(Path, workspace.list_files(start, stop=stop.raise_if_stopped)) if p.parent == start
    ]
    sources = [(p, name) for p in found if (name := detect_language(p)) in grammar_modules() and name]
    sections: list[str] = []
    for source, language in sources[:_MOST_FILES]:
        stop.raise_if_stopped()
        sections += _format_definitions(workspace, source, language, _read_bytes_or_empty(workspace, source))
    return _format_result(sections, len(sources) - _MOST_FILES)


def _read_bytes_or_empty(workspace: Workspace, path: Path) -> bytes:
    """Return a file's bytes; empty if it is private, oversized or deleted: the directory's other files still count."""
    try:
        data = read_file_bytes(workspace, workspace.resolve_readable(str(path)))
    except (PathRefused, ToolError):
        return b""
    return data if len(data) <= _MOST_BYTES else b""


def _format_definitions(workspace: Workspace, path: Path, language: str, data: bytes) -> Iterator[str]:
    file = decode_text_file(data, workspace.read_conventions(path), path.name)
    if file is None:
        return
    lines = split_lines(file.text)
    rows = [
        f"{one.start}--{one.end} | {truncate_line(lines[one.start - 1], _MOST_COLUMNS, '…')}"
        for one in find_definitions(file.text.encode("utf-8", "replace"), language)
        if one.end - one.start + 1 >= _LEAST_LINES
    ]
    if rows:
        yield "\n".join([f"# {workspace.display_path(path)}", *rows])


def _format_result(sections: list[str], skipped_files: int) -> ToolResult:
    text = "\n\n".join(sections) or "No source code definitions found."
    count = sum(section.count("\n") for section in sections)
    if len(text) > MOST_CHARS:
        text = f"{text[:MOST_CHARS]}\n… cut after {MOST_CHARS} characters; name one of the files."
    if skipped_files > 0:
        text += f"\n\n… {skipped_files} more files weren't looked at; name those that matter."
    return ToolResult(
        status="success",
        content=replace_surrogates(text),
        meta={"summary": format_count(count, "definition")},
    )


TOOL = Tool(
    name="list_code_definition_names",
    description="Lists what a source file defines, or all source files right in a directory: functions, classes,"
    f" methods and their like of at least {_LEAST_LINES} lines, each as 'FIRST--LAST | its first line'. Use it to see"
    " what there is before reading.",
    args=ListCodeDefinitionNamesArgs,
    risk="read",
    summary=lambda args: f"List definitions in {args.path}",
    run=run_list_code_definition_names,
    paths=lambda args: [(args.path, "read")],
    installed=is_parser_installed,
)
