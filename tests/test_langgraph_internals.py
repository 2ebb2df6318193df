"""What we know of LangGraph's internals is true of the LangGraph that is installed."""

import asyncio
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from operator import add
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from interlock.graphs import _langgraph, _stored
from interlock.graphs._watch import before_tool_calls

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


def stopped_before(name: str) -> dict[str, Any]:
    """The channels of a checkpoint whose next node is this one."""
    saver = InMemorySaver()
    app = declared("a", "b").compile(checkpointer=saver, interrupt_before=[name])
    app.invoke({"done": []}, CONFIG)
    found = saver.get_tuple(CONFIG)
    assert found
    return found.checkpoint["channel_values"]


def test_nothing_else_touches_them() -> None:
    rooms = ("cli", "engine", "graphs", "nodes", "services", "state", "testing", "tools", "workflow")
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        if path.name != "_langgraph.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if any(text in line for text in INTERNALS)
    ]
    # The store's dictionary for compression holds bytes of old checkpoints.
    assert [line for line in found if not line.startswith('engine/store/__init__.py:     b"')] == []


def test_a_checkpoint_says_which_nodes_are_due() -> None:
    values = stopped_before("b")
    assert [*_langgraph.pending_nodes(values)] == ["b"] and _langgraph.is_due(values)
    assert _langgraph.lost_nodes(values, {"a"}) == ["b"] and _langgraph.lost_nodes(values, {"b"}) == []
    assert {key for key in values if not _langgraph.is_internal(key)} == {"done"}


def test_a_checkpoint_says_which_payloads_are_due() -> None:
    saver = InMemorySaver()
    graph = declared("a", "b")
    graph.add_conditional_edges("a", lambda _: [Send("b", {"at": "x"})], ["b"])
    graph.compile(checkpointer=saver, interrupt_before=["b"]).invoke({"done": []}, CONFIG)
    found: Any = saver.get_tuple(CONFIG)
    values = {k: v for k, v in found.checkpoint["channel_values"].items() if not k.startswith("branch:")}
    assert [*_langgraph.pending_nodes(values)] == ["b"] and _langgraph.is_due(values)


def test_a_new_run_is_due_and_holds_its_input_and_an_ended_one_is_not() -> None:
    saver = InMemorySaver()
    declared("a", "b").compile(checkpointer=saver).invoke({"done": []}, CONFIG)
    last, *_, first = [found.checkpoint["channel_values"] for found in saver.list(CONFIG)]
    assert _langgraph.is_due(first) and not _langgraph.is_due(last)
    assert _langgraph.input_of(first) == {"done": []} and _langgraph.input_of(last) == {}


