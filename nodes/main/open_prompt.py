"""open_prompt: put the prompt into the chain, after the system prompt and the context if it is the first."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.prompts import render
from interlock.state.deps import Deps
from interlock.state.loop_check import FIRST_CHECK, INTERVAL
from interlock.state.messages import Message
from interlock.state.plan import PLAN_NAME
from interlock.state.refused import Refusals


class OpenPromptIn(TypedDict, total=False):
    prompt: str
    head: str
    unavailable: dict[str, str]
    approval_mode: str
    plan_phase: str


class OpenPromptOut(TypedDict, total=False):
    prompt: str
    asked: str
    hook_stage: str
    said: str
    fed_back: bool
    refused: Refusals
    head: str
    turn_no: int
    sticky_model: str
    turn_status: str
    error: dict[str, str]
    stop: str
    status: str
    unavailable: dict[str, str]
    loop_keys: list[str]
    loop_count: int
    loop_interval: int
    loop_next: int
    loop_found: dict[str, str]
    next_speaker_check: bool
    plan_phase: str


async def open_prompt(state: OpenPromptIn, runtime: Runtime[Deps]) -> OpenPromptOut:
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
    opened: OpenPromptOut = {
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
    anew: OpenPromptOut = {"hook_stage": "", "said": "", "fed_back": False, "refused": {}}
    return {**opened, **anew, "asked": state["prompt"]}


def _plan_mode(deps: Deps, state: OpenPromptIn) -> tuple[list[Message], str]:
    """The rules of plan mode, when a prompt begins in it; and where it stands."""
    phase = state.get("plan_phase", "")
    if state["approval_mode"] != "plan":
        return [], ""
    if phase:
        return [], phase
    text = render("plan/mode", folder=str(deps.plans.folder), file=PLAN_NAME)
    return [Message(role="user", origin="context", content=text)], "requirements"
