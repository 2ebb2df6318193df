"""doors: from a workflow's input to its graph's state, and from its state to its output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue, ValidationError

from interlock.engine.compress_door import enter_compress, leave_compress
from interlock.engine.edit_door import enter_edit, leave_edit
from interlock.engine.outside import Outside, append_history, read_history, to_message
from interlock.engine.plan_door import enter_plan, leave_plan
from interlock.engine.subagent_door import (
    enter_investigate,
    enter_subagent,
    leave_investigate,
    leave_subagent,
)
from interlock.engine.summarize_door import enter_summarize, leave_summarize
from interlock.engine.turning_door import (
    enter_loop_check,
    enter_next_speaker,
    enter_route,
    leave_loop_check,
    leave_next_speaker,
    leave_route,
)
from interlock.state.calls import CallView
from interlock.state.errors import InputError
from interlock.state.main import MainInput, MainOutput
from interlock.state.messages import Message
from interlock.state.run import ErrorInfo, WorkflowInput, WorkflowOutput
from interlock.state.text import clean_json
from interlock.state.tools import ToolsInput, ToolsOutput
from interlock.state.turn import TurnInput, TurnOutput


def enter_main(given: MainInput, out: Outside) -> dict[str, Any]:
    prompt = Message(role="user", origin="person", content=str(clean_json(given.prompt)))
    return {
        **follow_up(prompt, out),
        "head": append_history(out.transcript, given.history),
        "session_turns": 0,
        "last_prompt_tokens": 0,
    }


def follow_up(prompt: Message | None, out: Outside) -> dict[str, Any]:
    """State that starts a further prompt of `main`; without one the conversation goes on where it ended.

    A prompt that a hook refused isn't in the conversation: it still waits in the state, and is tried again.
    """
    return {
        **({"prompt": out.transcript.append("", [prompt])} if prompt else {}),
        "approval_mode": out.approval_mode,
        "model": out.model,
        "max_turns": out.limits.max_turns,
        "max_session_turns": out.limits.max_session_turns,
    }


def leave_main(values: Mapping[str, Any], out: Outside) -> MainOutput:
    error = _error(values)
    answered = values.get("status") in ("done", "stopped_by_hook")  # a hook may stop after the answer
    # What the model says of a refusal is its answer, too, although the run failed for it.
    answered = answered or (error is not None and error.type == "refused")
    return MainOutput(
        status=values.get("status", "running"),
        response=_answer(out.transcript.read(values["head"])) if answered else "",
        history=read_history(out.transcript, values.get("head", "")),
        stats=out.stats(),
        error=error,
    )


def _answer(history: list[Message]) -> str:
    """The last answer, with those before it that the model was told to go on from."""
    texts: list[str] = []
    for message in reversed(history):
        if message.role == "assistant" and not message.tool_calls:
            texts.append(message.text)
        elif message.origin != "continue":
            break
    return "\n\n".join(text for text in reversed(texts) if text)


def enter_turn(given: TurnInput, out: Outside) -> dict[str, Any]:
    head = append_history(out.transcript, given.history)
    request = to_message("request", {"role": "user", "origin": "person", "content": given.request})
    return {
        "head": out.transcript.append(head, [request]),
        "model": out.model,
        "approval_mode": out.approval_mode,
        "max_turns": out.limits.max_turns,
        "max_session_turns": out.limits.max_session_turns,
        "turn_no": given.turn_no - 1,
        "session_turns": given.session_turns,
        "sticky_model": given.sticky_model or "",
        "last_prompt_tokens": given.last_prompt_tokens,
    }


def leave_turn(values: Mapping[str, Any], out: Outside) -> TurnOutput:
    reply = values.get("reply")
    message = out.transcript.message(reply) if reply else Message(role="assistant")
    return TurnOutput(
        status=values["turn_status"],
        text=message.text,
        tool_calls=[c.model_dump(mode="json", exclude_none=True) for c in message.tool_calls],
        finish_reason=values.get("finish_reason") or None,
        model=values.get("sticky_model") or out.model,
        usage=out.usage(reply).model_dump() if reply else {},
        history=read_history(out.transcript, values["head"]),
        error=_error(values),
    )


def enter_tools(given: ToolsInput, out: Outside) -> dict[str, Any]:
    head = append_history(out.transcript, given.history)
    calls: list[dict[str, JsonValue]] = []
    for index, call in enumerate(given.calls):
        calls.append({"id": call.get("id") or f"0.{index}", **{k: v for k, v in call.items() if k != "id"}})
    message = to_message("calls", {"role": "assistant", "tool_calls": calls})
    return {"head": out.transcript.append(head, [message]), "approval_mode": out.approval_mode}


def leave_tools(values: Mapping[str, Any], out: Outside) -> ToolsOutput:
    """One response for each call, in the calls' order."""
    from interlock.nodes.tools_results import as_sent, recorded_of

    verdicts = {**values["decided"], **values.get("finished", {})}
    responses: list[dict[str, Any]] = []
    for index in range(values["count"]):
        call, result = recorded_of(out.journal, values["message"], index, verdicts[str(index)])
        sent = as_sent(out.transcript, verdicts[str(index)], result)
        responses.append(_response(call, sent.model_dump(mode="json", exclude_none=True)))
    return ToolsOutput(responses=responses, stop=values.get("stop") or None)


def _response(call: CallView, result: dict[str, Any]) -> dict[str, Any]:
    result.pop("stop", None)
    return {"id": call.id, "name": call.name, **result}


def _error(values: Mapping[str, Any]) -> ErrorInfo | None:
    error = values.get("error")
    return ErrorInfo(**error) if error else None


@dataclass(frozen=True)
class Door:
    """A workflow's two doors."""

    enter: Callable[[Any, Outside], dict[str, Any]]
    leave: Callable[[Mapping[str, Any], Outside], WorkflowOutput]


DOORS: dict[str, Door] = {
    "main": Door(enter_main, leave_main),
    "turn": Door(enter_turn, leave_turn),
    "route": Door(enter_route, leave_route),
    "loop-check": Door(enter_loop_check, leave_loop_check),
    "next-speaker": Door(enter_next_speaker, leave_next_speaker),
    "tools": Door(enter_tools, leave_tools),
    "edit": Door(enter_edit, leave_edit),
    "compress": Door(enter_compress, leave_compress),
    "summarize": Door(enter_summarize, leave_summarize),
    "plan": Door(enter_plan, leave_plan),
    "subagent": Door(enter_subagent, leave_subagent),
    "investigate": Door(enter_investigate, leave_investigate),
}


def validated(model: type[WorkflowInput], given: Mapping[str, Any]) -> WorkflowInput:
    """The typed input. Raises `InputError` naming the field and what was expected."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "input"
        known = ", ".join(model.model_fields)
        hint = f" {model.__name__} has: {known}." if first["type"] == "extra_forbidden" else ""
        raise InputError(f"Input field {place!r}: {first['msg']}.{hint}", place) from error
