"""after_model: let hooks see a whole answer before anybody else does; then it enters the conversation."""

from langgraph.runtime import Runtime

from interlock.nodes._hooked import AskedIn, AskedOut, ending, fired
from interlock.nodes.turn._accepted import Accepted, AcceptedIn, accepted
from interlock.nodes.turn._changes import replacement
from interlock.nodes.turn._request import RequestIn, request_of
from interlock.nodes.turn._shapes import shown_answer, shown_request
from interlock.state.deps import Deps
from interlock.state.events import MessageEvent, Thought
from interlock.state.messages import Message


class AfterModelIn(RequestIn, AskedIn, AcceptedIn, total=False):
    candidate: str
    finish_reason: str


class AfterModelOut(AskedOut, Accepted, total=False):
    error: dict[str, str]


async def after_model(state: AfterModelIn, runtime: Runtime[Deps]) -> AfterModelOut:
    """A refused answer never enters the conversation, nor do its calls; with another text they stay."""
    deps = runtime.context
    answer = deps.transcript.message(state["candidate"])
    given = {
        "llm_request": shown_request(request_of(state, deps)),
        "llm_response": shown_answer(answer, state.get("finish_reason", "")),
    }
    fire = await fired("AfterModel", given, state, runtime)
    if fire.open:
        return {**fire.asks}
    if end := ending("AfterModel", fire.outcome, "the answer", runtime):
        return {**fire.asks, "turn_status": end.status, "error": end.error}
    record = state["candidate"]
    text = replacement("AfterModel", fire.outcome, runtime)
    if text and text != answer.text:
        answer = _with_text(answer, text)
        record = deps.transcript.append(state["head"], [answer])
    _tell(answer, runtime)
    return {**fire.asks, **accepted(state, deps.transcript, record)}


def _with_text(answer: Message, text: str) -> Message:
    """Thoughts and their signature belong to the words that are gone; those of the calls stay with the calls."""
    return answer.model_copy(update={"content": text, "thought": None, "signature": None})


def _tell(answer: Message, runtime: Runtime[Deps]) -> None:
    """What was held back."""
    if answer.thought:
        runtime.stream_writer(Thought(content=answer.thought))
    if answer.text:
        runtime.stream_writer(MessageEvent(role="assistant", content=answer.text, delta=True))
