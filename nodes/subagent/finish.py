"""finish: answer the parent's call with what came of the agent."""

import json
from typing import cast

from langgraph.runtime import Runtime
from pydantic import JsonValue
from typing_extensions import TypedDict

from interlock.nodes.subagent._time import spent_s
from interlock.nodes.subagent._why import why
from interlock.prompts import render
from interlock.state.calls import CallKey, ToolResult
from interlock.state.deps import Deps, Transcript
from interlock.state.events import AgentEnd
from interlock.state.refused import Refusals, refusals_in
from interlock.state.subagent import Scratchpad


class FinishIn(TypedDict, total=False):
    agent: str
    call: str
    head: str
    reason: str
    answer: str
    turn_no: int
    refused: Refusals
    error: dict[str, str]
    scratchpad: Scratchpad


class FinishOut(TypedDict, total=False):
    status: str
    label: str


async def finish(state: FinishIn, runtime: Runtime[Deps]) -> FinishOut:
    """The row of the call is the result; whoever asked reads it there."""
    deps = runtime.context
    definition = deps.agents.card(state["agent"]).definition
    error = state.get("error") or {}
    by_hook = error.get("type") == "stopped_by_hook"
    reason = "aborted" if by_hook else state["reason"] or "error"
    told = why(reason, definition, error.get("message", ""))
    result = _result(deps.transcript, state)
    seconds = round(spent_s(runtime), 3)
    meta: dict[str, JsonValue] = {
        "agent": deps.info.agent,
        "reason": reason,
        "why": told,
        "turns": state["turn_no"],
        "duration_ms": round(seconds * 1000),
        "result": result,
        "summary": f"{reason} · {state['turn_no']} turns",
    }
    if refused := refusals_in(state):
        meta["refused"] = cast(JsonValue, refused)
    key = CallKey.parse(state["call"])
    text = render("subagent/finished", agent=repr(definition.name), reason=told, result=result)
    kind = None if reason == "goal" else {"type": f"agent_{reason}", "message": told}
    if by_hook:  # it stops the whole run, not only its agent
        kind = {"type": "stopped_by_hook", "message": told}
    outcome = ToolResult(
        status="error" if kind else "success",
        content=text,
        error=kind,
        meta=meta,
        stop=told if by_hook else None,
    )
    deps.journal.finish(key, deps.journal.call(key), outcome)
    runtime.stream_writer(AgentEnd(reason=reason, turns=state["turn_no"], duration_s=seconds))
    return {"status": reason, "label": "done"}


def _result(transcript: Transcript, state: FinishIn) -> str:
    """The report or text of the last valid `complete_task`; else what was found on the way."""
    if state.get("answer"):
        # Also of a report that was sent back and never came again.
        calls = transcript.message(state["answer"]).tool_calls
        args = next(c.args for c in calls if c.name == "complete_task")
        report = args.get("report")
        if report is None:
            return str(args.get("result", ""))
        return json.dumps(report, ensure_ascii=False, indent=2)
    return _partial(transcript, state)


def _partial(transcript: Transcript, state: FinishIn) -> str:
    pad = state["scratchpad"]
    parts = [
        f"{title}:\n" + "\n".join(f"- {line}" for line in lines) for title, lines in _lists(pad) if lines
    ]
    said = [
        m.text.strip() for m in transcript.read(state["head"]) if m.role == "assistant" and m.text.strip()
    ]
    return "\n\n".join([*parts, *said[-1:]]) or "Nothing was found."


def _lists(pad: Scratchpad) -> list[tuple[str, list[str]]]:
    return [("Findings", pad["findings"]), ("Open questions", pad["questions"])]
