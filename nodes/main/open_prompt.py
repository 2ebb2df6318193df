"""open_prompt: put the prompt into the chain, after the system prompt and the context if it is the first."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.deps import Deps


class OpenPromptIn(TypedDict, total=False):
    prompt: str
    head: str


class OpenPromptOut(TypedDict, total=False):
    prompt: str
    head: str
    turn_no: int
    sticky_model: str
    turn_status: str
    error: dict[str, str]
    stop: str
    status: str


async def open_prompt(state: OpenPromptIn, runtime: Runtime[Deps]) -> OpenPromptOut:
    """Start a prompt: its limits and its sticky model begin anew. Without a prompt the conversation just goes on."""
    deps = runtime.context
    history = deps.transcript.read(state["head"]) if state["head"] else []
    prompt = [deps.transcript.message(state["prompt"])] if state["prompt"] else []
    if any(m.role == "system" for m in history):
        head = deps.transcript.append(state["head"], prompt)
    else:
        opening = await deps.context.opening(deps.toolset.declarations())
        head = deps.transcript.append("", [*opening, *history, *prompt])
    return {
        "prompt": "",
        "head": head,
        "turn_no": 0,
        "sticky_model": "",
        "turn_status": "",
        "error": {},
        "stop": "",
        "status": "running",
    }
