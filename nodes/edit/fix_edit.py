"""fix_edit: ask a helper model for strings that do what was meant."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._ask import ask, shown_text
from interlock.nodes.edit._subject import SubjectIn, key_of, strings, subject
from interlock.prompts import load
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps
from interlock.state.edit import FixAnswer

_MOST = 1_000
"""Characters of an explanation that are kept."""


class FixEditIn(SubjectIn, total=False):
    error: dict[str, str]


class FixEditOut(TypedDict, total=False):
    label: str
    helper: str
    helper_role: str
    explanation: str


async def fix_edit(state: FixEditIn, runtime: Runtime[Deps]) -> FixEditOut:
    """Asked once, with the error and the text as it is now."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "no answer"}
    tried = strings(deps, state)
    prompt = load("edit/fix_edit").parts(
        file=found.shown,
        instruction=str(deps.journal.call(key_of(state)).args.get("instruction") or "not given"),
        content=await asyncio.to_thread(shown_text, found.text, tried.old),
        old_string=tried.old,
        new_string=tried.new,
        error=state["error"]["message"],
    )
    asked = await ask(runtime, state, "edit_fixer", FixAnswer, prompt)
    if asked is None:
        return {"label": "no answer"}
    record, answer = asked
    said = answer.explanation[:_MOST]
    if answer.noChangesRequired:
        return {"label": "no changes needed", "explanation": said}
    return {"label": "changed strings", "helper": record, "helper_role": "edit_fixer", "explanation": said}
