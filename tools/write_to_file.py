"""write_to_file: create a file or replace its whole text; the task loop's name."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from interlock.state.tooling import Args, FileChange, ToolContext
from interlock.tools import write_file

_FENCE = "```"


class WriteToFileArgs(Args):
    path: str = Field(
        min_length=1, description="Path of the file, relative to the workspace or absolute inside it."
    )
    content: str = Field(
        description="The whole text that the file shall have, every line written out: never a placeholder such as"
        " '... rest of code ...'. Line endings, encoding and mode of an existing file are kept."
    )
    line_count: SkipJsonSchema[int | str | None] = Field(
        default=None, description="Lines of the content; other programs ask for it, here it isn't needed."
    )


async def plan(args: WriteToFileArgs, context: ToolContext, earlier: Mapping[str, bytes]) -> FileChange:
    text = _unfenced(args.content, args.path)
    return await write_file.plan(
        write_file.WriteFileArgs(file_path=args.path, content=text), context, earlier
    )


def _unfenced(text: str, path: str) -> str:
    """Strip fences around a whole file, as added by models that answer in Markdown; Markdown files keep them."""
    lines = text.strip().splitlines()
    whole = len(lines) > 1 and lines[0].startswith(_FENCE) and lines[-1] == _FENCE
    if not whole or path.lower().endswith((".md", ".mdx", ".markdown")):
        return text
    return "".join(f"{line}\n" for line in lines[1:-1])


def _paths(args: WriteToFileArgs) -> list[tuple[str, Literal["read", "write"]]]:
    return [(args.path, "write")]


def _summary(args: WriteToFileArgs) -> str:
    return f"Write {args.path}"


TOOL = replace(
    write_file.TOOL,
    name="write_to_file",
    description="Writes a whole text file: creates it, with its directories, or replaces all of its text."
    " To change a part of an existing file use a tool that edits parts, which is shorter and safer.",
    args=WriteToFileArgs,
    summary=_summary,
    plan=plan,
    paths=_paths,
)
