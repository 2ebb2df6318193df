"""check_external_change: has somebody else written the file since the model saw it?"""

from hashlib import sha256

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import SubjectIn, problem, subject
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps
from interlock.state.edit import GRACE_S


class CheckExternalChangeIn(SubjectIn, total=False):
    known_hash: str
    last_edit_at: float
    seen: str
    error: dict[str, str]


class CheckExternalChangeOut(TypedDict, total=False):
    label: str
    error: dict[str, str]


async def check_external_change(
    state: CheckExternalChangeIn, runtime: Runtime[Deps]
) -> CheckExternalChangeOut:
    """By the hash that the model's text had; without one, by a file time more than 2 s after the last edit."""
    found = await subject(runtime.context, state)
    if not isinstance(found, ToolResult):
        known, last = state.get("known_hash"), state.get("last_edit_at")
        now = sha256(found.data).hexdigest() if found.file else ""
        moved = found.modified_at > last + GRACE_S if last and not known else False
        if now == state["seen"] and (not known or now == known) and not moved:
            return {"label": "same"}
    text = "The file changed on disk since it was last read. Read it again, and edit what is there now."
    return {
        "label": "changed",
        "error": problem("external_change", f"{text} ({state['error']['message']})"),
    }
