"""What we know of LangGraph's internals is true of the LangGraph that is installed: what runs alone wouldn't show."""

import sys
from operator import add
from pathlib import Path
from typing import Annotated, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from interlock.graphs import langgraph_internals, stored_channels, stored_values

ROOT = Path(__file__).parent.parent
INTERNALS = (
    *("langgraph.pregel._", "langgraph._internal", "langchain_core.tracers._"),
    *("branch:to:", "__pregel_", "__start__", "_last_v6_timestamp", ".do_write("),
)


class State(TypedDict, total=False):
    done: Annotated[list[str], add]
    at: str


CONFIG: Any = {"configurable": {"thread_id": "t"}}


def node(name: str) -> Any:
    return lambda state: {"done": [name]}


def declared(*names: str, **changed: Any) -> Any:
    """A graph of these nodes, one after the other."""
    graph: Any = StateGraph(State)
    for name in names:
        graph.add_node(name, changed.get(name, node(name)))
    for source, target in zip((START, *names), (*names, END), strict=True):
        graph.add_edge(source, target)
    return graph


def test_nothing_else_touches_them() -> None:
    rooms = ("cli", "engine", "graphs", "nodes", "services", "state", "testing", "tools", "workflow")
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        if path.name not in ("langgraph_internals.py", "stored_channels.py", "foreign_node_results.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if any(text in line for text in INTERNALS)
    ]
    # The store's dictionary for compression holds bytes of old checkpoints.
    assert [line for line in found if not line.startswith('engine/store/checkpoints.py:     b"')] == []


def test_a_checkpoint_says_which_nodes_payloads_and_input_are_due() -> None:
    saver = InMemorySaver()
    declared("a", "b").compile(checkpointer=saver).invoke({"done": []}, CONFIG)
    last, before_b, _, first = [found.checkpoint["channel_values"] for found in saver.list(CONFIG)]
    assert [*stored_channels.pending_nodes(before_b)] == ["b"] and stored_channels.has_due_work(before_b)
    assert {key for key in before_b if not stored_channels.is_internal_channel(key)} == {"done"}
    assert stored_channels.has_due_work(first) and not stored_channels.has_due_work(last)
    assert stored_channels.pending_input(first) == {"done": []} and stored_channels.pending_input(last) == {}
    graph = declared("a", "b")
    graph.add_conditional_edges("a", lambda _: [Send("b", {"at": "x"})], ["b"])
    graph.compile(checkpointer=(saver := InMemorySaver()), interrupt_before=["b"]).invoke(
        {"done": []}, CONFIG
    )
    found: Any = saver.get_tuple(CONFIG)
    values = {k: v for k, v in found.checkpoint["channel_values"].items() if not k.startswith("branch:")}
    assert [*stored_channels.pending_nodes(values)] == ["b"] and stored_channels.has_due_work(values)


def test_a_tasks_writes_hold_its_update_or_bookkeeping() -> None:
    class Noting(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            notes.append((task_path, {channel for channel, _ in writes}))
            super().put_writes(config, writes, task_id, task_path)

    notes: list[tuple[str, set[str]]] = []
    app = declared("a", a=lambda _: {"done": [interrupt("?")]}).compile(checkpointer=Noting())
    app.invoke({"done": []}, CONFIG)
    own = [channels for path, channels in notes if stored_channels.is_input_task(path)]
    asked = [channels for path, channels in notes if not stored_channels.is_input_task(path)]
    assert own and asked == [{"__interrupt__"}] and asked[0] <= stored_channels.BOOKKEEPING
    from langgraph._internal import _constants

    assert {
        stored_channels.node_of_task_path(path) for path, channels in notes if channels == {"__interrupt__"}
    } == {"a"}
    special = {_constants.INTERRUPT, _constants.ERROR, _constants.RESUME, _constants.RETURN}
    assert special - stored_channels.BOOKKEEPING <= {_constants.RETURN}


class Kept(BaseModel):
    text: str


class Holds(TypedDict, total=False):
    kept: list[Kept]


def test_the_types_of_a_graph_and_of_those_inside_it_name_what_may_be_loaded() -> None:
    inner: Any = StateGraph(Holds).add_node("look", lambda _: {}).add_edge(START, "look")
    outer = declared("a", "in", **{"in": inner.compile()}).compile()
    assert (Kept.__module__, "Kept") in langgraph_internals.types_named_by_graph(outer)
    assert ("langchain_core.messages.ai", "AIMessage") in langgraph_internals.always_storable_types()


def test_a_class_of_data_is_loaded_by_its_module_and_a_function_or_unknown_module_is_not() -> None:
    known = stored_values.StorableTypes([("a", "Named")])
    found = [(Kept.__module__, "Kept"), ("langchain_core.outputs.generation", "Generation"), ("a", "Named")]
    wrong = [("os", "system"), ("builtins", "exec"), ("subprocess", "Popen"), ("antigravity", "x")]
    assert all(name in known for name in found)
    assert not any(name in known for name in [*wrong, ("unittest.__main__", "x")])
    assert "antigravity" not in sys.modules
