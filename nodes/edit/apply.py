"""apply: make the new text and its diff."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import Strings, Subject, SubjectIn, problem, strings, subject
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps
from interlock.state.messages import Message, ToolCall
from interlock.tools._diff import unified_diff
from interlock.tools._text import line_at
from interlock.tools.matcher.edit import Placed, Problem, placed_or_repaired, raw_after


class ApplyIn(SubjectIn, total=False):
    error: dict[str, str]


class ApplyOut(TypedDict, total=False):
    label: str
    strategy: str
    occurrences: int
    result: str
    error: dict[str, str]
    edit_status: str


async def apply(state: ApplyIn, runtime: Runtime[Deps]) -> ApplyOut:
    """Nothing is written here: a file's text goes on to `write`, content and proposals are kept as they are."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult) or found.file is None:
        return _refused(state, "external_change", "The file is gone since it was read. Look where it went.")
    tried = strings(deps, state)
    at = await asyncio.to_thread(
        placed_or_repaired, found.shown, found.text, tried.old, tried.new, tried.expected
    )
    if isinstance(at, Problem):
        return _refused(state, at.code, at.message)
    made = await asyncio.to_thread(_made, found, at)
    if isinstance(made, Problem):
        return _refused(state, made.code, made.message)
    kept = await asyncio.to_thread(_kept, found, tried, at, made) if state.get("source") else None
    return {
        "label": "write" if state.get("source") == "file" else "keep",
        "strategy": at.strategy,
        "occurrences": len(at.spans),
        "result": deps.transcript.append("", [kept]) if kept else "",
        "error": {},
        "edit_status": "" if state.get("source") == "file" else "applied",
    }


def _made(found: Subject, at: Placed) -> bytes | Problem:
    assert found.file is not None
    try:
        after = found.file.encode(raw_after(found.file, at.spans))
    except UnicodeEncodeError as error:
        text = f"{found.shown!r} is {found.file.encoding}, which can't hold {error.object[error.start]!r}."
        return Problem("not_text", text)
    if after == found.data:
        line = line_at(found.text, at.spans[0].start)
        text = f"{found.shown!r} would be the same as before: what the edit would give stands at line {line}."
        return Problem("no_change", text)
    return after


def _kept(found: Subject, tried: Strings, at: Placed, after: bytes) -> Message:
    """The result as a record of a chain of its own; as arguments, for those are kept word for word."""
    assert found.file is not None
    first = at.spans[0]
    exact = at.strategy == "exact" and not at.repaired
    kept = {
        "new_content": after[len(found.file.mark) :].decode(found.file.encoding),
        "diff": unified_diff(found.shown, found.data, after),
        "old_string": tried.old if exact else found.text[first.start : first.end],
        "new_string": tried.new if exact else first.new,
    }
    call = ToolCall.model_validate({"id": "0.0", "name": "replace", "args": kept})
    return Message(role="assistant", tool_calls=(call,))


def _refused(state: ApplyIn, code: str, message: str) -> ApplyOut:
    """With strings of a helper's the first error stays."""
    error = state["error"] if state.get("helper") and state.get("error") else problem(code, message)
    return {"label": "refused", "error": error}
