"""main: the agent loop around turns and tools: open a prompt, go on, nudge, finish."""

from typing import Literal

from langgraph.runtime import Runtime

from interlock.nodes.hooks import context_message, ending, fired, waits
from interlock.prompts import load, render
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import AgentBlocked
from interlock.state.hooks import NO_REASON, HookedPrompt, HookOutcome, is_hooked
from interlock.state.loop_check import FIRST_CHECK, INTERVAL
from interlock.state.main import MainState
from interlock.state.messages import Message
from interlock.state.node import node
from interlock.state.plan import PLAN_NAME
from interlock.state.refused import Refused, open_refusal, refusals_in, said
from interlock.state.text import is_visible

_SILENT = "[no response text]"
"""What the hook reads where the model said nothing (gemini-cli's words)."""

_STATUS = {
    "ok": "done",
    "context_overflow": "context_overflow",
    "session_limit": "turn_limit",
    "invalid_stream": "invalid_stream",
    "loop_detected": "loop_detected",
    "stopped_by_hook": "stopped_by_hook",
    "blocked_by_hook": "blocked_by_hook",
    "error": "failed",
}
"""Status of the last turn → status of `main`."""

_NO_ANSWER = "The model ended without an answer. Try again with: interlock resume RUN"

_NEXT = {
    "policy": "Change the rule",
    "person": "Approve it next time",
    "hook": "Change the hook",
}


