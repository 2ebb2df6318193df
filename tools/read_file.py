"""read_file: read a text file or part of it; a picture or PDF."""

import asyncio

from pydantic import Field, model_validator

from interlock.state.calls import ToolError, ToolResult
from interlock.state.text import format_count, replace_surrogates
from interlock.state.tooling import Args, FilePath, Tool, ToolContext
from interlock.state.workspace import Workspace
from interlock.tools.file_content import (
    binary_file_notice,
    cut_page,
    decode_text_file,
    media_placeholder,
    omitted_lines_heading,
    split_lines,
    to_media_part,
)
from interlock.tools.workspace_files import read_file_bytes


class ReadFileArgs(Args):
    file_path: FilePath
    start_line: int | None = Field(
        default=None, ge=1, description="First line to read, counted from 1. Default 1."
    )
    end_line: int | None = Field(
        default=None,
        ge=1,
        description="Last line to read, itself included. Default: 2,000 lines from start_line on.",
    )

    @model_validator(mode="after")
    def _require_line_order(self) -> "ReadFileArgs":
        if self.end_line is not None and self.end_line < (self.start_line or 1):
            raise ValueError(
                f"end_line is {self.end_line}, expected at least start_line ({self.start_line or 1})"
            )
        return self


async def run_read_file(args: ReadFileArgs, context: ToolContext) -> ToolResult:
    return await asyncio.to_thread(_read_path, args, context.workspace)


def _read_path(args: ReadFileArgs, workspace: Workspace) -> ToolResult:
    path = workspace.readable(args.file_path)
    data = read_file_bytes(workspace, path)
    shown = workspace.relative(path)
    if media := to_media_part(shown, data):
        if isinstance(media, str):
            raise ToolError("not_an_image", media.strip("[]"))
        line = media_placeholder(shown, media, len(data))
        return ToolResult(status="success", content=line, data=(media,), meta={"summary": media.mime_type})
    file = decode_text_file(data)
    if file is None:
        return ToolResult(
            status="success", content=binary_file_notice(shown, len(data)), meta={"summary": "binary"}
        )
    if not data or not file.raw:
        return ToolResult(status="success", content=f"[{shown!r} is empty.]", meta={"summary": "empty"})
    return _format_text_page(args, shown, file.text)


def _format_text_page(args: ReadFileArgs, shown: str, text: str) -> ToolResult:
    start = args.start_line or 1
    total = len(split_lines(text))
    if start > total:
        raise ToolError(
            "invalid_tool_params", f"{shown!r} has {format_count(total, 'line')}; start_line is {start}."
        )
    part = cut_page(text, start, args.end_line)
    summary = format_count(total, "line") if part.is_whole else f"lines {part.first}-{part.last} of {total}"
    return ToolResult(
        status="success",
        content=replace_surrogates(omitted_lines_heading(part) + part.text),
        meta={"summary": summary},
    )


def _summarize_call(args: ReadFileArgs) -> str:
    if args.start_line is None and args.end_line is None:
        return f"Read {args.file_path}"
    return f"Read {args.file_path}, lines {args.start_line or 1}-{args.end_line or ''}"


TOOL = Tool(
    name="read_file",
    description="Reads a text file. Shows at most 2,000 lines unless end_line asks for more, and 2,000 characters of"
    " a line; a first line in square brackets says what was left out and how to go on. Pictures and PDFs are shown as"
    " they are; of other binary files only kind and size are told.",
    args=ReadFileArgs,
    risk="read",
    summary=_summarize_call,
    run=run_read_file,
    paths=lambda args: [(args.file_path, "read")],
)
