"""shown: what programs see of Interlock's own workflows: their conversation as messages, requests as interrupts."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from interlock.engine.client.requests import answer_choices, brief_arguments
from interlock.state.calls import ApprovalRequest
from interlock.state.messages import Message


def messages(found: Iterable[tuple[str, Message]]) -> list[dict[str, Any]]:
    """What a person and the model said, and the calls, as LangChain's messages, each with its record's id."""
    ours = [(name, one) for name, one in found if one.role != "system" and one.origin in (None, "person")]
    return [_message(name, one) for name, one in ours]


def _message(name: str, message: Message) -> dict[str, Any]:
    kinds = {"user": "human", "assistant": "ai", "tool": "tool", "system": "system"}
    made: dict[str, Any] = {
        "type": kinds.get(message.role, message.role),
        "id": name,
        "content": message.text,
        "additional_kwargs": {},
        "response_metadata": {},
        "name": message.name,
    }
    if message.role == "assistant":
        calls = [
            {"type": "tool_call", "id": c.id, "name": c.name, "args": c.args} for c in message.tool_calls
        ]
        made |= {"tool_calls": calls, "invalid_tool_calls": []}
    if message.role == "tool":
        made |= {
            "tool_call_id": message.tool_call_id,
            "status": "success" if message.status == "success" else "error",
        }
    return made


def payload(name: str, request: ApprovalRequest) -> dict[str, Any]:
    """What a request asks, readable by people and programs."""
    return {
        "request": name,
        "kind": request.kind,
        "question": f"{request.call.name} {brief_arguments(request.call.args)}".strip(),
        "tool": request.call.name,
        "args": request.call.args,
        "reason": request.reason,
        "preview": request.preview,
        "choices": [*request.choices],
        "questions": [*request.questions],
    }


def response_schema(request: ApprovalRequest) -> dict[str, Any]:
    """The JSON Schema of the answers that a request takes; each choice is named with what it does and needs."""
    call = {"tool_name": request.call.name, "args": request.call.args}
    known = {way.choice: way.label for way in answer_choices(cast(Any, {**request.model_dump(), **call}))}
    meant = [f"{choice}: {known[choice]}" if choice in known else choice for choice in request.choices]
    fields: dict[str, Any] = {
        "choice": {"type": "string", "enum": [*request.choices], "description": ". ".join(meant) + "."}
    }
    about = "The request that this answers: refused if another one waits by then."
    fields["request"] = {"type": "string", "description": about}
    if "reject" in request.choices and request.kind != "outcome":
        fields["feedback"] = {
            "type": "string",
            "description": "With reject: why, in words that the model reads.",
        }
    if "modify" in request.choices:
        fields["args"] = {"type": "object", "description": "With modify: all arguments to run with."}
    if request.kind == "outcome":
        about = "The same in one word: redo stands for proceed_once, skip for reject."
        fields["text"] = {"type": "string", "enum": ["redo", "skip"], "description": about}
    if request.kind == "question":
        fields["text"] = {"type": "string", "description": "With proceed_once: the answer."}
    either = (
        {"anyOf": [{"required": ["choice"]}, {"required": ["text"]}]}
        if "text" in fields
        else {"required": ["choice"]}
    )
    return {"type": "object", "properties": fields, **either, "additionalProperties": False}


def prompt_in(given: Mapping[str, Any]) -> str:
    """The text of what a person said last, in an input that has messages."""
    found: Any = given.get("messages")
    last = cast(Any, found[-1] if isinstance(found, list) and found else found)
    content: Any = cast("dict[str, Any]", last).get("content") if isinstance(last, dict) else last
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        return "".join(
            str(cast("dict[str, Any]", one).get("text", "")) for one in parts if isinstance(one, dict)
        )
    return str(content or "")
