"""start: open a sub-agent's own chain, under its own rules, from the call that asks for it."""

import re
from collections.abc import Mapping

from langgraph.runtime import Runtime
from pydantic import JsonValue
from typing_extensions import TypedDict

from interlock.prompts import render
from interlock.state.calls import CallKey, CallView
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import AgentStart
from interlock.state.investigate import INVESTIGATOR
from interlock.state.loop_check import FIRST_CHECK, INTERVAL
from interlock.state.messages import Message
from interlock.state.subagent import AgentCard, AgentDefinition, Scratchpad

_SLOT = re.compile(r"\{\{(\w+)\}\}|\$\{(\w+)\}")


class StartIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    agent: str


class StartOut(TypedDict, total=False):
    call: str
    agent: str
    head: str
    model: str
    max_turns: int
    max_session_turns: int
    turn_no: int
    session_turns: int
    sticky_model: str
    last_prompt_tokens: int
    compress_failed_at: int
    todos: str
    approved_plan: bool
    unavailable: dict[str, str]
    loop_keys: list[str]
    loop_count: int
    loop_interval: int
    loop_next: int
    loop_found: dict[str, str]
    scratchpad: Scratchpad
    sent_back: bool
    recovering: bool
    reason: str
    answer: str
    error: dict[str, str]
    stop: str
    turn_status: str
    status: str


async def start(state: StartIn, runtime: Runtime[Deps]) -> StartOut:
    """The definition is recorded as it is now; an open run doesn't notice when its file changes."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    definition = _definition(deps, call)
    agent = deps.agents.open(_card(deps, state.get("agent", ""), key, call, definition))
    own = deps.agents.scope(agent)
    opening = await _opening(own, definition, call)
    task = " ".join(opening[-1].text.split())[:200]
    runtime.stream_writer(AgentStart(agent=own.info.agent, name=definition.name, task=task))
    return {
        **_fresh(definition),
        "call": str(key),
        "agent": agent,
        "head": own.transcript.append("", opening),
        "model": _model(own, definition),
        "sticky_model": _model(own, definition),
    }


def _fresh(definition: AgentDefinition) -> StartOut:
    return {
        "max_turns": definition.max_turns,
        "max_session_turns": -1,
        "turn_no": 0,
        "session_turns": 0,
        "last_prompt_tokens": 0,
        "compress_failed_at": 0,
        "todos": "",
        "approved_plan": False,
        "unavailable": {},
        "loop_keys": [],
        "loop_count": 0,
        "loop_interval": INTERVAL,
        "loop_next": FIRST_CHECK,
        "loop_found": {},
        "scratchpad": {"checklist": [], "questions": [], "findings": [], "ignored_paths": []},
        "sent_back": False,
        "recovering": False,
        "reason": "",
        "answer": "",
        "error": {},
        "stop": "",
        "turn_status": "",
        "status": "running",
    }


def _definition(deps: Deps, call: CallView) -> AgentDefinition:
    name = call.name if call.name == INVESTIGATOR else str(call.args.get("agent_name", ""))
    definition = deps.agents.definition(name)
    if definition is None:
        raise RunError(
            f"Agent {name!r} was there when the call was decided, and is gone. Resume when it is back."
        )
    return definition


def _card(deps: Deps, parent: str, key: CallKey, call: CallView, definition: AgentDefinition) -> AgentCard:
    again = f"~{key.attempt}" if key.attempt > 1 else ""
    own = f"{definition.name}:{call.id}{again}"
    return AgentCard(
        path=f"{deps.info.agent}/{own}" if deps.info.agent else own,
        parent=parent,
        call=str(key),
        depth=(deps.agents.card(parent).depth if parent else deps.settings.agents.max_depth) - 1,
        definition=definition,
    )


async def _opening(deps: Deps, definition: AgentDefinition, call: CallView) -> list[Message]:
    contract = render(
        "subagent/contract",
        agent=definition.name,
        turns=str(definition.max_turns),
        minutes=f"{definition.max_time_minutes:g}",
    )
    system, *context = await deps.context.opening(deps.toolset.declarations(), definition.system_prompt)
    return [
        Message(role="system", content=f"{system.text}\n\n{contract}"),
        *context,
        Message(role="user", origin="agent", content=_filled(definition.query, _inputs(call))),
    ]


def _inputs(call: CallView) -> Mapping[str, JsonValue]:
    """A prompt stands for the input of an agent that has just one, too."""
    inputs = call.args.get("inputs")
    prompt = call.args.get("prompt") or call.args.get("objective") or ""
    return {"prompt": prompt, "objective": prompt, **(inputs if isinstance(inputs, dict) else {})}


def _filled(template: str, inputs: Mapping[str, JsonValue]) -> str:
    """One pass: a value that holds a slot stays as it is. A slot that no input fills is left empty."""
    return _SLOT.sub(lambda found: str(inputs.get(found[1] or found[2], "")), template)


def _model(deps: Deps, definition: AgentDefinition) -> str:
    if definition.model != "inherit":
        return deps.models.resolve(definition.model)
    return deps.models.of_role(definition.role)
