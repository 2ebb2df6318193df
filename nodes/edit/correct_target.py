"""correct_target: ask a helper model which text of the file was meant."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._ask import ask, shown_text
from interlock.nodes.edit._subject import SubjectIn, strings, subject
from interlock.prompts import load
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps
from interlock.state.edit import TargetAnswer
from interlock.tools.matcher.edit import Problem, placed


class CorrectTargetOut(TypedDict, total=False):
    label: str
    helper: str
    helper_role: str


async def correct_target(state: SubjectIn, runtime: Runtime[Deps]) -> CorrectTargetOut:
    """Its answer must stand in the file exactly, as often as was expected; else it counts for nothing."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "not found"}
    tried = strings(deps, state)
    prompt = load("edit/correct_target").parts(
        file=found.shown,
        content=await asyncio.to_thread(shown_text, found.text, tried.old),
        old_string=tried.old,
        new_string=tried.new,
    )
    asked = await ask(runtime, state, "edit_target", TargetAnswer, prompt)
    if asked is None:
        return {"label": "not found"}
    record, answer = asked
    snippet = answer.corrected_target_snippet.replace("\r\n", "\n")
    at = await asyncio.to_thread(
        placed, found.shown, found.text, snippet, tried.new, tried.expected, only_exact=True
    )
    if isinstance(at, Problem) or snippet == tried.new:
        return {"label": "not found"}
    return {"label": "found", "helper": record, "helper_role": "edit_target"}
