"""write_file: create a file or replace its whole text; insert lines before one of its lines, or at its end."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from interlock.state.calls import ToolError
from interlock.state.file_names import quote_name
from interlock.state.text import format_count
from interlock.state.tooling import Args, FileChange, FilePath, Tool, ToolContext
from interlock.tools.file_content import TextFile, split_lines
from interlock.tools.matcher.edit import apply_spans, find_omission_error, match_final_newline
from interlock.tools.matcher.windows import Span
from interlock.tools.workspace_files import WriteTarget, prepare_write_target

Content = Annotated[
    str,
    Field(
        description="The complete new text of the file, with every line written out: never a placeholder such as"
        " '... rest of code ...'. Line endings, encoding and mode of an existing file are kept."
    ),
]


class WriteFileArgs(Args):
    file_path: FilePath
    content: Content


def _plan_change(
    args: WriteFileArgs, context: ToolContext, earlier_contents: Mapping[str, bytes]
) -> FileChange:
    target = prepare_write_target(args.file_path, context, earlier_contents)
    if omitted := find_omission_error(args.content, existing_text=target.file.text if target.file else ""):
        raise ToolError("omission_placeholder", omitted)
    if target.file is None:
        return target.to_new_file(args.content)
    content = args.content.removeprefix("\ufeff") if target.file.mark else args.content
    whole = Span(0, len(target.file.text), content)
    after = target.encode(apply_spans(target.file, (whole,), keep_final_newline=False))
    target.refuse_unseen_overwrite(after)
    return target.to_file_change(after, _result_message(target, after, args.content))


def _result_message(target: WriteTarget, after: bytes, content: str) -> str:
    if after == target.before:
        return (
            f"{quote_name(target.display_path)} has exactly this content already; nothing had to be written."
        )
    return f"Overwrote {quote_name(target.display_path)}: {format_count(len(split_lines(content)), 'line')}."


TOOL = Tool(
    name="write_file",
    description="Writes a whole text file: creates it, with its directories, or replaces all of its text."
    " To change a part of an existing file use replace, which is shorter and safer.",
    args=WriteFileArgs,
    risk="write",
    summary=lambda args: f"Write {args.file_path}",
    plan=partial(asyncio.to_thread, _plan_change),
    paths=lambda args: [(args.file_path, "write")],
)


_FENCE = "```"


class WriteToFileArgs(Args):
    path: FilePath
    content: Content
    line_count: SkipJsonSchema[int | str | None] = Field(
        default=None, description="Lines of the content; other programs ask for it, here it isn't needed."
    )


def _to_write_file_args(args: WriteToFileArgs) -> WriteFileArgs:
    return WriteFileArgs(file_path=args.path, content=_strip_code_fence(args.content, args.path))


def _strip_code_fence(text: str, path: str) -> str:
    """Return a text without fences around the whole, as added by models that answer in Markdown; Markdown files keep
    them."""
    lines = text.strip().splitlines()
    whole = len(lines) > 1 and lines[0].startswith(_FENCE) and lines[-1] == _FENCE
    if not whole or path.lower().endswith((".md", ".mdx", ".markdown")):
        return text
    return "".join(f"{line}\n" for line in lines[1:-1])


WRITE_TO_FILE = replace(
    TOOL.make_renamed_copy("write_to_file", WriteToFileArgs, _to_write_file_args),
    description="Writes a whole text file: creates it, with its directories, or replaces all of its text."
    " To change a part of an existing file use a tool that edits parts, which is shorter and safer.",
)


class InsertContentArgs(Args):
    path: FilePath
    line: int = Field(
        ge=0,
        description="The line, counted from 1, before which the content comes. 0: it comes at the end of the file.",
    )
    content: str = Field(min_length=1, description="The lines to insert, with their indentation.")


def _plan_insertion(
    args: InsertContentArgs, context: ToolContext, earlier_contents: Mapping[str, bytes]
) -> FileChange:
    target = prepare_write_target(args.path, context, earlier_contents)
    file = target.file or TextFile("")
    if omitted := find_omission_error(args.content, existing_text=file.text):
        raise ToolError("omission_placeholder", omitted)
    new = args.content.replace("\r\n", "\n").removesuffix("\n") + "\n"
    what = format_count(len(split_lines(new)), "line")
    if target.file is None:
        if args.line > 1:
            raise ToolError(
                "file_not_found",
                f"No file {quote_name(target.display_path)}; to create it give line 0 or 1.",
            )
        return target.to_new_file(new)
    at = _insertion_offset(target, file, args.line)
    # A last line without a line break gets one, but the file still ends as before.
    text = "\n" + new if at == len(file.text) and file.text and not file.text.endswith("\n") else new
    raw = match_final_newline(file, file.replace_spans([(at, at, text)]))
    if args.line and target.must_match_exactly:  # its lines have other numbers, or unknown ones
        target.refuse_unseen_overwrite(target.encode(raw))
    where = f"before line {args.line}" if args.line else "at its end"
    return target.to_file_change(
        target.encode(raw), f"Put {what} into {quote_name(target.display_path)} {where}."
    )


def _insertion_offset(target: WriteTarget, file: TextFile, line: int) -> int:
    """Return the offset before a line. Raise `ToolError` if the file has no such line."""
    lines = split_lines(file.text) if file.text else []
    if line == 0 or line == len(lines) + 1:
        return len(file.text)
    if line > len(lines):
        has = f"{quote_name(target.display_path)} has {format_count(len(lines), 'line')}"
        raise ToolError(
            "invalid_tool_params", f"{has}, so nothing can be put before line {line}; 0 is its end."
        )
    return sum(len(before) + 1 for before in lines[: line - 1])


INSERT_CONTENT = Tool(
    name="insert_content",
    description="Inserts lines into a file before the given line, or at its end, and changes nothing else: for"
    " imports, functions, list entries. Line endings, encoding and mode of the file are kept.",
    args=InsertContentArgs,
    risk="write",
    summary=lambda args: f"Insert into {args.path}" + (f" before line {args.line}" if args.line else ""),
    plan=partial(asyncio.to_thread, _plan_insertion),
    paths=lambda args: [(args.path, "write")],
)
