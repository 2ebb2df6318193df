"""read: look at the file and at the strings of the edit."""

from hashlib import sha256

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import Strings, Subject, SubjectIn, problem, strings, subject
from interlock.state.calls import ToolResult
from interlock.state.deps import Deps
from interlock.tools.matcher.edit import unusable

_CODES = {
    "path_refused": "outside_workspace",
    "is_directory": "not_text",
    "not_a_file": "not_text",
    "not_a_directory": "file_not_found",
}
"""What the file system says → the error codes of an edit."""


class ReadOut(TypedDict, total=False):
    label: str
    seen: str
    modified_at: float
    error: dict[str, str]
    helper: str
    helper_role: str


async def read(state: SubjectIn, runtime: Runtime[Deps]) -> ReadOut:
    """A missing file and an empty old string create it; whatever can't be edited is refused."""
    deps = runtime.context
    fresh: ReadOut = {"helper": "", "helper_role": ""}
    plain: SubjectIn = {**state, "helper": ""}
    found = await subject(deps, plain)
    if isinstance(found, ToolResult):
        error = found.error or {"type": "not_text", "message": found.content}
        code = _CODES.get(error["type"], error["type"])
        return {**fresh, "label": "refused", "error": problem(code, error["message"])}
    seen = sha256(found.data).hexdigest() if found.file else ""
    fresh = {**fresh, "seen": seen, "modified_at": found.modified_at}
    tried = strings(deps, plain)
    refusal = _refusal(found, tried)
    if refusal:
        return {**fresh, "label": "refused", "error": refusal}
    return {**fresh, "label": "create" if found.file is None else "match", "error": {}}


def _refusal(found: Subject, tried: Strings) -> dict[str, str] | None:
    if found.file is None and tried.old:
        return problem(
            "file_not_found",
            f"No file {found.shown!r}. Find it with glob; to create it leave old_string empty.",
        )
    if wrong := unusable(tried.old, tried.new):
        return problem(wrong.code, wrong.message)
    if found.file is not None and not tried.old:
        text = f"{found.shown!r} exists; an empty old_string only creates new files. Name a text in it."
        return problem("create_existing", text)
    return None
