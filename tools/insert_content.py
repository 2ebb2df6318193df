"""insert_content: insert whole lines before a line of a file, or at its end."""

import asyncio
from collections.abc import Mapping

from pydantic import Field

from interlock.state.calls import ToolError
from interlock.state.tooling import Args, FileChange, FilePath, Tool, ToolContext
from interlock.tools._content import TextFile, lines_of
from interlock.tools._opening import Target, open_target
from interlock.tools.matcher.edit import omission, omission_message, with_final_newline


class InsertContentArgs(Args):
    path: FilePath
    line: int = Field(
        ge=0,
        description="The line, counted from 1, before which the content comes. 0: it comes at the end of the file.",
    )
    content: str = Field(min_length=1, description="The lines to put in, with their indentation.")


async def plan(args: InsertContentArgs, context: ToolContext, earlier: Mapping[str, bytes]) -> FileChange:
    return await asyncio.to_thread(_plan, args, context, earlier)


def _plan(args: InsertContentArgs, context: ToolContext, earlier: Mapping[str, bytes]) -> FileChange:
    target = open_target(args.path, context, earlier)
    file = target.file or TextFile("")
    if line := omission(args.content, allowed=file.text):
        raise ToolError("omission_placeholder", omission_message(line))
    new = args.content.replace("\r\n", "\n").removesuffix("\n") + "\n"
    count = len(lines_of(new))
    what = f"{count} {'line' if count == 1 else 'lines'}"
    if target.file is None:
        if args.line > 1:
            raise ToolError("file_not_found", f"No file {target.shown!r}; to create it give line 0 or 1.")
        return target.change(target.encode(new), f"Created {target.shown!r}: {what}.")
    at = _offset(target, file, args.line)
    # A last line without a line break gets one, but the file still ends as before.
    text = "\n" + new if at == len(file.text) and file.text and not file.text.endswith("\n") else new
    raw = with_final_newline(file, file.splice([(at, at, text)]))
    where = f"before line {args.line}" if args.line else "at its end"
    return target.change(target.encode(raw), f"Put {what} into {target.shown!r} {where}.")


def _offset(target: Target, file: TextFile, line: int) -> int:
    lines = lines_of(file.text) if file.text else []
    if line == 0 or line == len(lines) + 1:
        return len(file.text)
    if line > len(lines):
        has = f"{target.shown!r} has {len(lines)} {'line' if len(lines) == 1 else 'lines'}"
        raise ToolError(
            "invalid_tool_params", f"{has}, so nothing can be put before line {line}; 0 is its end."
        )
    return sum(len(before) + 1 for before in lines[: line - 1])


TOOL = Tool(
    name="insert_content",
    description="Puts new lines into a file before the given line, or at its end, and changes nothing else: for"
    " imports, functions, list entries. Line endings, encoding and mode of the file are kept.",
    args=InsertContentArgs,
    risk="write",
    summary=lambda args: f"Insert into {args.path}" + (f" before line {args.line}" if args.line else ""),
    plan=plan,
    paths=lambda args: [(args.path, "write")],
)
