"""write_to_file: create a file or replace its whole text; the task loop's name."""

from dataclasses import replace

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from interlock.state.tooling import Args, FilePath
from interlock.tools import write_file

_FENCE = "```"


class WriteToFileArgs(Args):
    path: FilePath
    content: str = Field(
        description="The whole text that the file shall have, every line written out: never a placeholder such as"
        " '... rest of code ...'. Line endings, encoding and mode of an existing file are kept."
    )
    line_count: SkipJsonSchema[int | str | None] = Field(
        default=None, description="Lines of the content; other programs ask for it, here it isn't needed."
    )


def _whole(args: WriteToFileArgs) -> write_file.WriteFileArgs:
    return write_file.WriteFileArgs(file_path=args.path, content=_unfenced(args.content, args.path))


def _unfenced(text: str, path: str) -> str:
    """Strip fences around a whole file, as added by models that answer in Markdown; Markdown files keep them."""
    lines = text.strip().splitlines()
    whole = len(lines) > 1 and lines[0].startswith(_FENCE) and lines[-1] == _FENCE
    if not whole or path.lower().endswith((".md", ".mdx", ".markdown")):
        return text
    return "".join(f"{line}\n" for line in lines[1:-1])


TOOL = replace(
    write_file.TOOL.renamed("write_to_file", WriteToFileArgs, _whole),
    description="Writes a whole text file: creates it, with its directories, or replaces all of its text."
    " To change a part of an existing file use a tool that edits parts, which is shorter and safer.",
)
