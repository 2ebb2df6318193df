"""Branches of every kind that run beside each other: `test_parallel_stops.py` stops them in every way.

Each branch notes in the file `log` that it begins and ends, and waits in between for a file in `open`. A test appends a
line that says which branches there are, and writes all of it as a file of its own.
"""

# pyright: basic

import asyncio
import operator
import time
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from typing_extensions import TypedDict

from interlock.workflow import (
    END,
    Deps,
    Graph,
    Input,
    Output,
    Runtime,
    State,
    Workflow,
    durable,
    effect,
    effect_sync,
    guarded,
    node,
)

HERE = Path(__file__).parent


def note(line: str) -> None:
    with (HERE / "log").open("a") as file:
        file.write(f"{line}\n")


def is_open(name: str) -> bool:
    return (HERE / "open" / name).exists() or (HERE / "open" / "all").exists()


def act(name: str) -> str:
    note(f"begun {name}")
    while not is_open(name):
        time.sleep(0.003)
    note(f"ended {name}")
    return name


async def act_async(name: str) -> str:
    note(f"begun {name}")
    while not is_open(name):
        await asyncio.sleep(0.003)
    note(f"ended {name}")
    return name


@tool
def post(name: str) -> str:
    """Posts."""
    return act(name)


@tool
def plain_post(name: str) -> str:
    """Posts."""
    return act(name)


@tool
async def post_async(name: str) -> str:
    """Posts."""
    return await act_async(name)


POST, POST_ASYNC = guarded([post, post_async], risk="write")


class Log(TypedDict, total=False):
    done: Annotated[list[str], operator.add]


def effect_of_a_function(name: str) -> Any:
    async def branch(state: Log, runtime: Runtime) -> Log:
        await effect(runtime, name, act, name)
        return {"done": [name]}

    return branch


def effect_of_a_coroutine(name: str) -> Any:
    async def branch(state: Log, runtime: Runtime) -> Log:
        await effect(runtime, name, act_async, name)
        return {"done": [name]}

    return branch


def sync_effect(name: str) -> Any:
    def branch(state: Log, runtime: Runtime) -> Log:
        effect_sync(runtime, name, act, name)
        return {"done": [name]}

    return branch


def sync_effect_in_a_thread(name: str) -> Any:
    async def branch(state: Log, runtime: Runtime) -> Log:
        await asyncio.to_thread(effect_sync, runtime, name, act, name)
        return {"done": [name]}

    return branch


def durable_function(name: str) -> Any:
    def branch(state: Log) -> Log:
        durable(act)(name)
        return {"done": [name]}

    return branch


def tool_in_a_thread(name: str) -> Any:
    def branch(state: Log) -> Log:
        POST.invoke({"name": name})
        return {"done": [name]}

    return branch


def awaited_tool(name: str) -> Any:
    async def branch(state: Log) -> Log:
        await POST.ainvoke({"name": name})
        return {"done": [name]}

    return branch


def tool_of_a_coroutine(name: str) -> Any:
    async def branch(state: Log) -> Log:
        await POST_ASYNC.ainvoke({"name": name})
        return {"done": [name]}

    return branch


def sync_node(name: str) -> Any:
    def branch(state: Log) -> Log:
        return {"done": [act(name)]}

    return branch


def async_node(name: str) -> Any:
    async def branch(state: Log) -> Log:
        return {"done": [await act_async(name)]}

    return branch


def nested_node(name: str) -> Any:
    """A graph of its own around a node without `async`."""
    return StateGraph(Log).add_node("inner", sync_node(name)).add_edge(START, "inner").compile()


def nested_effects(name: str) -> Any:
    """A graph of its own around an effect and a node that ends at once."""
    graph = StateGraph(Log).add_node("act", effect_of_a_function(name))
    graph.add_node("beside", lambda state: {}).add_edge(START, "act")
    return graph.add_edge(START, "beside").compile()


def called_graph(name: str) -> Any:
    """A graph that a node calls."""
    inner = nested_node(name)

    async def branch(state: Log) -> Log:
        await inner.ainvoke({})
        return {"done": [name]}

    return branch


def tool_node(name: str) -> Any:
    """A tool without `async` that nothing guards, as agents call it."""
    calls: Any = [{"name": "plain_post", "args": {"name": name}, "id": "1", "type": "tool_call"}]
    tools = ToolNode([plain_post])
    inner = StateGraph(MessagesState).add_node("tools", tools).add_edge(START, "tools").compile()

    async def branch(state: Log) -> Log:
        await inner.ainvoke({"messages": [AIMessage("", tool_calls=calls)]})
        return {"done": [name]}

    return branch


KINDS = {
    made.__name__: made
    for made in (
        effect_of_a_function,
        effect_of_a_coroutine,
        sync_effect,
        sync_effect_in_a_thread,
        durable_function,
        tool_in_a_thread,
        awaited_tool,
        tool_of_a_coroutine,
        sync_node,
        async_node,
        nested_node,
        nested_effects,
        called_graph,
        tool_node,
    )
}
NAMES = ("one", "two", "three")


def failing(state: Any) -> Any:
    """Fails when it is told to, until what it stumbles over is mended."""
    while not ((HERE / "fail").exists() or (HERE / "mended").exists()):
        time.sleep(0.003)
    if not (HERE / "mended").exists():
        raise ValueError("a sibling fails")
    return {}


async def failing_async(state: Any) -> Any:
    return await asyncio.to_thread(failing, state)


def foreign(*kinds: str, fails: bool = False, step_timeout: float = 0, timeout: float = 0) -> Any:
    """`timeout`: of the first node."""
    graph: Any = StateGraph(Log)
    for name, kind in zip(NAMES, kinds, strict=False):
        limit = {"timeout": timeout} if timeout and name == NAMES[0] else {}
        graph.add_node(name, KINDS[kind](name), **limit).add_edge(START, name)
    if fails:
        graph.add_node("failing", failing).add_edge(START, "failing")
    made = graph.compile()
    made.step_timeout = step_timeout or None
    return made


class Own(State, total=False):
    done: Annotated[list[str], operator.add]


class Out(Output):
    done: list[str]


def own(*kinds: str, fails: bool = False) -> Workflow:
    """The same branches in a workflow of Interlock's own."""

    @node()
    async def begin(state: Own, runtime: Runtime[Deps]) -> Own:
        return {}

    @node()
    async def join(state: Own, runtime: Runtime[Deps]) -> Own:
        return {}

    @node()
    async def fail(state: Own, runtime: Runtime[Deps]) -> Own:
        return await failing_async(state)

    def branch(name: str, kind: str) -> Any:
        run = KINDS[kind](name)

        @node(writes=("done",))
        async def act(state: Own, runtime: Runtime[Deps]) -> Own:
            return await (run(state) if run.__code__.co_argcount == 1 else run(state, runtime))

        return act

    def build() -> Graph:
        g = Graph("beside", Own)
        g.nodes(begin, join)
        g.edge(START, "begin")
        names = NAMES[: len(kinds)]
        for name, kind in zip(names, kinds, strict=True):
            g.node(name, branch(name, kind))
        if fails:
            g.node("fail", fail)
            names = (*names, "fail")
        for name in names:
            g.edge("begin", name)
        g.join(names, "join")
        g.edge("join", END)
        return g

    return Workflow("beside", build, Input, Out)
