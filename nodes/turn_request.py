"""turn_request: what a turn sends: limits, the model, hooks' changes, and what is left out to fit a window."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal

from langgraph.runtime import Runtime

from interlock.nodes.compress_snapshot import (
    estimate_total_tokens,
    measure_conversation_size,
    messages_after_last_answer,
)
from interlock.nodes.hooks import (
    end_prompt_if_hook_refuses,
    fire_hooks,
    hook_node,
    warn_about_ignored_hook_output,
)
from interlock.nodes.turn_messages import (
    REQUEST,
    BadChangeError,
    RequestChange,
    ToolChoice,
    TurnRequest,
    apply_hook_message_changes,
    build_turn_request,
    format_request_for_hooks,
    read_hook_answer_text,
    read_hook_field,
)
from interlock.nodes.turn_reply import accept_answer
from interlock.prompts import load_prompt
from interlock.state.deps import Deps, Transcript
from interlock.state.errors import UserError
from interlock.state.events import ContextOverflow, MaxSessionTurns, MessageEvent, ModelInfo, RouteEvent
from interlock.state.hooks import HookOutcome
from interlock.state.loop_check import FIRST_CHECK
from interlock.state.messages import Message, ToolDeclaration, estimate_message_tokens
from interlock.state.node import node, require_task_id
from interlock.state.run import is_hooked
from interlock.state.text import estimate_tokens, format_count, join_up_to
from interlock.state.turn import TurnState

_UNCHANGED: TurnState = {
    "request_head": "",
    "request_model": "",
    "request_temperature": None,
    "request_tools": None,
}
_FRESH: TurnState = {
    "attempt": 1,
    "candidate": "",
    "stream_problem": "",
    "error": {},
    "overflows": 0,
    "failed_model": "",
    "rerouted": False,
    "loop_found": {},
    "turn_status": "",
}


@node(
    reads=(
        *("head", "model", "sticky_model", "last_prompt_tokens", "turn_no", "session_turns"),
        *("max_turns", "max_session_turns"),
    ),
    writes=("turn_no", "session_turns", *_FRESH),
    labels=("short", "long", "prompt limit", "session limit"),
)
async def check_limits(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Both limits count model turns; the session limit is -1 if unlimited."""
    session = state["max_session_turns"]
    if session >= 0 and state["session_turns"] >= session:
        runtime.stream_writer(MaxSessionTurns(limit=session))
        return _turn_limit_update(
            runtime, "max_session_turns", f"The session's limit of {format_count(session, 'turn')} is reached"
        )
    if state["turn_no"] >= state["max_turns"]:
        runtime.stream_writer(MaxSessionTurns(limit=state["max_turns"]))
        return _turn_limit_update(
            runtime,
            "max_turns",
            f"This prompt's limit of {format_count(state['max_turns'], 'turn')} is reached",
        )
    known = measure_conversation_size(runtime.context, state)
    long = known.is_nearly_full or known.has_reached(runtime.context.settings.model.compression_threshold)
    return {
        **_FRESH,
        "label": "long" if long else "short",
        "turn_no": state["turn_no"] + 1,
        "session_turns": state["session_turns"] + 1,
    }


def _turn_limit_update(runtime: Runtime[Deps], kind: str, limit_text: str) -> TurnState:
    flag = kind.replace("_", "-")
    message = f"{limit_text}. Go on with: {runtime.context.info.resume_or_rerun_command(f'--{flag} N')}"
    error = {"type": kind, "message": message}
    label = "session limit" if kind == "max_session_turns" else "prompt limit"
    return {**_FRESH, "label": label, "turn_status": "session_limit", "error": error}


