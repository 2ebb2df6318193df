"""verify: let the compressor check its snapshot against the conversation, and repair it."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._asking import ask
from interlock.nodes.compress._snapshot import BadSnapshot, sections_of
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message


class VerifyIn(TypedDict, total=False):
    head: str
    base: str
    split: int
    token_limit: int
    draft: str


class VerifyOut(TypedDict, total=False):
    checked: str
    label: str


async def verify(state: VerifyIn, runtime: Runtime[Deps]) -> VerifyOut:
    """What is wrong with the draft's form is said, too. Without an answer the draft stands."""
    text = runtime.context.transcript.message(state["draft"]).text
    task = [
        Message(role="user", origin="nudge", content=load("compress/summarise").text()),
        Message(role="assistant", content=text),
        Message(role="user", origin="nudge", content=load("compress/verify").text(problem=_problem(text))),
    ]
    told = await ask(state["head"], state["base"], state["split"], state["token_limit"], task, runtime)
    return {"checked": told.record, "label": told.how}


def _problem(text: str) -> str:
    try:
        sections_of(text)
    except BadSnapshot as problem:
        return f"As it stands it can't be used: {problem}."
    return ""
