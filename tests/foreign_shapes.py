"""Graphs of LangGraph in many shapes, none of which knows of Interlock: `test_foreign_kills.py` kills each."""

# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false

import operator
from typing import Annotated, Any, Literal

from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Overwrite, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    text: str
    log: Annotated[list[str], operator.add]
    count: int


def says(word: str) -> Any:
    def node(state: Log) -> Log:
        return {"log": [f"{word} after {len(state.get('log', []))}"]}

    return node


def chain(*nodes: tuple[str, Any], of: Any = Log) -> Any:
    return StateGraph(of).add_sequence(nodes).add_edge(START, nodes[0][0])


line = chain(*((name, says(name)) for name in "abc"))


def ask(state: Log) -> Log:
    return {"log": [f"answer {interrupt('go on?')!r}"]}


asked = chain(("a", says("a")), ("ask", ask), ("b", says("b")))


def ask_twice(state: Log) -> Log:
    first = interrupt({"first": state.get("text")})
    return {"log": [f"{first!r} {interrupt({'second': first})!r}"]}


twice = chain(("a", says("a")), ("ask_twice", ask_twice))


def ask_until(state: Log) -> Log:
    answer = interrupt("how many?")
    while not isinstance(answer, int):
        answer = interrupt(f"{answer!r} is no number. How many?")
    return {"count": answer, "log": [f"count {answer}"]}


validated = chain(("ask_until", ask_until), ("b", says("b")))


def review(state: Log) -> Command[Literal["publish", "__end__"]]:
    given = interrupt({"text": state.get("text"), "do": "edit"})
    return Command(goto="publish", update={"text": str(given), "log": ["edited"]})


edited = StateGraph(Log).add_node(review).add_node("publish", says("publish")).add_edge(START, "review")

parallel = StateGraph(Log).add_node("join", says("join"), defer=True)
for name, node in {"one": ask, "two": ask, "three": says("three")}.items():
    parallel.add_node(name, node).add_edge(START, name).add_edge(name, "join")


def ask_one(state: dict[str, Any]) -> Log:
    return {"log": [f"{state['word']} {interrupt(state['word'])!r}"]}


def each(state: Log) -> list[Send]:
    return [Send("ask_one", {"word": word}) for word in ("x", "y")]


sent = StateGraph(Log).add_sequence([ask_one, ("end", says("end"))])
sent.add_conditional_edges(START, each, ["ask_one"])

inner = chain(("in_a", says("in_a")), ("in_ask", ask), ("in_b", says("in_b"))).compile()


class Outer(TypedDict, total=False):
    text: str
    log: Annotated[list[str], lambda old, new: new if new[: len(old)] == old else old + new]


nested = chain(("inner", inner), ("after", says("after")), of=Outer)


async def invokes(state: Log) -> Log:
    found = await inner.ainvoke({"text": state.get("text", "")})
    return {"log": [f"inside: {found['log']}"]}


invoking = chain(("a", says("a")), ("invokes", invokes), ("b", says("b")))


@entrypoint()
def asks_inside(topic: str) -> str:
    return f"{topic} {interrupt('inside?')!r}"


async def asks_on(state: Log) -> Log:
    """It asks when the graphs inside it that asked are over."""
    first = await inner.ainvoke({"text": "first"})
    second = await asks_inside.ainvoke("second")
    return {"log": [f"{first['log']} {second} {interrupt('and here?')!r}"]}


asking_on = chain(("a", says("a")), ("asks_on", asks_on), ("b", says("b")))


def to_parent(state: Log) -> Command[Any]:
    return Command(graph=Command.PARENT, goto="target", update={"log": ["from inside"]})


handing = (
    StateGraph(Outer)
    .add_node("child", chain(("a", says("a")), ("to_parent", to_parent)).compile(), destinations=("target",))
    .add_node("target", says("target"))
    .add_edge(START, "child")
)


class Model(BaseModel):
    name: str = ""
    tags: list[str] = []


class Typed(BaseModel):
    name: str = ""
    model: Model | None = None
    seen: Annotated[list[str], operator.add] = []


def make(state: Typed) -> dict[str, Any]:
    return {"model": Model(name=state.name, tags=["t"]), "seen": [type(state).__name__]}


async def use(state: Typed) -> dict[str, Any]:
    return {"seen": [type(state.model).__name__, repr(interrupt({"model": state.model}))]}


typed = chain(("make", make), ("use", use), of=Typed)


def clear(state: Log) -> dict[str, Any]:
    return {"log": Overwrite(["cleared"])}


loop = StateGraph(Log).add_node("clear", clear).add_edge(START, "count").add_edge("clear", END)
loop.add_node("count", lambda state: {"count": state.get("count", 0) + 1, "log": ["again"]})
loop.add_conditional_edges(
    "count", lambda state: "clear" if state["count"] > 2 else "count", ["count", "clear"]
)


def speak(state: MessagesState) -> dict[str, Any]:
    return {"messages": [("ai", f"heard {state['messages'][-1].text}")]}


talk = chain(("speak", speak), of=MessagesState)


@task
def write_essay(topic: str) -> str:
    return f"essay on {topic}"


@task
async def grade(essay: str) -> int:
    return len(essay)


@entrypoint()
async def functional(topic: str) -> dict[str, Any]:
    essay = await write_essay(topic)
    marks = await grade(essay)
    return {"essay": essay, "marks": marks, "approved": interrupt({"essay": essay, "action": "approve?"})}


paused = chain(("a", says("a")), ("b", says("b")), ("c", says("c"))).compile(
    interrupt_before=["b"], interrupt_after=["b"]
)
inside = chain(("x", says("x")), ("y", says("y"))).compile(interrupt_before=["y"])
paused_inside = chain(("inner", inside), of=Outer)
