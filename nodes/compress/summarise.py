"""summarise: ask the compressor for a snapshot of what will be dropped."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._asking import ask
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message


class SummariseIn(TypedDict, total=False):
    head: str
    base: str
    split: int
    token_limit: int


class SummariseOut(TypedDict, total=False):
    draft: str
    checked: str
    label: str


async def summarise(state: SummariseIn, runtime: Runtime[Deps]) -> SummariseOut:
    task = [Message(role="user", origin="nudge", content=load("compress/summarise").text())]
    told = await ask(state["head"], state["base"], state["split"], state["token_limit"], task, runtime)
    return {"draft": told.record, "checked": "", "label": told.how}
