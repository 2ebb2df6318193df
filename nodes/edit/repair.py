"""repair: mend both strings alike, without a model."""

import asyncio
from pathlib import PurePath

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import SubjectIn, strings, subject
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps
from interlock.tools.matcher.edit import repaired

_EXACT_ONLY = frozenset({".json", ".jsonc", ".json5", ".ipynb"})
"""Files that a model never mends: a slip in them breaks the whole file (gemini-cli: these)."""


class RepairOut(TypedDict, total=False):
    label: str


async def repair(state: SubjectIn, runtime: Runtime[Deps]) -> RepairOut:
    """Over-escaped strings and blanks around them; then it is the models' turn, but for structured files."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "not for a model"}
    tried = strings(deps, state)
    if await asyncio.to_thread(repaired, found.text, tried.old, tried.new, tried.expected):
        return {"label": "found"}
    structured = PurePath(found.path).suffix.lower() in _EXACT_ONLY
    return {"label": "not for a model" if structured else "not found"}
