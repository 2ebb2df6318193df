"""write_file: create a file or replace its whole text."""

import asyncio
from collections.abc import Mapping

from pydantic import Field

from interlock.state.calls import ToolError
from interlock.state.tooling import Args, FileChange, FilePath, Tool, ToolContext
from interlock.tools._content import lines_of
from interlock.tools._opening import Target, open_target
from interlock.tools.matcher.edit import omission, omission_message


class WriteFileArgs(Args):
    file_path: FilePath
    content: str = Field(
        description="The whole text that the file shall have, every line written out: never a placeholder such as"
        " '... rest of code ...'. Line endings, encoding and mode of an existing file are kept."
    )


async def plan(args: WriteFileArgs, context: ToolContext, earlier: Mapping[str, bytes]) -> FileChange:
    return await asyncio.to_thread(_plan, args, context, earlier)


def _plan(args: WriteFileArgs, context: ToolContext, earlier: Mapping[str, bytes]) -> FileChange:
    target = open_target(args.file_path, context, earlier)
    if line := omission(args.content, allowed=target.file.text if target.file else ""):
        raise ToolError("omission_placeholder", omission_message(line))
    after = target.encode(target.file.endings(args.content) if target.file else args.content)
    return target.change(after, _message(target, after, args.content))


def _message(target: Target, after: bytes, content: str) -> str:
    if after == target.before:
        return f"{target.shown!r} has exactly this content already; nothing had to be written."
    count = len(lines_of(content))
    done = "Created" if target.before is None else "Overwrote"
    return f"{done} {target.shown!r}: {count} {'line' if count == 1 else 'lines'}."


TOOL = Tool(
    name="write_file",
    description="Writes a whole text file: creates it, with its directories, or replaces all of its text."
    " To change a part of an existing file use replace, which is shorter and safer.",
    args=WriteFileArgs,
    risk="write",
    summary=lambda args: f"Write {args.file_path}",
    plan=plan,
    paths=lambda args: [(args.file_path, "write")],
)
