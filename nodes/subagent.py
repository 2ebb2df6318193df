"""subagent: one sub-agent: its own turns and tools until it submits its result."""

import json
import re
from collections.abc import Mapping
from typing import Literal, cast

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.main import append_program_message, turn_end_label
from interlock.prompts import render_prompt
from interlock.state.calls import CallKey, CallView, ToolResult, call_key_from_state
from interlock.state.conversation import initial_conversation_state, refusals_from_state
from interlock.state.deps import Deps, Transcript
from interlock.state.errors import RunError
from interlock.state.events import AgentEnd, AgentStart, ErrorEvent
from interlock.state.messages import Message, ToolCall
from interlock.state.node import node
from interlock.state.subagent import (
    GRACE_S,
    INVESTIGATOR,
    AgentDefinition,
    AgentInstance,
    Scratchpad,
    SubagentState,
)
from interlock.state.text import format_count
from interlock.tools.control import UpdateScratchpadArgs

_SLOT = re.compile(r"\{\{(\w+)\}\}|\$\{(\w+)\}")
_FRESH: SubagentState = {
    "max_session_turns": -1,
    "approved_plan": False,
    "scratchpad": {"checklist": [], "questions": [], "findings": [], "ignored_paths": []},
    "sent_back": False,
    "recovering": False,
    "reason": "",
    "answer": "",
    "stop": "",
    "status": "running",
}


@node(
    reads=("message", "index", "attempt", "agent"),
    writes=(*initial_conversation_state(), *_FRESH, "call", "agent", "head", "prompt", "model", "max_turns"),
)
async def start(state: SubagentState, runtime: Runtime[Deps]) -> SubagentState:
    """Freezes the definition: editing its file doesn't affect an open run."""
    deps = runtime.context
    key = call_key_from_state(state)
    call = deps.journal.read_call(key)
    definition = _with_usable_model(_require_agent_definition(deps, call), runtime)
    agent = deps.agents.record_instance(
        _new_agent_instance(deps, state.get("agent", ""), key, call, definition)
    )
    own = deps.agents.deps_for_agent(agent)
    query = Message(
        role="user",
        origin="agent",
        content=_fill_template(definition.query, _template_inputs_from_call(call)),
    )
    task = " ".join(query.text.split())[:200]
    runtime.stream_writer(AgentStart(agent=own.info.agent, name=definition.name, task=task))
    return {
        **initial_conversation_state(),
        **_FRESH,
        "max_turns": definition.max_turns,
        "call": str(key),
        "agent": agent,
        "head": "",
        "prompt": own.transcript.append("", [query]),
        "model": _resolve_agent_model(own, definition),
        "sticky_model": _resolve_agent_model(own, definition),
    }


def _require_agent_definition(deps: Deps, call: CallView) -> AgentDefinition:
    name = call.name if call.name == INVESTIGATOR else str(call.args.get("agent_name", ""))
    definition = deps.agents.find_agent_definition(name)
    if definition is None:
        raise RunError(f"Agent {name!r} was removed after the call was decided. Put it back, then resume.")
    return definition


def _with_usable_model(definition: AgentDefinition, runtime: Runtime[Deps]) -> AgentDefinition:
    """The agent, with the run's model in place of one that can't be asked here, and a warning that says so."""
    if not (problem := runtime.context.agents.find_model_problem(definition)):
        return definition
    text = f"Agent {definition.name!r} names the model {definition.model!r}, so it uses the run's: {problem}"
    runtime.stream_writer(ErrorEvent(severity="warning", message=text))
    return definition.model_copy(update={"model": "inherit"})


def _new_agent_instance(
    deps: Deps, parent: str, key: CallKey, call: CallView, definition: AgentDefinition
) -> AgentInstance:
    again = f"~{key.attempt}" if key.attempt > 1 else ""
    own = f"{definition.name}:{call.id}{again}"
    return AgentInstance(
        path=f"{deps.info.agent}/{own}" if deps.info.agent else own,
        parent=parent,
        call=str(key),
        depth=(deps.agents.load_instance(parent).depth if parent else deps.settings.agents.max_depth) - 1,
        definition=definition,
    )


def _template_inputs_from_call(call: CallView) -> Mapping[str, JsonValue]:
    """The call's inputs; its prompt or objective fills both `prompt` and `objective`."""
    inputs = call.args.get("inputs")
    prompt = call.args.get("prompt") or call.args.get("objective") or ""
    return {"prompt": prompt, "objective": prompt, **(inputs if isinstance(inputs, dict) else {})}


def _fill_template(template: str, inputs: Mapping[str, JsonValue]) -> str:
    """Single pass: slots inside values aren't filled. Slots without an input become empty."""
    return _SLOT.sub(lambda found: str(inputs.get(found[1] or found[2], "")), template)


