"""_request: what a turn really sends, hooks' changes included."""

from typing import NamedTuple

from typing_extensions import TypedDict

from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.messages import Message, curated, open_calls
from interlock.state.models import ToolDeclaration


class RequestIn(TypedDict, total=False):
    """What the request is made from."""

    head: str
    sticky_model: str
    request_head: str
    request_model: str
    request_temperature: float | None
    request_tools: list[str] | None


class Request(NamedTuple):
    """One request to the main model."""

    messages: list[Message]
    model: str
    temperature: float | None
    """None: the run's own."""
    tools: list[ToolDeclaration]


def request_of(state: RequestIn, deps: Deps) -> Request:
    """The request as the state has it. Raises `RunError` where a call has no answer: no model takes that."""
    history = deps.transcript.read(state.get("request_head") or state["head"])
    if unanswered := open_calls(history):
        raise RunError(f"Calls without an answer before a model request: {[c.id for c in unanswered]!r}.")
    named = state.get("request_tools")
    tools = [t for t in deps.toolset.declarations() if named is None or t.name in named]
    model = state.get("request_model") or state["sticky_model"]
    return Request(curated(history), model, state.get("request_temperature"), tools)
