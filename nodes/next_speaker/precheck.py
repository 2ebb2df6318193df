"""precheck: decide who speaks next where no model is needed for it."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.deps import Deps
from interlock.state.messages import Message, curated, open_calls


class PrecheckIn(TypedDict, total=False):
    head: str


class PrecheckOut(TypedDict, total=False):
    next_speaker: str
    decided_by: str
    speaker_reason: str


async def precheck(state: PrecheckIn, runtime: Runtime[Deps]) -> PrecheckOut:
    """The first rule that holds decides (`pipelines.md` §8)."""
    history = runtime.context.transcript.read(state["head"]) if state["head"] else []
    found = _decided([m for m in history if m.role != "system"])
    if found is None:
        return {"next_speaker": "", "decided_by": "", "speaker_reason": ""}
    return {"next_speaker": found[0], "decided_by": "precheck", "speaker_reason": found[1]}


def _decided(history: list[Message]) -> tuple[str, str] | None:
    """Speaker (empty: nobody) and reason; None: a model must look."""
    if not curated(history):
        return "", "the conversation is empty"
    last = history[-1]
    if last.role == "tool":
        return "model", "a tool has answered, and the model hasn't seen it yet"
    if open_calls(history):
        return "model", "calls of the model are still open"
    if last.role == "assistant" and not last.tool_calls and not last.text.strip():
        return "model", "the last answer is empty"
    if last.role != "assistant":
        return "", "the last message isn't the model's"
    return None
