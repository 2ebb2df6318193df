"""confirm_present: believe "no changes needed" only if the file shows it."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import SubjectIn, strings, subject
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps


class ConfirmPresentOut(TypedDict, total=False):
    label: str
    edit_status: str
    error: dict[str, str]


async def confirm_present(state: SubjectIn, runtime: Runtime[Deps]) -> ConfirmPresentOut:
    """The new string must stand in the file; a deletion can't be seen there, so it is never confirmed."""
    deps = runtime.context
    found = await subject(deps, state)
    new = strings(deps, state).new
    if isinstance(found, ToolResult) or not new.strip() or new not in found.text:
        return {"label": "absent"}
    return {"label": "present", "edit_status": "already_applied", "error": {}}
