"""write: put the new text on the disk, once."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import SubjectIn, as_tried, problem
from interlock.state.calls import CallKey, CallView, ToolResult, failure
from interlock.state.deps import Deps
from interlock.state.journal import JournalRow
from interlock.state.toolset import ToolRun


class WriteIn(SubjectIn, total=False):
    seen: str


class WriteOut(TypedDict, total=False):
    edit_status: str
    error: dict[str, str]


async def write(state: WriteIn, runtime: Runtime[Deps]) -> WriteOut:
    """The intent with its hashes first (`engine.md` 13); a file that isn't as `read` saw it is left alone."""
    deps = runtime.context
    key, call = as_tried(deps, state)
    row = deps.journal.find(key, call)
    result = row.result if row is not None and row.state == "done" else None
    if result is None:
        result = await _done(runtime, key, call, row, state["seen"])
        deps.journal.finish(key, call, result)
    if result.status == "success":
        return {"edit_status": "applied" if state["seen"] else "created", "error": {}}
    error = result.error or {"type": "io_error", "message": result.content}
    return {"edit_status": "failed", "error": problem(error["type"], error["message"])}


async def _done(
    runtime: Runtime[Deps], key: CallKey, call: CallView, row: JournalRow | None, seen: str
) -> ToolResult:
    deps = runtime.context
    planned = row.planned if row is not None and row.state == "intent" else None
    if planned is None:
        computed = await deps.toolset.plan(call)
        if isinstance(computed, ToolResult):
            return computed
        if (computed.before or "") != seen:
            return _changed(call)
        deps.journal.intend(key, call, computed)
        planned = computed
    return await deps.toolset.run(ToolRun(key=key, call=call, emit=runtime.stream_writer, planned=planned))


def _changed(call: CallView) -> ToolResult:
    path = call.args["file_path"]
    return failure(
        "external_change",
        f"{path!r} changed on disk while it was edited. Read it again; nothing was written.",
    )
