"""drawn: a small graph that is drawn and can be run: it fans out to an inner graph, joins, and begins again."""

from types import SimpleNamespace
from typing import Annotated, Any, Literal

from langgraph.graph import END, START
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict

from interlock.graphs.graph import Graph
from interlock.state.calls import merge_by_key
from interlock.state.deps import Deps

KEEPS_NOTHING: Any = SimpleNamespace(
    find_recorded_node_update=lambda *_: None, record_node_update=lambda *_: None
)
"""Stands for a drive's effects, of nodes that no replay is to see."""


class Item(TypedDict):
    index: int


class ItemOut(TypedDict, total=False):
    seen: Annotated[dict[str, str], merge_by_key]


class ItemState(Item, ItemOut):
    pass


class State(TypedDict, total=False):
    rounds: int
    count: int
    seen: Annotated[dict[str, str], merge_by_key]


async def begin(state: State, runtime: Runtime[Deps]) -> State:
    return {}


async def look(state: ItemState, runtime: Runtime[Deps]) -> ItemOut:
    return {}


async def ask(state: ItemState, runtime: Runtime[Deps]) -> ItemOut:
    return {"seen": {str(state["index"]): interrupt("?")}}


def after_look(state: ItemState) -> Literal["even", "odd", "lost"]:
    return "odd" if state["index"] % 2 else "even"


async def join(state: State, runtime: Runtime[Deps]) -> State:
    return {"rounds": state["rounds"] - 1}


def items(state: State) -> list[Item]:
    return [{"index": i} for i in range(state["count"])] if state["rounds"] > 1 else []


def after_join(state: State) -> Literal["more", "over", "limit"]:
    return "more" if state["rounds"] else "over"


def sample(even: Any = look) -> Graph:
    inner = Graph("each item", ItemState, input=Item, output=ItemOut)
    inner.node("look", look)
    inner.node("even", even)
    inner.edge(START, "look")
    inner.route("look", after_look, {"even": "even", "odd": END, "lost": END})
    inner.edge("even", END)
    outer = Graph("sample", State)
    outer.node("begin", begin)
    outer.subgraph("item", inner)
    outer.node("join", join)
    outer.edge(START, "begin")
    outer.fan_out("begin", items, "item", "join")
    outer.edge("item", "join")
    outer.route("join", after_join, {"more": "begin", "over": END, "limit": END})
    return outer