@node(
    reads=("prompt", "head", "unavailable", "approval_mode", "plan_phase"),
    writes=(
        "prompt",
        "asked",
        "hook_stage",
        "said",
        "fed_back",
        "refused",
        "head",
        "turn_no",
        "sticky_model",
        "turn_status",
        "error",
        "stop",
        "status",
        "unavailable",
        "loop_keys",
        "loop_count",
        "loop_interval",
        "loop_next",
        "loop_found",
        "next_speaker_check",
        "plan_phase",
    ),
)
async def open_prompt(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Start a prompt: limits, sticky model and loop detection begin anew. Without one the conversation just goes on."""
    deps = runtime.context
    history = deps.transcript.read(state["head"]) if state["head"] else []
    rules, phase = _plan_mode(deps, state)
    prompt = [*rules, *([deps.transcript.message(state["prompt"])] if state["prompt"] else [])]
    if any(m.role == "system" for m in history):
        head = deps.transcript.append(state["head"], prompt)
    else:
        opening = await deps.context.opening(deps.toolset.declarations())
        head = deps.transcript.append("", [*opening, *history, *prompt])
    opened: MainState = {
        "prompt": "",
        "head": head,
        "turn_no": 0,
        "sticky_model": "",
        "turn_status": "",
        "error": {},
        "stop": "",
        "status": "running",
        "unavailable": {m: how for m, how in state.get("unavailable", {}).items() if how == "run"},
        "loop_keys": [],
        "loop_count": 0,
        "loop_interval": INTERVAL,
        "loop_next": FIRST_CHECK,
        "loop_found": {},
        "plan_phase": phase,
        "next_speaker_check": not deps.settings.model.skip_next_speaker_check,
    }
    if not state["prompt"]:
        return opened
    # What hooks go by begins anew with a prompt, not with another try at it.
    anew: MainState = {"hook_stage": "", "said": "", "fed_back": False, "refused": {}}
    return {**opened, **anew, "asked": state["prompt"]}


def _plan_mode(deps: Deps, state: MainState) -> tuple[list[Message], str]:
    """The rules of plan mode, when a prompt begins in it; and where it stands."""
    phase = state.get("plan_phase", "")
    if state["approval_mode"] != "plan":
        return [], ""
    if phase:
        return [], phase
    text = render("plan/mode", folder=str(deps.plans.folder), file=PLAN_NAME)
    return [Message(role="user", origin="context", content=text)], "requirements"


@node(
    reads=("hook_key", "head", "asked"),
    writes=("hook_event", "approval", "hook_key", "head", "prompt", "hook_stage", "turn_status", "error"),
)
async def before_agent(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """A stopped prompt stays in the conversation, a blocked one leaves it and waits to be tried again."""
    transcript = runtime.context.transcript
    given = {"prompt": transcript.message(state["asked"]).text}
    fire = await fired("BeforeAgent", given, state, runtime)
    if fire.open:
        return {**fire.asks}
    if end := ending("BeforeAgent", fire.outcome, "the prompt", runtime):
        ended: MainState = {**fire.asks, "turn_status": end.status, "error": end.error}
        if end.status == "stopped_by_hook":
            return ended
        without = transcript.ids(state["head"], 2)[0]
        return {**ended, "head": without, "prompt": state["asked"]}
    passed: MainState = {**fire.asks, "hook_stage": "admitted"}
    if context := fire.outcome.context:
        passed["head"] = transcript.append(state["head"], [context_message(context)])
    return passed


@node(reads=("head",), writes=("head",))
async def go_on(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """It costs a turn, like any other message: the limit of turns holds."""
    message = Message(role="user", origin="continue", content=load("next_speaker/go_on").text())
    return {"head": runtime.context.transcript.append(state["head"], [message])}


@node(reads=("head", "loop_found"), writes=("head",))
async def nudge(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """It costs a turn, like any other message."""
    text = load("loop_check/nudge").text(detail=state["loop_found"]["detail"])
    message = Message(role="user", origin="nudge", content=text)
    return {"head": runtime.context.transcript.append(state["head"], [message])}


@node(
    reads=("hook_key", "head", "asked", "said", "reply", "fed_back"),
    writes=("hook_event", "approval", "hook_key", "head", "hook_stage", "fed_back", "turn_status", "error"),
)
async def after_agent(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """A block with a reason is the request of another turn. No answer is an error, which hooks aren't asked about."""
    transcript = runtime.context.transcript
    if not is_visible(transcript.message(state["reply"]).text):
        return {"turn_status": "ok", "hook_event": "", "hook_key": ""}
    said = [m.text for m in transcript.read(state["said"])] if state["said"] else []
    fire = await fired(
        "AfterAgent",
        {
            "prompt": transcript.message(state["asked"]).text,
            "prompt_response": "\n".join(said) or _SILENT,
            "stop_hook_active": state["fed_back"],
        },
        state,
        runtime,
    )
    if fire.open:
        return {**fire.asks}
    if reason := _feedback(fire.outcome):
        runtime.stream_writer(AgentBlocked(reason=reason))
        head = transcript.append(state["head"], [Message(role="user", origin="hook", content=reason)])
        return {**fire.asks, "head": head, "hook_stage": "admitted", "fed_back": True, "turn_status": ""}
    if end := ending("AfterAgent", fire.outcome, "the answer", runtime):
        return {**fire.asks, "hook_stage": "answered", "turn_status": end.status, "error": end.error}
    return {**fire.asks, "hook_stage": "admitted", "turn_status": "ok"}


def _feedback(outcome: HookOutcome) -> str:
    """What the model is told to do yet; empty: nothing. Of a required hook that failed it can't learn anything."""
    failed = any(v.decision == "block" and v.warning for v in outcome.verdicts)
    blocks = outcome.stop is None and outcome.decision == "block" and not failed
    return outcome.reason.strip() if blocks and outcome.reason != NO_REASON else ""


@node(reads=("turn_status", "reply", "stop", "stopped_by", "refused"), writes=("status", "error"))
async def finish(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """A batch that asked for the end ends the run, whatever the turn before it said. No answer is no success."""
    if reason := state.get("stop"):
        if state.get("stopped_by") == "hook":
            return {"status": "stopped_by_hook", "error": {"type": "stopped_by_hook", "message": reason}}
        return {"status": "cancelled"}
    if state["turn_status"] == "ok" and not is_visible(
        runtime.context.transcript.message(state["reply"]).text
    ):
        return {"status": "invalid_stream", "error": {"type": "invalid_stream", "message": _NO_ANSWER}}
    if state["turn_status"] == "ok" and (refused := open_refusal(refusals_in(state))):
        return {"status": "failed", "error": refusal(refused, runtime.context.info.run)}
    try:
        return {"status": _STATUS[state["turn_status"]]}
    except KeyError:
        raise RunError(
            f"main ended after a turn that was {state['turn_status']!r}; expected {sorted(_STATUS)}."
        ) from None


def after_open_prompt(state: HookedPrompt) -> Literal["plain", "hooked", "answered"]:
    """A prompt that has passed isn't asked about again; one whose answer was refused has only the answer to pass."""
    stage = state.get("hook_stage")
    if stage == "answered":
        return "answered"
    waits = not stage and state.get("asked") and is_hooked(state.get("hooked", ""), "BeforeAgent")
    return "hooked" if waits else "plain"


def after_before_agent(state: HookedPrompt) -> Literal["passed", "ended", "unknown"]:
    if waits(state):
        return "unknown"
    return "ended" if state["turn_status"] else "passed"


def after_turn(state: MainState) -> Literal["calls", "no calls", "answered", "first loop", "ended"]:
    status = state["turn_status"]
    if status == "ok" and state.get("next_speaker_check"):
        return "no calls"
    if status == "ok" and is_hooked(state.get("hooked", ""), "AfterAgent"):
        return "answered"
    return "calls" if status == "calls" else "first loop" if status == "loop_nudge" else "ended"


def after_tools(state: MainState) -> Literal["results", "stop"]:
    return "stop" if state.get("stop") else "results"


def after_next_speaker(state: MainState) -> Literal["model", "answered", "user or nobody"]:
    if state["next_speaker"] == "model":
        return "model"
    return "answered" if is_hooked(state.get("hooked", ""), "AfterAgent") else "user or nobody"


def after_after_agent(state: MainState) -> Literal["feedback", "ended", "unknown"]:
    if waits(state):
        return "unknown"
    return "ended" if state["turn_status"] else "feedback"


def after_await_hook(state: MainState) -> Literal["BeforeAgent", "AfterAgent"]:
    return "BeforeAgent" if state["hook_event"] == "BeforeAgent" else "AfterAgent"


def refusal(refused: Refused, run: str) -> dict[str, str]:
    """`{type, message}`: what was refused and by whom, and how to go on."""
    message = (
        f"{said(refused)}. The run ended without it. {_NEXT[refused['who']]}, or say another way: "
        f"interlock resume {run} -p 'what to do instead'"
    )
    return {"type": "refused", "message": message}
