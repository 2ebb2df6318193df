"""match: find where the old string stands, from exactly to nearly."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import SubjectIn, problem, strings, subject
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps
from interlock.tools.matcher.edit import Problem, placed


class MatchOut(TypedDict, total=False):
    label: str
    error: dict[str, str]


async def match(state: SubjectIn, runtime: Runtime[Deps]) -> MatchOut:
    """The first strategy that finds anything decides; too many or too few are an error, never a choice."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "wrong count", "error": problem("external_change", found.content)}
    tried = strings(deps, state)
    at = await asyncio.to_thread(placed, found.shown, found.text, tried.old, tried.new, tried.expected)
    if not isinstance(at, Problem):
        return {"label": "right count"}
    label = "none" if at.code == "no_occurrence" else "wrong count"
    return {"label": label, "error": problem(at.code, at.message)}