def _resolve_agent_model(deps: Deps, definition: AgentDefinition) -> str:
    if definition.model != "inherit":
        return deps.models.resolve_alias(definition.model)
    return deps.models.resolve_role_model(definition.role)


@node(
    reads=("agent", "turn_no", "recovering"),
    writes=("reason", "time_left_s"),
    labels=("turn", "time or turns are up"),
    nondeterministic=True,
)
async def check_end(state: SubagentState, runtime: Runtime[Deps]) -> SubagentState:
    """Only the work of its nodes counts as time, not waits for a person."""
    if state["recovering"]:
        return {"label": "time or turns are up"}
    definition = runtime.context.agents.load_instance(state["agent"]).definition
    left = agent_seconds_left(runtime, state["agent"])
    if left <= 0:
        return {"label": "time or turns are up", "reason": "timeout"}
    if state["turn_no"] >= definition.max_turns:
        return {"label": "time or turns are up", "reason": "max_turns"}
    return {"label": "turn", "time_left_s": left}


@node(
    reads=("head", "reply", "stop", "stopped_by", "scratchpad", "sent_back", "recovering"),
    writes=("reason", "answer", "error"),
    labels=("complete", "open questions", "go on", "aborted"),
)
async def check_result(state: SubagentState, runtime: Runtime[Deps]) -> SubagentState:
    """A valid `complete_task` ends it; open questions send it back, once, and never in the last turn."""
    if successful_calls_in_reply(runtime.context.transcript, state["head"], state["reply"], "complete_task"):
        if state["scratchpad"]["questions"] and not state["sent_back"] and not state["recovering"]:
            return {"label": "open questions", "answer": state["reply"]}
        return {"label": "complete", "reason": "goal", "answer": state["reply"]}
    if stop := state.get("stop"):
        if state.get("stopped_by") == "hook":
            return {"label": "aborted", "error": {"type": "stopped_by_hook", "message": stop}}
        return {"label": "aborted", "reason": "aborted"}
    return {"label": "go on"}


@node(reads=("head", "scratchpad"), writes=("head", "sent_back"))
async def send_back(state: SubagentState, runtime: Runtime[Deps]) -> SubagentState:
    questions = "\n".join(f"- {question}" for question in state["scratchpad"]["questions"])
    text = render_prompt("subagent/open_questions", questions=questions)
    return {"head": append_program_message(runtime, state["head"], text), "sent_back": True}


@node(reads=("head", "reply", "scratchpad"), writes=("scratchpad",))
async def take_notes(state: SubagentState, runtime: Runtime[Deps]) -> SubagentState:
    """Lists replace the old ones; findings and ignored paths are appended."""
    calls = successful_calls_in_reply(
        runtime.context.transcript, state["head"], state["reply"], "update_scratchpad"
    )
    if not calls:
        return {}
    pad = state["scratchpad"]
    for call in calls:
        args = {key: value for key, value in call.args.items() if key in UpdateScratchpadArgs.model_fields}
        new = UpdateScratchpadArgs.model_validate(args)
        pad = Scratchpad(
            checklist=pad["checklist"] if new.checklist is None else new.checklist,
            questions=pad["questions"] if new.questions is None else new.questions,
            findings=_append_new_items(pad["findings"], new.findings),
            ignored_paths=_append_new_items(pad["ignored_paths"], new.ignored_paths),
        )
    return {"scratchpad": pad}


def _append_new_items(known: list[str], new: list[str]) -> list[str]:
    return [*known, *(item for item in new if item not in known)]


@node(
    reads=("agent", "head", "turn_no", "recovering", "reason", "error"),
    writes=("head", "reason", "recovering", "max_turns", "time_left_s", "error"),
    labels=("last chance", "give up"),
    group="errors",
)
async def recover(state: SubagentState, runtime: Runtime[Deps]) -> SubagentState:
    """Exactly one recovery turn: the second time, give up."""
    if state["recovering"]:
        return {"label": "give up"}
    deps = runtime.context
    timed_out = (state.get("error") or {}).get("type") == "timeout"
    reason = state["reason"] or ("timeout" if timed_out else "no_complete_task")
    text = render_prompt(
        "subagent/last_chance",
        why=end_reason_sentence(reason, deps.agents.load_instance(state["agent"]).definition),
    )
    return {
        "label": "last chance",
        "head": append_program_message(runtime, state["head"], text),
        "reason": reason,
        "recovering": True,
        "max_turns": state["turn_no"] + 1,
        "time_left_s": GRACE_S,
        "error": {},
    }


