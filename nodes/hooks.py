"""hooks: firing hooks from nodes; nodes around a run, and nodes that stop for a person."""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, Literal

from langgraph.runtime import Runtime
from langgraph.types import interrupt
from pydantic import JsonValue
from typing_extensions import TypedDict

from interlock.nodes.requests import write_and_emit_request
from interlock.prompts import load_prompt
from interlock.state.calls import ApprovalRequest, CallView
from interlock.state.deps import Deps
from interlock.state.errors import HookError
from interlock.state.events import AgentBlocked, AgentStopped, ErrorEvent
from interlock.state.hooks import NO_REASON, HookOutcome, HookWait
from interlock.state.messages import Message
from interlock.state.node import node, require_task_id
from interlock.state.run import HookEvent, RunChannels, is_hooked

FIRING = ("hook_event", "hook_key", "approval")
"""Keys written by a node whose hooks haven't answered, identifying the firing; its label is then `unknown`."""
_REASON_CHARS = 2000
"""Characters of a reason kept in state, which every checkpoint repeats."""
_NAME_CHARS = 80
"""Characters of a hook's name, if that is its command."""
Node = Callable[..., Awaitable[Any]]


class HooksUnansweredError(Exception):
    """The hooks haven't answered: a person is asked, then the node runs again with the same `key`."""

    def __init__(self, event: HookEvent, key: str, request: str) -> None:
        super().__init__(event, key, request)
        self.event, self.key, self.request = event, key, request


class PromptEnd(TypedDict):
    """Keys written when a hook ends the prompt."""

    label: Literal["stopped", "blocked"]
    turn_status: Literal["stopped_by_hook", "blocked_by_hook"]
    error: dict[str, str]


def hook_node(
    *,
    reads: tuple[str, ...],
    writes: tuple[str, ...] = (),
    labels: tuple[str, ...],
    moves: tuple[str, ...] = (),
) -> Callable[[Node], Node]:
    """Declare a node that fires hooks. If they don't answer, it writes the keys of `FIRING` and the label `unknown`."""

    def mark(function: Node) -> Node:
        @wraps(function)
        async def fire(state: Any, runtime: Runtime[Deps]) -> Any:
            try:
                update = await function(state, runtime)
            except HooksUnansweredError as still_open:
                waits = {"hook_event": still_open.event, "hook_key": still_open.key}
                return {**waits, "approval": still_open.request, "label": "unknown"}
            return {"hook_event": "", "hook_key": "", **update}

        keys = ("hook_key", *reads)
        written, known = (*FIRING, *writes), ("unknown", *labels)
        return node(reads=keys, writes=written, labels=known, group="hooks", moves=moves)(fire)

    return mark


class SessionHooks(RunChannels, total=False):
    """State of a root graph besides its workflow's."""

    session: str
    """`startup`, or `resume` for a further prompt; absent without hooks."""
    session_event: str
    """The event whose hooks a kill interrupted, while a person decides on the outcome; empty: none."""
    session_key: str
    """Key of that firing."""
    session_request: str
    """Key of the request about that firing."""


class SessionHooksInConversation(SessionHooks, total=False):
    head: str


_SESSION = ("session_event", "session_key", "session_request")


@node(reads=("session", "session_key"), writes=_SESSION, group="hooks")
async def session_start(state: SessionHooks, runtime: Runtime[Deps]) -> SessionHooks:
    """Raises `HookError` if a hook refuses: nothing has run yet. A resumed run fires the hooks again."""
    update, _ = await _fire_session_start_hooks(state, runtime)
    return update


@node(reads=("session", "session_key", "head"), writes=(*_SESSION, "head"), group="hooks")
async def session_start_in_conversation(
    state: SessionHooksInConversation, runtime: Runtime[Deps]
) -> SessionHooksInConversation:
    """Add hooks' context to the conversation; one ending with open calls accepts nothing but their answers."""
    transcript = runtime.context.transcript
    fired_update, context = await _fire_session_start_hooks(state, runtime)
    update: SessionHooksInConversation = {**fired_update}
    if context and not (state["head"] and transcript.read_message(state["head"]).tool_calls):
        update["head"] = transcript.append(state["head"], [hook_context_message(context)])
    return update


@node(reads=("session", "session_key"), writes=_SESSION, group="hooks")
async def session_end(state: SessionHooks, runtime: Runtime[Deps]) -> SessionHooks:
    update, _ = await _fire_session_hooks("SessionEnd", {"reason": "exit"}, "exit", state, runtime)
    return update


@node(reads=("session_request",), writes=("session_request",), group="hooks")
async def ask_session(state: SessionHooks, runtime: Runtime[Deps]) -> SessionHooks:
    write_hook_outcome_request(state["session_request"], runtime)
    return {"session_request": state["session_request"]}


@node(reads=("session_request",), writes=("session_request",), group="hooks")
async def await_session(state: SessionHooks) -> SessionHooks:
    interrupt(state["session_request"])
    return {"session_request": ""}


@node(reads=("approval",), writes=("approval",), group="hooks")
async def ask_hook(state: HookWait, runtime: Runtime[Deps]) -> HookWait:
    """Ask about the firing: `await_person` stops for the answer, and the hook's node reads it by firing again."""
    write_hook_outcome_request(state["approval"], runtime)
    return {"approval": state["approval"]}


def route_session_start(state: RunChannels) -> Literal["", "session"]:
    return "session" if is_hooked(state, "SessionStart") else ""


def route_session_end(state: RunChannels) -> Literal["", "session"]:
    return "session" if is_hooked(state, "SessionEnd") else ""


