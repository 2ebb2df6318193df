"""save_memory: add one fact or rule to a memory file of the project."""

import asyncio
from collections.abc import Mapping
from pathlib import PurePath

from pydantic import Field

from interlock.state.calls import ToolError
from interlock.state.file_names import quote_name
from interlock.state.tooling import Args, FileChange, Tool, ToolContext
from interlock.tools.workspace_files import WriteTarget, prepare_write_target

HEADING = "## Remembered"
"""Heading above facts added by this tool or by `interlock memory add`."""


class SaveMemoryArgs(Args):
    fact: str = Field(min_length=1, description="The fact or rule, in one sentence that needs no context.")
    file_path: str = Field(
        min_length=1,
        description="Memory file to add it to, such as GEMINI.md; created if missing.",
    )


async def plan_memory_change(
    args: SaveMemoryArgs, context: ToolContext, earlier_contents: Mapping[str, bytes]
) -> FileChange:
    names = context.settings.context.file_names
    if PurePath(args.file_path).name not in names:
        raise ToolError(
            "invalid_tool_params",
            f"{quote_name(args.file_path)} isn't a memory file; expected {' or '.join(names)}.",
        )
    return _plan_fact_addition(
        await asyncio.to_thread(prepare_write_target, args.file_path, context, earlier_contents), args.fact
    )


def _plan_fact_addition(target: WriteTarget, fact: str) -> FileChange:
    text = add_fact_to_text(target.file.text if target.file else "", fact)
    added = f"Added to {quote_name(target.display_path)}. It is read when the next conversation begins."
    if target.file is None:
        return target.to_new_file(text).model_copy(update={"message": added})
    after = target.encode(target.file.convert_line_endings(text))
    if after == target.before:
        return target.to_file_change(
            after, f"{quote_name(target.display_path)} holds this already; nothing had to be written."
        )
    return target.to_file_change(after, added)


def add_fact_to_text(text: str, fact: str) -> str:
    """Return the memory file's text with one more line under its heading; unchanged if it has the line already."""
    line = "- " + " ".join(fact.split())
    lines = text.split("\n")
    if line in lines:
        return text
    if HEADING not in lines:
        start = [text.rstrip("\n"), ""] if text.strip() else []
        return "\n".join([*start, HEADING, "", line, ""])
    at = lines.index(HEADING) + 1
    while at < len(lines) and not lines[at].startswith("#"):
        at += 1
    while not lines[at - 1].strip():
        at -= 1
    return "\n".join([*lines[:at], *([""] if lines[at - 1] == HEADING else []), line, *lines[at:]]) + (
        "" if at < len(lines) else "\n"
    )


TOOL = Tool(
    name="save_memory",
    description="Adds one lasting fact or rule to a memory file of the project, which every later conversation begins"
    " with. Use it only when the user asks to remember something, or states a rule that outlives the task; never for"
    " what the files show anyway.",
    args=SaveMemoryArgs,
    risk="write",
    summary=lambda args: f"Remember in {args.file_path}: {args.fact}",
    plan=plan_memory_change,
    paths=lambda args: [(args.file_path, "write")],
)