@node(
    reads=("agent", "call", "head", "reason", "answer", "turn_no", "refused", "error", "scratchpad"),
    writes=("status", "label"),
    nondeterministic=True,
)
async def finish(state: SubagentState, runtime: Runtime[Deps]) -> SubagentState:
    """The result is the call's journal row, where the parent reads it."""
    deps = runtime.context
    definition = deps.agents.load_instance(state["agent"]).definition
    error = state.get("error") or {}
    by_hook = error.get("type") == "stopped_by_hook"
    reason = "aborted" if by_hook else state["reason"] or "error"
    message = end_reason_sentence(reason, definition, error.get("message", ""))
    result = _report_or_findings(deps.transcript, state)
    seconds = round(agent_seconds_spent(runtime), 3)
    meta: dict[str, JsonValue] = {
        "agent": deps.info.agent,
        "reason": reason,
        "why": message,
        "turns": state["turn_no"],
        "duration_ms": round(seconds * 1000),
        "result": result,
        "summary": f"{reason} · {format_count(state['turn_no'], 'turn')}",
    }
    if reason in ("error", "aborted") and error:
        meta["error"] = {**error}
    if refused := refusals_from_state(state):
        meta["refused"] = cast(JsonValue, refused)
    key = CallKey.parse(state["call"])
    text = render_prompt("subagent/finished", agent=repr(definition.name), reason=message, result=result)
    kind = None if reason == "goal" else {"type": f"agent_{reason}", "message": message}
    if by_hook:  # stops the whole run, not only its agent
        kind = {"type": "stopped_by_hook", "message": message}
    outcome = ToolResult(
        status="error" if kind else "success",
        content=text,
        error=kind,
        meta=meta,
        stop=message if by_hook else None,
    )
    deps.journal.record_result(key, deps.journal.read_call(key), outcome)
    runtime.stream_writer(AgentEnd(reason=reason, turns=state["turn_no"], duration_s=seconds))
    return {"status": reason, "label": "done"}


def _report_or_findings(transcript: Transcript, state: SubagentState) -> str:
    """The report or text of the last valid `complete_task`; else partial findings."""
    if state.get("answer"):
        # Includes a report that was sent back and never resubmitted.
        calls = transcript.read_message(state["answer"]).tool_calls
        args = next(c.args for c in calls if c.name == "complete_task")
        report = args.get("report")
        if report is None:
            return str(args.get("result", ""))
        return json.dumps(report, ensure_ascii=False, indent=2)
    return _partial_findings(transcript, state)


def _partial_findings(transcript: Transcript, state: SubagentState) -> str:
    pad = state["scratchpad"]
    lists = (("Findings", pad["findings"]), ("Open questions", pad["questions"]))
    parts = [f"{title}:\n" + "\n".join(f"- {line}" for line in lines) for title, lines in lists if lines]
    answers = [m.text.strip() for m in transcript.read(state["head"]) if m.role == "assistant"]
    return "\n\n".join([*parts, *[text for text in answers if text][-1:]]) or "Nothing was found."


def route_after_turn(state: SubagentState) -> Literal["calls", "no call", "first loop", "failed"]:
    """A turn that timed out isn't a failure: its findings still count."""
    match turn_end_label(state["turn_status"]):
        case "ok":
            return "no call"
        case "calls" | "first loop" as other:
            return other
        case _:
            return "no call" if (state.get("error") or {}).get("type") == "timeout" else "failed"


def successful_calls_in_reply(transcript: Transcript, head: str, reply: str, name: str) -> list[ToolCall]:
    """Successful calls of `name` in the reply (their answers come later in the chain), in order."""
    asked = transcript.read_message(reply).tool_calls
    answers = map(transcript.read_message, transcript.record_ids(head, len(asked)))
    good = {m.tool_call_id for m in answers if m.role == "tool" and m.status == "success"}
    return [call for call in asked if call.name == name and call.id in good]


def agent_seconds_spent(runtime: Runtime[Deps]) -> float:
    """Seconds of work by all nodes of the agent's graph and its subgraphs."""
    info = runtime.execution_info
    parts = info.checkpoint_ns.split("|") if info else []
    inside = max((i for i, part in enumerate(parts) if part.startswith("subagent:")), default=-1)
    return runtime.context.steps.working_seconds("|".join(parts[: inside + 1]))


def agent_seconds_left(runtime: Runtime[Deps], agent: str) -> float:
    """Seconds the agent with this id has left; not positive: time is up."""
    return runtime.context.agents.load_instance(agent).definition.max_time_minutes * 60 - agent_seconds_spent(
        runtime
    )


def end_reason_sentence(reason: str, definition: AgentDefinition, error: str = "") -> str:
    """The end reason as one sentence, for models and people."""
    texts = {
        "goal": "It completed its task.",
        "max_turns": f"The limit of {format_count(definition.max_turns, 'turn')} is reached.",
        "timeout": f"The limit of {definition.max_time_minutes:g} minutes is reached.",
        "no_complete_task": "It stopped calling tools without calling complete_task.",
        "aborted": error or "A person stopped it.",
    }
    return texts.get(reason) or f"It failed: {error or 'no reason is known'}"
