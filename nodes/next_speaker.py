"""next_speaker: decide whether the model must continue after its last answer, or it is the user's turn."""

from langgraph.runtime import Runtime

from interlock.nodes.helper_model import Question, ask_json, asking
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message, curated, open_calls
from interlock.state.next_speaker import NEXT_SPEAKER_TIMEOUT_S, NextSpeakerState, Verdict
from interlock.state.node import node


@node(reads=("head",), writes=("next_speaker", "decided_by", "speaker_reason"), labels=("decided", "open"))
async def precheck(state: NextSpeakerState, runtime: Runtime[Deps]) -> NextSpeakerState:
    """The first rule that applies decides (`pipelines.md` §8)."""
    history = runtime.context.transcript.read(state["head"]) if state["head"] else []
    found = _decided([m for m in history if m.role != "system"])
    if found is None:
        return {"label": "open", "next_speaker": "", "decided_by": "", "speaker_reason": ""}
    speaker, reason = found
    return {"label": "decided", "next_speaker": speaker, "decided_by": "precheck", "speaker_reason": reason}


def _decided(history: list[Message]) -> tuple[str, str] | None:
    """Speaker (empty: undecided) and reason; None: a model must decide."""
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


@node(reads=("head",), writes=("next_speaker", "decided_by", "speaker_reason"))
async def ask_model(state: NextSpeakerState, runtime: Runtime[Deps]) -> NextSpeakerState:
    """On any failure the speaker stays undecided: the run waits for the user."""
    history = [m for m in curated(runtime.context.transcript.read(state["head"])) if m.role != "system"]
    system, task = load("next_speaker/judge").parts()
    question = Question(
        role="next_speaker",
        messages=asking(system, task, history),
        head=state["head"],
        timeout_s=NEXT_SPEAKER_TIMEOUT_S,
    )
    found = await ask_json(question, Verdict, runtime)
    if found is None:
        return {"next_speaker": "", "decided_by": "none", "speaker_reason": "the helper model gave no answer"}
    verdict = found.answer
    return {
        "next_speaker": verdict.next_speaker,
        "decided_by": "model",
        "speaker_reason": verdict.reasoning[:1000],
    }
