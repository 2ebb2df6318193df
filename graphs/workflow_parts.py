"""workflow_parts: building blocks for users' own workflows: an agent, a loop, and subgraphs that stop for a person."""

from collections.abc import Sequence

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.node_contract import cached_type_hints, make_state_type
from interlock.nodes.requests import await_person, notify
from interlock.nodes.workflow import (
    Node,
    make_agent_begin_node,
    make_agent_end_node,
    make_ask_node,
    make_take_answer_node,
    make_take_approval_node,
)
from interlock.state.errors import SetupError
from interlock.state.hooks import HookWait
from interlock.state.main import MainState
from interlock.state.node import node
from interlock.state.workflow import AgentState, State


def agent(*, task: str = "task", answer: str = "answer", depth: int = 1) -> Graph:
    """A subgraph in which an agent works on the text under `task`; map its labels `done` and `failed`.

    Its answer, or why there is none, goes under `answer`. The state must extend `AgentState`; agents placed in sequence
    share the conversation. `depth`: levels of sub-agents it may start.
    """
    keys = cached_type_hints(AgentState)
    payload = make_state_type("AgentGiven", {**keys, task: str})
    left = make_state_type("AgentLeft", {"head": str, "label": keys["label"], answer: str})
    state = make_state_type("AgentWork", {**cached_type_hints(MainState), task: str, answer: str})
    g = Graph("agent", state, input=payload, output=left, labels=("done", "failed"), needs=(task,))
    g.node("begin", make_agent_begin_node(task))
    g.subgraph("main", nested_graph_builder("main", depth))
    g.node("end", make_agent_end_node(answer))
    g.edge(START, "begin", "main", "end")
    g.by_label("end", {"done": END, "failed": END})
    g.together(START, "begin")
    return g


def loop(g: Graph, name: str, *, most: int, again: str, enough: str) -> None:
    """Add node `name`, which leads to `again` the first `most` times a run reaches it, then to `enough`.

    The state must extend `State`, which counts in `passes`. A workflow with a cycle that has neither such a node nor a
    person in it is refused when it is loaded.
    """
    if most < 1:
        raise SetupError(f"{g.name}.{name}: most={most}, expected 1 or more.")

    @node(reads=("passes",), writes=("passes",), labels=("again", "enough"))
    async def count_loop_pass(state: State) -> State:
        times = state.get("passes", {}).get(name, 0)
        if times >= most:
            return {"label": "enough"}
        return {"label": "again", "passes": {name: times + 1}}

    g.node(name, count_loop_pass)
    g.by_label(name, {"again": again, "enough": enough})
    g.bounds.add(name)


def approve(question: str, *, show: str = "", feedback: str = "feedback") -> Graph:
    """A subgraph that asks a person to approve; map its labels `approved` and `rejected`.

    `show`: state key with the text to decide on; the person may edit it, and the result replaces it. `feedback`: key
    for the reason of a rejection; the state need not have it.
    """
    g = _build_request_graph("approve", ("approved", "rejected"), (show, feedback), (show,))
    _add_request_nodes(
        g, make_ask_node("approval", question, show, ()), make_take_approval_node(show, feedback)
    )
    g.by_label("take", {"approved": END, "rejected": END})
    return g


def ask_person(
    question: str, *, answer: str = "answer", show: str = "", options: Sequence[str] = ()
) -> Graph:
    """A subgraph that asks a person for a text; map its labels `answered` (or each of `options`) and `declined`.

    `answer`: state key that takes the text. `show`: state key with a text to show below the question.
    Raises `SetupError` for options that repeat or equal one of our own labels.
    """
    if len({*options, "again", "declined"}) != len(options) + 2:
        raise SetupError(f"ask_person: options {[*options]} must differ, and be none of 'again', 'declined'.")
    labels = (*(options or ("answered",)), "declined")
    g = _build_request_graph("ask_person", labels, (show, answer), (show, answer))
    _add_request_nodes(
        g, make_ask_node("question", question, show, options), make_take_answer_node(answer, options)
    )
    g.by_label("take", {**dict.fromkeys(labels, END), **({"again": "ask"} if options else {})})
    return g


def _build_request_graph(
    name: str, labels: tuple[str, ...], texts: Sequence[str], needs: Sequence[str]
) -> Graph:
    state = make_state_type(name, {**cached_type_hints(HookWait), **{key: str for key in texts if key}})
    return Graph(name, state, labels=labels, asks=True, needs=tuple(filter(None, needs)))


def _add_request_nodes(g: Graph, ask: Node, take: Node) -> None:
    g.nodes(ask, notify)
    g.node("await_answer", await_person)
    g.node("take", take)
    g.edge(START, "ask")
    g.by_label("ask", {"asked": "await_answer", "notify": "notify"})
    g.by_label("notify", dict.fromkeys(("approval", "question", "outcome"), "await_answer"))
    g.edge("await_answer", "take")
