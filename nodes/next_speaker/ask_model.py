"""ask_model: let a helper model judge by the last answer who speaks next."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes._ask_json import Question, ask_json
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message, curated
from interlock.state.next_speaker import NEXT_SPEAKER_TIMEOUT_S, Verdict


class AskModelIn(TypedDict, total=False):
    head: str


class AskModelOut(TypedDict, total=False):
    next_speaker: str
    decided_by: str
    speaker_reason: str


async def ask_model(state: AskModelIn, runtime: Runtime[Deps]) -> AskModelOut:
    """Any failure means that nobody is known to be due: the run waits for the user."""
    history = [m for m in curated(runtime.context.transcript.read(state["head"])) if m.role != "system"]
    system, task = load("next_speaker/judge").parts()
    question = Question(
        role="next_speaker",
        kind=Verdict,
        messages=[Message(role="system", content=system), *history, Message(role="user", content=task)],
        head=state["head"],
        timeout_s=NEXT_SPEAKER_TIMEOUT_S,
    )
    found = await ask_json(question, runtime)
    if found is None:
        return {"next_speaker": "", "decided_by": "none", "speaker_reason": "the helper model gave no answer"}
    verdict = found.answer
    return {
        "next_speaker": verdict.next_speaker,
        "decided_by": "model",
        "speaker_reason": verdict.reasoning[:1000],
    }