def route_after_session_hooks(state: SessionHooks) -> Literal["", "unknown"]:
    return "unknown" if state.get("session_event") else ""


def route_after_await_session(state: SessionHooks) -> Literal["start", "end"]:
    return "start" if state["session_event"] == "SessionStart" else "end"


async def fire_hooks(
    event: HookEvent,
    payload: Mapping[str, JsonValue],
    state: HookWait,
    runtime: Runtime[Deps],
    subject: str = "",
) -> HookOutcome:
    """Fire an event, keyed by the graph's task; after a person was asked, with the first firing's key.

    Raises `HooksUnansweredError`, which `hook_node` turns into the node's update.
    """
    key = state.get("hook_key") or f"{event}:{require_task_id(runtime, event)}"
    emit = runtime.stream_writer
    outcome = await runtime.context.hooks.fire(event, key, payload, subject=subject, emit=emit)
    if outcome.unknown:
        raise HooksUnansweredError(event, key, outcome.unknown)
    return outcome


def end_prompt_if_hook_refuses(
    event: HookEvent, outcome: HookOutcome, next_step: str, runtime: Runtime[Deps]
) -> PromptEnd | None:
    """How a stop or a block ends the prompt, reported to people; None: continue. `next_step` would have been next."""
    if outcome.stop is not None:
        reason = outcome.stop or NO_REASON
        runtime.stream_writer(AgentStopped(reason=reason))
        return _make_prompt_end(
            "stopped_by_hook", f"{_describe_hooks(event, outcome)} stopped the run", reason
        )
    if outcome.decision == "block":
        reason = outcome.reason or NO_REASON
        runtime.stream_writer(AgentBlocked(reason=reason))
        return _make_prompt_end(
            "blocked_by_hook", f"{_describe_hooks(event, outcome)} blocked {next_step}", reason
        )
    return None


def _make_prompt_end(
    status: Literal["stopped_by_hook", "blocked_by_hook"], hook_action: str, reason: str
) -> PromptEnd:
    cut = reason if len(reason) <= _REASON_CHARS else f"{reason[:_REASON_CHARS]} […]"
    label: Literal["stopped", "blocked"] = "stopped" if status == "stopped_by_hook" else "blocked"
    return {
        "label": label,
        "turn_status": status,
        "error": {"type": status, "message": f"{hook_action}: {cut}"},
    }


def warn_about_ignored_hook_output(
    event: HookEvent, outcome: HookOutcome, problem: str, runtime: Runtime[Deps]
) -> None:
    """Warn people that something a hook requested isn't done."""
    text = f"What the {_describe_hooks(event, outcome)} asked for isn't done: {problem}."
    runtime.stream_writer(ErrorEvent(severity="warning", message=text))


def hook_context_message(context: str) -> Message:
    """A hook's context as a message distinguishable from the user's."""
    return Message(role="user", origin="hook", content=wrap_hook_text(context))


def wrap_hook_text(context: str) -> str:
    """A hook's text between tags that it can't close."""
    return load_prompt("run/hook_context").render(context=context.replace("<", "&lt;").replace(">", "&gt;"))


def _describe_hooks(event: HookEvent, outcome: HookOutcome) -> str:
    """The hook in words; of several, those that blocked."""
    blocking = [v.name for v in outcome.verdicts if v.decision == "block"]
    names = [" ".join(n.split())[:_NAME_CHARS] for n in blocking or [v.name for v in outcome.verdicts]]
    if not names:
        return f"{event} hook"
    return f"{event} hook{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


async def _fire_session_hooks(
    event: HookEvent,
    payload: Mapping[str, JsonValue],
    subject: str,
    state: SessionHooks,
    runtime: Runtime[Deps],
) -> tuple[SessionHooks, HookOutcome]:
    """The node's update for the firing, and the outcome; empty if the hooks haven't answered."""
    before: HookWait = {"hook_key": state.get("session_key", "")}
    try:
        outcome = await fire_hooks(event, payload, before, runtime, subject)
    except HooksUnansweredError as still_open:
        key, request = still_open.key, still_open.request
        return {"session_event": event, "session_key": key, "session_request": request}, HookOutcome()
    return {"session_event": "", "session_key": "", "session_request": ""}, outcome


async def _fire_session_start_hooks(state: SessionHooks, runtime: Runtime[Deps]) -> tuple[SessionHooks, str]:
    """The update for SessionStart, and its hooks' context for the model. Raises `HookError` if one refuses."""
    source = state.get("session", "startup")
    update, outcome = await _fire_session_hooks("SessionStart", {"source": source}, source, state, runtime)
    if end := end_prompt_if_hook_refuses("SessionStart", outcome, "the run", runtime):
        raise HookError(end["error"]["message"], end["turn_status"])
    return update, outcome.context


def write_hook_outcome_request(request_key: str, runtime: Runtime[Deps]) -> None:
    """Write the request named by `HookOutcome.unknown`. Only a person can tell; firing again reads the answer."""
    found = runtime.context.hooks.load_interrupted_firing(request_key)
    commands = "\n".join(found.commands)
    subject = f" for {found.subject}" if found.subject else ""
    reason = (
        f"The run was killed while hooks of {found.event}{subject} ran, so they may or may not have taken effect. "
        "Look, then answer redo (run them again) or skip (go on as if they hadn't been there)."
    )
    request = ApprovalRequest(
        key=request_key,
        kind="outcome",
        call=CallView(id=request_key, name=found.event, args={"command": commands}),
        reason=reason,
        preview=commands,
        choices=("proceed_once", "reject"),
        questions=({"question": reason, "options": ["redo", "skip"]},),
    )
    write_and_emit_request(runtime, request)
