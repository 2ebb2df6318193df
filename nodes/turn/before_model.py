"""before_model: let hooks see the request, change it, or answer in the model's place."""

from collections.abc import Sequence
from itertools import takewhile

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes._hooked import AskedIn, AskedOut, ending, fired, warn
from interlock.nodes.turn._accepted import Accepted, AcceptedIn, accepted
from interlock.nodes.turn._changes import BadChangeError, RequestChange, changed_messages, read, replacement
from interlock.nodes.turn._request import Request, RequestIn, request_of
from interlock.nodes.turn._shapes import shown_request
from interlock.state.deps import Deps, Transcript
from interlock.state.errors import UserError
from interlock.state.events import MessageEvent
from interlock.state.hooks import HookOutcome
from interlock.state.messages import Message


class BeforeModelIn(RequestIn, AskedIn, AcceptedIn, total=False):
    pass


class Changed(TypedDict, total=False):
    request_head: str
    request_model: str
    request_temperature: float | None
    request_tools: list[str] | None


class BeforeModelOut(Changed, AskedOut, Accepted, total=False):
    finish_reason: str
    error: dict[str, str]


_UNCHANGED: Changed = {
    "request_head": "",
    "request_model": "",
    "request_temperature": None,
    "request_tools": None,
}


async def before_model(state: BeforeModelIn, runtime: Runtime[Deps]) -> BeforeModelOut:
    """Changes hold for this request alone: the conversation and the prompt's model stay as they are."""
    deps = runtime.context
    request = request_of({"head": state["head"], "sticky_model": state["sticky_model"]}, deps)
    fire = await fired("BeforeModel", {"llm_request": shown_request(request)}, state, runtime)
    if fire.open:
        return {**fire.asks}
    if fire.outcome.stop is None and (text := replacement("BeforeModel", fire.outcome, runtime)):
        runtime.stream_writer(MessageEvent(role="assistant", content=text, delta=True))
        reply = deps.transcript.append(state["head"], [Message(role="assistant", content=text)])
        return {**fire.asks, **accepted(state, deps.transcript, reply), "finish_reason": "stop"}
    if end := ending("BeforeModel", fire.outcome, "the request", runtime):
        return {**fire.asks, "turn_status": end.status, "error": end.error}
    return {**fire.asks, **_UNCHANGED, **_changes(fire.outcome, state["head"], request, runtime)}


def _changes(outcome: HookOutcome, head: str, request: Request, runtime: Runtime[Deps]) -> Changed:
    """Each change that can be made is made; of the others people are told."""
    deps = runtime.context
    changed: Changed = {}
    try:
        wanted = read(RequestChange, outcome.output, "llm_request")
        if wanted is None:
            return changed
        changed["request_temperature"] = wanted.config.temperature
        if wanted.model and wanted.model != request.model:
            changed["request_model"] = deps.models.resolve(wanted.model)
        if wanted.messages is not None:
            messages = changed_messages(wanted.messages, request.messages)
            changed["request_head"] = _chain(deps.transcript, head, messages)
    except (BadChangeError, UserError) as problem:
        warn("BeforeModel", outcome, str(problem), runtime)
    return changed


def _chain(transcript: Transcript, head: str, messages: Sequence[Message]) -> str:
    """A chain of what is sent; it shares what comes before the first change with the conversation's."""
    same = [*takewhile(lambda pair: pair[0] is pair[1], zip(transcript.read(head), messages, strict=False))]
    if not same:
        return transcript.append("", messages, continues=head)
    shared = transcript.ids(head)[len(same) - 1]
    return transcript.append(shared, messages[len(same) :])
