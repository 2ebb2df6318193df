"""split: choose what is replaced by a snapshot and what is kept word for word."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._split import find_cut
from interlock.state.deps import Deps

PRESERVE = 0.3
"""Share of the characters that stay (gemini-cli: the same)."""


class SplitIn(TypedDict, total=False):
    base: str
    preserve: float


class SplitOut(TypedDict, total=False):
    split: int
    carried: int
    label: str


async def split(state: SplitIn, runtime: Runtime[Deps]) -> SplitOut:
    cut = find_cut(runtime.context.transcript.read(state["base"]), state.get("preserve", PRESERVE))
    if cut is None:
        return {"label": "nothing to drop"}
    return {"split": cut.start, "carried": cut.carried, "label": "found"}