@node(
    reads=("head", "model", "sticky_model", "last_prompt_tokens", "turn_no", "loop_next", "hooked"),
    writes=(),
    labels=("overflow", "look due", "sticky", "hooked", "unrouted"),
)
async def check_context(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Compare the unsent messages with the space left after the last request."""
    deps = runtime.context
    model = state.get("sticky_model") or deps.models.resolve_alias(state["model"])
    known = state.get("last_prompt_tokens", 0)
    history = deps.transcript.read(state["head"])
    plain = sum(map(estimate_message_tokens, messages_after_last_answer(history) if known else history))
    estimated = deps.models.adjust_token_estimate(model, plain)
    remaining = max(0, deps.models.context_window(model) - known)
    if estimated <= remaining:
        look_due = state["turn_no"] >= (state.get("loop_next") or FIRST_CHECK)
        return {"label": "look due" if look_due else _routing_label(state)}
    runtime.stream_writer(ContextOverflow(estimated=estimated, remaining=remaining))
    return {"label": "overflow"}


@node(
    reads=("chosen_model", "strategy", "route_reason", "failed_model", "unavailable", "hooked"),
    writes=("sticky_model", "failed_model", "attempt", "stream_problem", "turn_status", "error"),
    labels=("usable", "hooked", "none left"),
)
async def use_model(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """After a failure only an available model counts; else the failure stands."""
    model = state["chosen_model"]
    if state["failed_model"] and model in state["unavailable"]:
        return {"label": "none left", "turn_status": "error"}
    strategy, reason = state["strategy"], state["route_reason"]
    runtime.context.steps.record_reason(
        require_task_id(runtime, "use_model"), f"{model}, by {strategy}: {reason}"
    )
    runtime.stream_writer(RouteEvent(model=model, strategy=strategy, reason=reason))
    runtime.stream_writer(ModelInfo(model=model))
    label = "hooked" if _has_request_hooks(state) else "usable"
    fresh: TurnState = {"failed_model": "", "attempt": 1, "stream_problem": "", "error": {}}
    return {**fresh, "label": label, "sticky_model": model}


@hook_node(
    reads=(*REQUEST, "hooked", "said"),
    writes=(*_UNCHANGED, "head", "reply", "said", "turn_status", "finish_reason", "error"),
    labels=("ask", "choose tools", "answered", "stopped", "blocked"),
)
async def before_model(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Changes apply to this request only: the conversation and the prompt's model are unaffected.

    `answered`: a hook did, in the model's place.
    """
    deps = runtime.context
    unchanged: TurnState = {"head": state["head"], "mode": state.get("mode", "")}
    request = await build_turn_request({**unchanged, "sticky_model": state["sticky_model"]}, deps)
    outcome = await fire_hooks(
        "BeforeModel", {"llm_request": format_request_for_hooks(request)}, state, runtime
    )
    if outcome.stop is None and (text := read_hook_answer_text("BeforeModel", outcome, runtime)):
        runtime.stream_writer(MessageEvent(role="assistant", content=text, delta=True))
        reply = deps.transcript.append(state["head"], [Message(role="assistant", content=text)])
        return {**accept_answer(state, deps.transcript, reply), "finish_reason": "stop", "label": "answered"}
    if end := end_prompt_if_hook_refuses("BeforeModel", outcome, "the request", runtime):
        return {**end}
    label = "choose tools" if is_hooked(state, "BeforeToolSelection") else "ask"
    return {
        **_UNCHANGED,
        **_apply_hook_request_changes(outcome, state["head"], request, runtime),
        "label": label,
    }


def _apply_hook_request_changes(
    outcome: HookOutcome, head: str, request: TurnRequest, runtime: Runtime[Deps]
) -> TurnState:
    """Apply each valid change; report the others to people."""
    deps = runtime.context
    changed: TurnState = {}
    try:
        wanted = read_hook_field(RequestChange, outcome.output, "llm_request")
        if wanted is None:
            return changed
        changed["request_temperature"] = wanted.config.temperature
        if wanted.model and wanted.model != request.model:
            changed["request_model"] = deps.models.resolve_alias(wanted.model)
        if wanted.messages is not None:
            messages = apply_hook_message_changes(wanted.messages, request.messages)
            changed["request_head"] = _store_request_chain(deps.transcript, head, messages)
    except (BadChangeError, UserError) as problem:
        warn_about_ignored_hook_output("BeforeModel", outcome, str(problem), runtime)
    return changed


def _store_request_chain(transcript: Transcript, head: str, messages: Sequence[Message]) -> str:
    """A chain of the messages to send; shares the prefix before the first change with the conversation's."""
    same = [*takewhile(lambda pair: pair[0] is pair[1], zip(transcript.read(head), messages, strict=False))]
    if not same:
        return transcript.append("", messages, continues=head)
    shared = transcript.record_ids(head)[len(same) - 1]
    return transcript.append(shared, messages[len(same) :])


@hook_node(
    reads=REQUEST,
    writes=("request_tools", "turn_status", "error"),
    labels=("ask", "stopped", "blocked"),
)
async def before_tool_selection(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Tools not offered aren't thereby forbidden: that is up to policy."""
    request = await build_turn_request(state, runtime.context)
    payload = {"llm_request": format_request_for_hooks(request)}
    outcome = await fire_hooks("BeforeToolSelection", payload, state, runtime)
    if end := end_prompt_if_hook_refuses("BeforeToolSelection", outcome, "the request", runtime):
        return {**end}
    tools = _tools_chosen_by_hooks(outcome, [t.name for t in request.tools], runtime)
    return {"label": "ask", "request_tools": tools}


def _tools_chosen_by_hooks(
    outcome: HookOutcome, offered: list[str], runtime: Runtime[Deps]
) -> list[str] | None:
    """None: all. Unknown names are reported to people."""
    try:
        choice = read_hook_field(ToolChoice, outcome.output, "toolConfig")
    except BadChangeError as problem:
        warn_about_ignored_hook_output("BeforeToolSelection", outcome, str(problem), runtime)
        return None
    if choice is None or (choice.mode != "NONE" and not choice.allowedFunctionNames):
        return None
    named = [] if choice.mode == "NONE" else choice.allowedFunctionNames or []
    if unknown := sorted(set(named).difference(offered)):
        warn_about_ignored_hook_output(
            "BeforeToolSelection", outcome, f"no tool {', '.join(map(repr, unknown))} is offered", runtime
        )
    return [name for name in offered if name in named]


def route_after_loop_check(
    state: TurnState,
) -> Literal["calls repeat", "text repeats", "no progress", "sticky", "hooked", "unrouted"]:
    """Return which level of the check found a loop, or what comes next without one."""
    match state["loop_found"].get("kind"):
        case None:
            return _routing_label(state)
        case "tool_call":
            return "calls repeat"
        case "model":
            return "no progress"
        case _:
            return "text repeats"


def _routing_label(state: TurnState) -> Literal["sticky", "hooked", "unrouted"]:
    if not state.get("sticky_model"):
        return "unrouted"
    return "hooked" if _has_request_hooks(state) else "sticky"


def _has_request_hooks(state: TurnState) -> bool:
    """Whether hooks on either event before the request must run; the first one's node leads to the second."""
    return is_hooked(state, "BeforeModel") or is_hooked(state, "BeforeToolSelection")


_ROOM = 0.7
"""Share of the window that is filled at most once outputs were left out."""
_SPARED = 200
"""Tokens of an output up to which it stays."""
_NAMED = 3
_FILE = re.compile(r"^--- (.+?) \([^()\n]*\) ---\n.*?^--- end of \1 ---", re.M | re.S)
"""A memory file as `format_memory_file` writes it."""


@node(
    reads=(*REQUEST, "model", "overflows"),
    writes=("head", "last_prompt_tokens", "turn_status", "error"),
    labels=("shortened", "full"),
    group="errors",
)
async def fit_window(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Leave out the largest outputs until the rest fits; all of them, if the model refused what seemed to fit."""
    deps = runtime.context
    model = state.get("sticky_model") or deps.models.resolve_alias(state["model"])
    limit = deps.models.context_window(model)
    messages = deps.transcript.read(state["head"])
    tools = (await build_turn_request(state, deps)).tools
    left = deps.models.adjust_token_estimate(
        model, estimate_total_tokens(messages) + _estimate_tool_tokens(tools)
    )
    refused_again = state.get("overflows", 0) > 1
    changed = False
    for index in _large_output_indices(messages):
        if left <= _ROOM * limit and changed and not refused_again:
            break
        before = estimate_total_tokens([messages[index]])
        messages[index] = await _save_and_replace_output(messages[index], deps)
        left -= deps.models.adjust_token_estimate(model, before - estimate_total_tokens([messages[index]]))
        changed = True
    if changed:
        head = deps.transcript.append("", messages, continues=state["head"])
        fitted: TurnState = {"head": head, "last_prompt_tokens": 0, "turn_status": "", "error": {}}
        return {**fitted, "label": "shortened"}
    message = _explain_overflow(model, limit, messages, tools, deps)
    error = {"type": "context_overflow", "message": message}
    # The next prompt is tried: its window, its instructions or what it asks may have changed.
    return {"label": "full", "turn_status": "context_overflow", "error": error, "last_prompt_tokens": 0}


def _large_output_indices(messages: Sequence[Message]) -> list[int]:
    sizes = {i: estimate_total_tokens([m]) for i, m in enumerate(messages) if m.role == "tool"}
    return sorted((i for i, size in sizes.items() if size > _SPARED), key=lambda i: (-sizes[i], i))


async def _save_and_replace_output(message: Message, deps: Deps) -> Message:
    """The file is on disk before anything refers to it."""
    path = await asyncio.to_thread(deps.outputs.save_bytes, message.text.encode())
    text = load_prompt("run/output_left_out").render(characters=f"{len(message.text):,}", path=str(path))
    return message.model_copy(update={"content": text})


def _estimate_tool_tokens(tools: Sequence[ToolDeclaration]) -> int:
    return sum(estimate_tokens(f"{t.name}{t.description}{t.parameters}") for t in tools)


def _explain_overflow(
    model: str, limit: int, messages: Sequence[Message], tools: Sequence[ToolDeclaration], deps: Deps
) -> str:
    """Say what fills the window, the largest first, and what to do about it."""
    shares: dict[str, int] = {}
    for name, tokens in [
        *_tokens_by_part(messages),
        ("the declarations of tools", _estimate_tool_tokens(tools)),
    ]:
        shares[name] = shares.get(name, 0) + deps.models.adjust_token_estimate(model, tokens)
    largest = sorted(shares, key=lambda name: -shares[name])
    filling = join_up_to([f"{name} ({shares[name]:,} tokens)" for name in largest if shares[name]], _NAMED)
    return (
        f"The request has about {sum(shares.values()):,} tokens, {model!r} takes {limit:,}. "
        f"It is filled by {filling}. Shorten {largest[0]}, or choose a model with a larger window (-m)."
    )


def _tokens_by_part(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    """Yield each part of the conversation with its plain estimate, files of instructions by name."""
    asked = max(
        (i for i, m in enumerate(messages) if m.role == "user" and m.origin in (None, "person")), default=-1
    )
    for index, message in enumerate(messages):
        whole = estimate_total_tokens([message])
        for file in _FILE.finditer(message.text) if message.origin == "context" else ():
            tokens = estimate_tokens(file[0])
            whole -= tokens
            yield file[1], tokens
        if message.role == "system":
            yield "the system prompt", whole
        elif message.origin == "context":
            yield "the context of the workspace", whole
        else:
            yield "the prompt" if index == asked else "the conversation", whole
