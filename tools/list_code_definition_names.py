"""list_code_definition_names: list the functions, classes etc. of a source file, or of a directory's source files."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from interlock.state.calls import ToolError, ToolResult
from interlock.state.deps import StopFlag, in_thread
from interlock.state.text import clean, counted
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.state.workspace import PathRefused, Workspace
from interlock.tools._content import MOST_CHARS, decode, lines_of
from interlock.tools._opening import kind_of, read_bytes, trouble
from interlock.tools._syntax import EXTRA, definitions, grammars, installed, language_of

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


async def run(args: ListCodeDefinitionNamesArgs, context: ToolContext) -> ToolResult:
    return await in_thread(_list, args.path, context.workspace)


def _list(stop: StopFlag, path: str, workspace: Workspace) -> ToolResult:
    if not installed():
        raise ToolError("not_installed", f"list_code_definition_names needs the extra `code`: {EXTRA}.")
    start = workspace.readable(path)
    kind = kind_of(workspace, start)
    if kind not in ("file", "directory"):
        raise trouble(workspace, start, FileNotFoundError())
    if kind == "file":
        language = language_of(start)
        if language is None or language not in grammars():
            known = ", ".join(sorted(grammars()))
            text = f"{workspace.relative(start)!r} is in no language whose definitions are known ({known}); read it."
            raise ToolError("unknown_language", text)
        return _result([*_section(workspace, start, language, read_bytes(workspace, start))], 0)
    found = [p for p in map(Path, workspace.walk_names(start, stop=stop.check)) if p.parent == start]
    sources = [(p, name) for p in found if (name := language_of(p)) in grammars() and name]
    sections: list[str] = []
    for source, language in sources[:_MOST_FILES]:
        stop.check()
        sections += _section(workspace, source, language, _bytes(workspace, source))
    return _result(sections, len(sources) - _MOST_FILES)


def _bytes(workspace: Workspace, path: Path) -> bytes:
    """Empty for private, oversized or deleted files: the directory's other files still count."""
    try:
        data = read_bytes(workspace, workspace.readable(str(path)))
    except (PathRefused, ToolError):
        return b""
    return data if len(data) <= _MOST_BYTES else b""


def _section(workspace: Workspace, path: Path, language: str, data: bytes) -> Iterator[str]:
    file = decode(data)
    if file is None:
        return
    lines = lines_of(file.text)
    rows = [
        f"{one.start}--{one.end} | {_cut(lines[one.start - 1])}"
        for one in definitions(file.text.encode("utf-8", "replace"), language)
        if one.end - one.start + 1 >= _LEAST_LINES
    ]
    if rows:
        yield "\n".join([f"# {workspace.relative(path)}", *rows])


def _cut(line: str) -> str:
    return line if len(line) <= _MOST_COLUMNS else line[:_MOST_COLUMNS] + "…"


def _result(sections: list[str], more: int) -> ToolResult:
    text = "\n\n".join(sections) or "No source code definitions found."
    count = sum(section.count("\n") for section in sections)
    if len(text) > MOST_CHARS:
        text = f"{text[:MOST_CHARS]}\n… cut after {MOST_CHARS} characters; name one of the files."
    if more > 0:
        text += f"\n\n… {more} more files weren't looked at; name those that matter."
    return ToolResult(status="success", content=clean(text), meta={"summary": counted(count, "definition")})


TOOL = Tool(
    name="list_code_definition_names",
    description="Lists what a source file defines, or all source files right in a directory: functions, classes,"
    f" methods and their like of at least {_LEAST_LINES} lines, each as 'FIRST--LAST | its first line'. Use it to see"
    " what there is before reading.",
    args=ListCodeDefinitionNamesArgs,
    risk="read",
    summary=lambda args: f"List definitions in {args.path}",
    run=run,
    paths=lambda args: [(args.path, "read")],
    installed=installed,
)
