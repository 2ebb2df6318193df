"""edit: one replacement in a text: matched without a model if possible, with one if necessary, else refused.

A match is applied, and written if rules or a person allow it; if the file changed while a person was asked, it is read
again. What isn't found, after one question to each helper model, ends in `fail`.
"""

from collections.abc import Mapping
from typing import Any, cast

from langgraph.graph import END, START

from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.edit import (
    apply,
    check_external_change,
    check_rights,
    confirm_present,
    correct_target,
    fail,
    fix_edit,
    match,
    match_again,
    read,
    repair,
    take_approval,
    write,
)
from interlock.nodes.requests import await_person
from interlock.state.calls import CallKey
from interlock.state.edit import EditError, EditInput, EditOutput, EditState
from interlock.state.messages import Message, ToolCall
from interlock.state.text import clean_json
from interlock.state.workflow import WorkflowContext


def build() -> Graph:
    g = Graph("edit", EditState)
    g.nodes(read, match, repair, correct_target, check_external_change, fix_edit, confirm_present)
    g.nodes(match_again, apply, check_rights, take_approval, write, fail)
    g.node("await_approval", await_person)

    g.edge(START, "read")
    g.by_label("read", {"match": "match", "create": "check_rights", "refused": "fail"})
    g.by_label("match", {"right count": "apply", "wrong count": "fail", "none": "repair"})
    repaired = {"found": "apply", "not found": "correct_target", "not for a model": "fail"}
    g.by_label("repair", repaired)
    targeted = {"found": "apply", "not found": "check_external_change"}
    g.by_label("correct_target", targeted)
    g.by_label("check_external_change", {"changed": "fail", "same": "fix_edit"})
    fixed = {"no changes needed": "confirm_present", "changed strings": "match_again", "no answer": "fail"}
    g.by_label("fix_edit", fixed)
    g.by_label("confirm_present", {"present": END, "absent": "fail"})
    g.by_label("match_again", {"found": "apply", "not found": "fail"})
    g.by_label("apply", {"write": "check_rights", "keep": END, "refused": "fail"})
    g.by_label("check_rights", {"allowed": "write", "asked": "await_approval", "denied": "fail"})
    g.edge("await_approval", "take_approval")
    g.by_label("take_approval", {"proceed": "write", "changed since": "read", "refused": "fail"})
    g.edge("write", END)
    g.edge("fail", END)
    return g


_STRINGS = ("instruction", "old_string", "new_string", "expected_replacements")


def initial_state(input: EditInput, context: WorkflowContext) -> dict[str, Any]:
    """Store content and strings as a chain record; the state holds its id."""
    source = "content" if input.file_path is None else "file"
    subject = {"content": input.content} if input.file_path is None else {"file_path": input.file_path}
    args = cast(dict[str, Any], clean_json({**subject, **{name: getattr(input, name) for name in _STRINGS}}))
    call = ToolCall(id="0.0", name="replace", args=args)
    return {
        "message": context.transcript.append("", [Message(role="assistant", tool_calls=(call,))]),
        "index": 0,
        "attempt": 1,
        "source": source,
        "known_hash": input.known_hash or "",
        "last_edit_at": input.last_edit_at or 0.0,
        "approval_mode": context.approval_mode,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> EditOutput:
    args = context.transcript.read_message(values["message"]).tool_calls[0].args
    status = values["edit_status"]
    made: dict[str, Any] = {"old_string": args["old_string"], "new_string": args["new_string"]}
    if status == "created":
        made |= {"new_content": args["new_string"], "diff": _edit_diff(values, context)}
    elif status == "applied":
        made = dict(context.transcript.read_message(values["result"]).tool_calls[0].args)
    error = values.get("error")
    return EditOutput(
        status=status,
        strategy=values.get("strategy") if status == "applied" else None,
        occurrences=values.get("occurrences", 0) if status == "applied" else 0,
        explanation=values.get("explanation") or None,
        error=EditError(**error) if error else None,
        **made,
    )


def _edit_diff(values: Mapping[str, Any], context: WorkflowContext) -> str:
    key = CallKey(message=values["message"], index=values["index"], attempt=values["attempt"])
    row = context.journal.find_row(key, context.journal.read_call(key))
    return row.planned.diff if row and row.planned else ""


PIPELINE = Pipeline(
    "edit",
    build,
    EditInput,
    EditOutput,
    enter=initial_state,
    leave=build_output,
    outcome="edit_status",
)
