"""Graphs that LangGraph's own server and ours run beside each other: hermetic, each with one habit."""

import operator
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
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
