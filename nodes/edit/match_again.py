"""match_again: find the fixer's strings."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import SubjectIn, strings, subject
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps
from interlock.tools.matcher.edit import Problem, placed, unusable


class MatchAgainOut(TypedDict, total=False):
    label: str


async def match_again(state: SubjectIn, runtime: Runtime[Deps]) -> MatchAgainOut:
    """All strategies once more; when they fail, the first error is what is told."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "not found"}
    tried = strings(deps, state)
    if not tried.old or unusable(tried.old, tried.new):
        return {"label": "not found"}
    at = await asyncio.to_thread(placed, found.shown, found.text, tried.old, tried.new, tried.expected)
    return {"label": "not found" if isinstance(at, Problem) else "found"}