def test_a_tasks_writes_hold_its_update_or_bookkeeping() -> None:
    class Noting(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            notes.append((task_path, {channel for channel, _ in writes}))
            super().put_writes(config, writes, task_id, task_path)

    notes: list[tuple[str, set[str]]] = []
    app = declared("a", a=lambda _: {"done": [interrupt("?")]}).compile(checkpointer=Noting())
    app.invoke({"done": []}, CONFIG)
    own = [channels for path, channels in notes if _langgraph.turns_input_into_state(path)]
    asked = [channels for path, channels in notes if not _langgraph.turns_input_into_state(path)]
    assert own and asked == [{"__interrupt__"}] and asked[0] <= _langgraph.BOOKKEEPING
    from langgraph._internal import _constants

    assert {_langgraph.node_of(path) for path, channels in notes if channels == {"__interrupt__"}} == {"a"}
    special = {_constants.INTERRUPT, _constants.ERROR, _constants.RESUME, _constants.RETURN}
    assert special - _langgraph.BOOKKEEPING <= {_constants.RETURN}


def test_a_task_reads_the_state_and_writes_its_update_and_targets_at_once() -> None:
    seen: list[Any] = []

    async def act(_: Any, config: Any) -> None:
        seen.append(_langgraph.reads(config, ["done", "at"]))
        _langgraph.writes(config, {"done": ["a"], "at": "a"}, ["c"])

    graph: Any = StateGraph(State)
    for name in ("b", "c"):
        graph.add_node(name, node(name))
    graph.add_node("a", RunnableLambda(act))
    graph.add_edge(START, "a")
    app = graph.compile()
    assert asyncio.run(app.ainvoke({"done": ["0"], "at": "x"})) == {"done": ["0", "a", "c"], "at": "a"}
    assert seen == [{"done": ["0"], "at": "x"}]


@pytest.mark.parametrize("targets", [["b"], [Send("b", {"at": "x"})], [Send("b", {}), Send("b", {})]])
def test_a_graph_starts_at_the_nodes_and_payloads_that_its_input_names(targets: list[Any]) -> None:
    app = declared("a", "b").compile()
    _langgraph.starts_anywhere(app)
    given = {"done": ["0"], **_langgraph.state_before(targets)}
    assert app.invoke(given)["done"] == ["0", *["b"] * len(targets)]


def test_a_node_runs_its_task_alone_and_a_part_is_asked_for_its_state() -> None:
    inner = declared("ask", ask=lambda _: {"done": [interrupt("?")]})
    app = declared("a", "b").compile(checkpointer=InMemorySaver())
    part = inner.compile()
    begun: list[str] = []

    async def start(state: Any, config: Any) -> None:
        begun.append("start")
        _langgraph.writes(config, state, ["a"])

    async def into(state: Any, config: Any) -> None:
        await part.ainvoke(state, config)

    app.nodes["a"].bound = RunnableLambda(into)
    _langgraph.run_tasks(app, RunnableLambda(start), {"a": part})
    asyncio.run(app.ainvoke({"done": []}, CONFIG))
    (task,) = app.get_state(CONFIG, subgraphs=True).tasks
    assert begun == ["start"] and task.name == "a"
    assert [inside.name for inside in task.state.tasks] == ["ask"]


def test_reducer_channels_have_a_value_before_anything_is_written() -> None:
    assert _langgraph.initial_values(declared("a").compile()) == {"done": []}


def test_a_nested_graph_is_under_way_once_it_has_a_checkpoint() -> None:
    seen: list[bool] = []
    part = declared("ask", ask=lambda _: {"done": [interrupt("?")]}).compile()

    async def into(state: Any, config: RunnableConfig) -> Any:
        seen.append(_langgraph.is_under_way(config))
        return await part.ainvoke(state, config)

    app = declared("a", a=into).compile(checkpointer=InMemorySaver())
    from langgraph.types import Command

    asyncio.run(app.ainvoke({"done": []}, CONFIG))
    asyncio.run(app.ainvoke(Command(resume="yes"), CONFIG))
    assert seen == [False, True]
    assert not _langgraph.is_under_way({"configurable": {}})


def test_new_ids_sort_after_the_one_that_raised_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from langgraph.checkpoint.base import id as ids

    real = time.time_ns
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
    ahead = str(uuid6(clock_seq=1))
    monkeypatch.setattr(time, "time_ns", real)
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    _langgraph.raise_id_clock(ahead)
    assert str(uuid6(clock_seq=2)) > ahead


class Kept(BaseModel):
    text: str


class Holds(TypedDict, total=False):
    kept: list[Kept]


def test_the_types_of_a_graph_and_of_those_inside_it_name_what_may_be_loaded() -> None:
    inner: Any = StateGraph(Holds).add_node("look", lambda _: {}).add_edge(START, "look")
    outer = declared("a", "in", **{"in": inner.compile()}).compile()
    assert (Kept.__module__, "Kept") in _langgraph.named_types(outer)
    assert _langgraph.fields_of(inner.compile()) == {"kept": list[Kept]}
    assert ("langchain_core.messages.ai", "AIMessage") in _langgraph.storable_types()


def test_a_callback_knows_the_task_of_a_whole_node() -> None:
    seen: list[Any] = []

    class Looks(_langgraph.streaming_handler()):
        def on_chain_start(self, *_: Any, tags: Any = None, metadata: Any = None, **__: Any) -> None:
            seen.append(_langgraph.task_in(tags, metadata))

    app = declared("a", "b").compile()
    app.invoke({"done": []}, {"callbacks": [Looks()]})
    found = [task for task in seen if task]
    assert [node for _, _, node in found] == ["a", "b"]
    assert all(namespace == f"{node}:{task}" for task, namespace, node in found)


def test_a_model_streams_for_our_handler_although_it_is_only_invoked() -> None:
    tokens: list[str] = []

    class Hears(_langgraph.streaming_handler()):
        def on_llm_new_token(self, token: str, **_: Any) -> None:
            tokens.append(token)

    model = GenericFakeChatModel(messages=iter([AIMessage("one two")]))
    model.invoke("?", {"callbacks": [Hears()]})
    assert tokens == ["one", " ", "two"]


def test_a_graph_without_a_saver_runs_in_one_that_saves_before_it_goes_on() -> None:
    unsaved = declared("c").compile(checkpointer=False)

    async def later(state: Any) -> Any:
        return await unsaved.ainvoke(state)

    outer = StateGraph(State).add_node("sync", lambda state: unsaved.invoke(state)).add_node(later)
    app = outer.add_edge(START, "sync").add_edge("sync", "later").compile(InMemorySaver())
    asyncio.run(_langgraph.driven(app, {"done": []}, CONFIG, durability="sync"))
    assert set(app.get_state(CONFIG).values["done"]) == {"c"}


def test_before_tool_calls_any_tool_node_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for half in ("_run_one", "_arun_one"):
        monkeypatch.setattr(ToolNode, half, getattr(ToolNode, half))  # put back at the end

    @tool
    def say(word: str) -> str:
        """Say it."""
        return word

    tools, seen = ToolNode([say]), list[Any]()
    app = StateGraph(MessagesState).add_node("tools", tools).add_edge(START, "tools").compile()
    before_tool_calls(seen.append)
    call: Any = {
        "messages": [AIMessage("", tool_calls=[{"name": "say", "args": {"word": "tea"}, "id": "1"}])]
    }
    for left in (app.invoke(call), asyncio.run(app.ainvoke(call))):
        assert left["messages"][-1].text == "tea"
    assert seen == [tools, tools]


def test_a_copy_of_a_compiled_graph_takes_another_saver_and_leaves_the_original() -> None:
    app, saver = declared("a").compile(), InMemorySaver()
    copied = _langgraph.with_saver(app, saver, None)
    copied.invoke({"done": []}, CONFIG)
    assert (copied.get_state(CONFIG).values, app.checkpointer) == ({"done": ["a"]}, None)


def test_a_refused_state_names_the_node_that_it_was_for() -> None:
    class Strict(BaseModel):
        many: int = 0

    def wrong(_: Strict) -> dict[str, Any]:
        return {"many": "few"}

    graph = StateGraph(Strict).add_node("first", wrong).add_node("second", wrong)
    app = graph.add_edge(START, "first").add_edge("first", "second").compile()
    with pytest.raises(ValueError) as refused:
        app.invoke({"many": 1})
    assert _langgraph.node_of_error(refused.value) == "second"
    assert _langgraph.node_of_error(ValueError()) == ""


def test_tuples_and_what_collections_has_come_back_as_what_they_were() -> None:
    serde = JsonPlusSerializer(__unpack_ext_hook__=_stored.loader_of(_stored.Storable(())))
    nested: Any = defaultdict(list, {"a": [(1, 2)]}), Counter("aab"), OrderedDict(b=1, a=(2,))
    held: Any = {"a": (1, [(2,)]), "set": {(3, 4)}, "send": Send("node", (5,)), "none": (), "nested": nested}
    for value in (held, (6, (7,)), (), nested[0], deque([1, (2,)], maxlen=2), defaultdict(None, a=1)):
        again = serde.loads_typed(("msgpack", _stored.class_keeping_encoder()(value)))
        assert (repr(again), type(again)) == (repr(value), type(value))


def test_a_class_of_data_is_loaded_by_its_module_and_a_function_or_unknown_module_is_not() -> None:
    known = _stored.Storable([("a", "Named")])
    found = [(Kept.__module__, "Kept"), ("langchain_core.outputs.generation", "Generation"), ("a", "Named")]
    wrong = [("os", "system"), ("builtins", "exec"), ("subprocess", "Popen"), ("antigravity", "x")]
    assert all(name in known for name in found)
    assert not any(name in known for name in [*wrong, ("unittest.__main__", "x")])
    assert "antigravity" not in sys.modules
