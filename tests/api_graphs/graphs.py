"""Graphs that LangGraph's own server and ours run beside each other: hermetic, each with one habit."""

import asyncio
import operator
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from pydantic import BaseModel, Field
from typing_extensions import TypedDict


class Scripted(BaseChatModel):
    """Says the same words again and again, one a chunk."""

    words: tuple[str, ...] = ("Hello", " there", ".")

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        said = AIMessage("".join(self.words), id=f"said-{len(messages)}")
        return ChatResult(generations=[ChatGeneration(message=said)])

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        for word in self.words:
            chunk = ChatGenerationChunk(message=AIMessageChunk(word, id=f"said-{len(messages)}"))
            if run_manager:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk


async def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await Scripted().ainvoke(state["messages"])]}


talk = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").add_edge("answer", END).compile()


class State(TypedDict, total=False):
    topic: str
    text: str
    log: Annotated[list[str], operator.add]


def draft(state: State) -> State:
    get_stream_writer()({"note": "drafting"})
    return {"text": f"About {state.get('topic')}.", "log": ["draft"]}


def review(state: State) -> State:
    return {"text": interrupt({"question": "Publish this?", "text": state.get("text")}), "log": ["review"]}


def close(_: State) -> State:
    return {"log": ["close"]}


def line(*nodes: Any) -> Any:
    return StateGraph(State).add_sequence([*nodes]).add_edge(START, nodes[0].__name__)


ask = line(draft, review, close).compile()


def left(_: State) -> State:
    return {"log": [f"left {interrupt('left?')}"]}


def right(_: State) -> State:
    return {"log": [f"right {interrupt('right?')}"]}


both = (
    StateGraph(State)
    .add_node(left)
    .add_node(right)
    .add_edge(START, "left")
    .add_edge(START, "right")
    .compile()
)


def burst(state: State) -> State:
    if state.get("topic") == "exit":
        sys.exit("no topic")
    raise ValueError(f"no {state.get('topic')}")


boom = line(draft, burst).compile()


def miss(_: State) -> State:
    raise FileNotFoundError("no file a\ud83d")


half = line(miss).compile()


def wait(state: State) -> State:
    for _ in range(int(state.get("topic") or 1)):
        time.sleep(0.1)
    return {"log": ["waited"]}


def step(name: str) -> Any:
    """A node that takes a moment, and writes its name to the file that `topic` names."""

    def noted(state: State) -> State:
        time.sleep(0.05)
        with Path(state.get("topic", "")).open("a") as file:
            file.write(f"{name} ")
        return {"log": [name]}

    noted.__name__ = name
    return noted


steady = line(step("one"), step("two"), review, step("three"), step("four")).compile()
slow = line(draft, wait, close).compile()


def write_much(state: State) -> State:
    return {"text": "x" * 1_000_000 * int(state.get("topic", "1"))}


big = line(write_much, close).compile()

inner = line(draft).compile()
deep = (
    StateGraph(State)
    .add_node("inner", inner)
    .add_node(close)
    .add_edge(START, "inner")
    .add_edge("inner", "close")
    .compile()
)


class Typed(TypedDict, total=False):
    n: int
    names: list[str]
    seen: str


def tell(state: Any) -> dict[str, str]:
    return {"seen": repr(sorted(state.items()))}


typed = StateGraph(Typed).add_node(tell).add_edge(START, "tell").compile()


@entrypoint()
def single(given: Any) -> Any:
    return {"kind": type(given).__name__, "given": given}


class Chat(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = []
    count: int = 0


def echo(state: Chat) -> dict[str, Any]:
    said = state.messages[-1]
    return {"messages": [AIMessage(f"{said.type} said {said.text}", id="echo")], "count": state.count + 1}


chat = StateGraph(Chat).add_node(echo).add_edge(START, "echo").compile()


class Asked(TypedDict):
    topic: str


class Told(TypedDict):
    text: str


class Whole(TypedDict, total=False):
    topic: str
    text: str
    notes: str


class Private(TypedDict):
    secret: str


def think(state: Whole) -> Private:
    return {"secret": f"secretly {state['topic']}"}


def speak(state: Private) -> Whole:
    return {"text": state["secret"].upper(), "notes": "noted"}


def decide(state: Whole) -> Whole:
    return {"text": interrupt("Say it?")} if state["topic"] == "ask" else {}


private = (
    StateGraph(Whole, input_schema=Asked, output_schema=Told)
    .add_node(think)
    .add_node(speak)
    .add_node(decide)
    .add_edge(START, "think")
    .add_edge("think", "speak")
    .add_edge("speak", "decide")
    .compile()
)


def made(config: RunnableConfig) -> Any:
    """A graph with another node for those who configure one."""
    second = config["configurable"].get("second")
    return line(draft, close).compile() if second else line(draft).compile()


class Who(TypedDict, total=False):
    who: str
    level: int


def greet(_: State, runtime: Runtime[Who]) -> State:
    return {"text": f"{runtime.context.get('who')} {runtime.context.get('level')}"}


contextual = StateGraph(State, context_schema=Who).add_node(greet).add_edge(START, "greet").compile()
paused = line(draft, close).compile(interrupt_before=["close"])


class Form(BaseModel):
    ok: bool


def fill_in(_: State) -> State:
    return {"text": str(interrupt("Is it?", response_schema=Form))}


form = line(fill_in).compile()


class Counted(BaseModel):
    n: int = Field(ge=0)


def count(state: Counted) -> dict[str, int]:
    return {"n": state.n + 1}


counted = StateGraph(Counted).add_node(count).add_edge(START, "count").compile()


async def pause(state: State) -> State:
    await asyncio.sleep(float(state.get("topic") or 1))
    return {"log": ["paused"]}


idle = line(draft, pause, close).compile()

outer = (
    StateGraph(State)
    .add_node("inner", line(draft, review).compile())
    .add_node(close)
    .add_edge(START, "inner")
    .add_edge("inner", "close")
    .compile()
)


class Unstreamed(Scripted):
    """A model that can't stream."""

    def _stream(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("this model doesn't stream")


async def answer_whole(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await Unstreamed(disable_streaming=True).ainvoke(state["messages"])]}


whole = StateGraph(MessagesState).add_node(answer_whole).add_edge(START, "answer_whole").compile()
