"""_look: what a judging model is shown, and its answer."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes._ask_json import Question, ask_json
from interlock.nodes.loop_check._events import read_events
from interlock.nodes.loop_check._replay import replay
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.loop_check import ENTRIES, LOOP_TIMEOUT_S, Analysis, Judgement
from interlock.state.messages import Message, curated


class LookIn(TypedDict, total=False):
    head: str
    events: str
    judgements: list[Judgement]
    unavailable: dict[str, str]


async def look(role: str, state: LookIn, runtime: Runtime[Deps]) -> float | None:
    """The model's confidence that the run is in a loop; None: it failed."""
    deps = runtime.context
    history = deps.transcript.read(state["head"]) if state.get("head") else []
    system, task = load("loop_check/look").parts(request=_request(state, deps, history))
    question = Question(
        role=role,
        kind=Analysis,
        messages=[
            Message(role="system", content=system),
            *entries(history),
            Message(role="user", content=task),
        ],
        head=state.get("head", ""),
        timeout_s=LOOP_TIMEOUT_S,
    )
    found = await ask_json(question, runtime)
    return found.answer.unproductive_state_confidence if found else None


def entries(history: list[Message]) -> list[Message]:
    """The last 20, without calls that have no answer, or answers that have no call."""
    last = [m for m in curated(history) if m.role != "system"][-ENTRIES:]
    while last and last[0].role == "tool":
        last.pop(0)
    while last and last[-1].tool_calls:
        last.pop()
    if last and last[0].tool_calls:
        last.insert(0, Message(role="user", content=load("loop_check/earlier").text()))
    return last


def _request(state: LookIn, deps: Deps, history: list[Message]) -> str:
    """The user's own words: the last that the person wrote."""
    if state.get("events"):
        events = replay(read_events(deps, state["events"]), state.get("judgements", []), asks=True)
        if events.prompt:
            return events.prompt
    return next((m.text for m in reversed(history) if m.role == "user" and m.origin in ("person", None)), "")
