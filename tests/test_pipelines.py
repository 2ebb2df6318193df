"""Properties of every pipeline, and what the graph builder rejects."""

import asyncio
import operator
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from drawn import KEEPS_NOTHING
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.graph import END, START
from langgraph.runtime import RunControl, Runtime
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from interlock.engine import diagrams
from interlock.engine.store import Store
from interlock.engine.store.saver import Saver
from interlock.engine.store.steps import StepLog
from interlock.graphs import PIPELINES, load_pipeline
from interlock.graphs.graph import Graph
from interlock.state.calls import merge_by_key
from interlock.state.deps import Deps, Token
from interlock.state.errors import SetupError, UserError
from interlock.state.node import NodeSpec, find_node_spec, node

DIAGRAMS = Path(__file__).parent.parent / "diagrams"


# Every pipeline


def test_diagrams_are_current_and_none_is_left_over(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        diagrams.sync_diagram_files(DIAGRAMS)
    assert diagrams.list_diagram_problems(DIAGRAMS) == []


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object with named properties in a JSON Schema."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)
    if isinstance(schema, list):
        for value in schema:
            yield from objects(value)


@pytest.mark.parametrize("name", PIPELINES)
def test_its_graph_is_built_its_input_and_output_are_closed_and_its_prompt_is_a_text(name: str) -> None:
    declared = load_pipeline(name)
    assert declared.name == declared.build().compile().name == name
    for schema in (side.model_json_schema() for side in (declared.input, declared.output)):
        assert [o["title"] for o in objects(schema) if o.get("additionalProperties") is not False] == []
    if declared.prompt_field is not None:
        schema = declared.input.model_json_schema()["properties"][declared.prompt_field]
        assert "string" in [kind.get("type") for kind in (schema, *schema.get("anyOf", []))]


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UserError, match=r"No workflow 'mian'. Did you mean 'main'.*interlock workflows"):
        load_pipeline("mian")


# What the builder rejects

Seen = Annotated[dict[str, str], merge_by_key]


class State(TypedDict, total=False):
    text: str
    count: int
    seen: Seen


class Unknown(TypedDict, total=False):
    txet: str


class WrongType(TypedDict, total=False):
    count: str


class NoReducer(TypedDict, total=False):
    seen: dict[str, str]


def idle(reads: Any = State, writes: Any = State) -> Any:
    """A node that says what it reads and writes, and does nothing."""

    async def node(state: Any, runtime: Runtime[Deps]) -> Any:
        return {}

    node.__annotations__ |= {"state": reads, "return": writes}
    return node


step = idle()


async def bare(state, runtime):  # type: ignore[no-untyped-def]
    return {}


def after_step(state: State) -> Literal["go", "stop"]:
    return "go"


def after_unknown(state: Unknown) -> Literal["go"]:
    return "go"


def graph(**nodes: Any) -> Graph:
    made = Graph("sample", State)
    for name, function in nodes.items():
        made.node(name, function)
    return made


def wired(nodes: str, *edges: str) -> Graph:
    """`step` under each name, and edges such as "a b"; ^ is the start, $ the end."""
    made = graph(**dict.fromkeys(nodes, step))
    for edge in edges:
        source, target = ({"^": START, "$": END}.get(name, name) for name in edge.split())
        made.edge(source, target)
    return made


def routed(labels: dict[str, str], router: Any = after_step, nodes: str = "a", *edges: str) -> Graph:
    made = wired(nodes, "^ a", *edges)
    made.route("a", router, labels)
    return made


def part(state: type) -> Graph:
    made = Graph("part", state)
    made.edge(START, END)
    return made


class Labelled(State, total=False):
    label: str


def labelled(label: str, targets: dict[str, str]) -> Graph:
    @node(reads=("text",), writes=("count",), labels=("once more", "enough"))
    async def decide(state: Labelled) -> Labelled:
        return {"count": 1, "label": label}

    g = Graph("sample", Labelled)
    g.node("decide", decide)
    g.node("other", step)
    g.edge(START, "decide")
    g.by_label("decide", targets)
    g.edge("other", END)
    return g


AB = {"go": "b", "stop": END}


@node(reads=("txet",), writes=("count",))
async def misread(state: State) -> State:
    return {}


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: graph(a=idle(Unknown)), "sample.a reads 'txet', which State lacks"),
        (lambda: graph(a=idle(State, Unknown)), "sample.a writes 'txet', which State lacks"),
        (lambda: graph(a=idle(WrongType)), "sample.a reads 'count' as <class 'str'>, State has it as <class 'int'>"),
        (lambda: graph(a=idle(State, NoReducer)), r"writes 'seen' as dict\[str, str\], State has it as .*Annotated"),
        (lambda: graph(a=bare), "sample.a: bare needs annotations"),
        (lambda: graph(misread=misread), r"sample\.misread reads \['txet'\], which State lacks"),
        (lambda: routed({"go": END}), r"after_step returns \['go', 'stop'\], its map has"),
        (lambda: routed({"go": END, "stop": END, "also": END}), r"after_step returns \['go', 'stop'\], its map has"),
        (lambda: routed({"go": END}, after_unknown), "after_unknown reads 'txet'"),
        (lambda: routed({"go": END, "stop": "d"}), "edge 'a' → 'd' names no node 'd'"),
        (lambda: wired("a", "a b"), "edge 'a' → 'b' names no node 'b'"),
        (lambda: graph(a=step).fan_out("a", lambda state: [], "b"), "edge 'a' → 'b' names no node 'b'"),
        (lambda: graph(a=step, b=take).fan_out("a", lambda state: [], "b"), "a lambda says nothing of the state"),
        (lambda: graph(a=step).route("a", lambda state: "go", {"go": END}), "a lambda says nothing of the state"),
        (lambda: labelled("", {"enough": END}), r"label returns \['enough', 'once more'\], its map has \['enough'\]"),
        (lambda: wired("al", "^ a", "a $", "l $").compile(), r"no edge leads to \['l'\]"),
        (lambda: routed(AB, after_step, "abc", "b c", "c b").compile(), r"\['b', 'c'\] can't reach the end"),
        (lambda: graph().subgraph("p", part(WrongType)), "has 'count' as <class 'str'>, State has it as <class 'int'>"),
        (lambda: graph().subgraph("p", part(Unknown)), "share no key"),
    ],
)  # fmt: skip
def test_a_graph_that_cannot_be_meant_is_refused_when_it_is_built(build: Any, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        build()


# What it rejects at run time


class Item(TypedDict):
    count: int


async def take(state: Item, runtime: Runtime[Deps]) -> State:
    return {"seen": {str(state["count"]): "yes"}}


DEPS = SimpleNamespace(steps=StepLog(), cancel=Token(), emit=id, effects=KEEPS_NOTHING)


def run(made: Graph, context: Any = DEPS) -> Any:
    return asyncio.run(made.compile().ainvoke({"text": "", "count": 0}, context=context))


def updated(update: Any) -> Graph:
    async def node(state: State, runtime: Runtime[Deps]) -> State:
        return update

    made = graph(a=node)
    made.edge(START, "a", END)
    return made


def elsewhere(state: State) -> Literal["go", "stop"]:
    return "elsewhere"  # type: ignore[return-value]


def fanned(payload: Any) -> Graph:
    def each(state: State) -> list[Item]:
        return [{"count": 1}, payload]

    made = graph(a=step, b=take)
    made.edge(START, "a")
    made.fan_out("a", each, "b")
    made.edge("b", END)
    return made


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (updated({"txet": "a"}), r"sample.a wrote \('txet',\): Extra inputs are not permitted; see State"),
        (updated({"count": "1"}), r"sample.a wrote \('count',\): Input should be a valid integer; see State"),
        (updated({"count": True}), "Input should be a valid integer"),
        (updated(None), "Input should be a valid dictionary"),
        (routed({"go": END, "stop": END}, elsewhere), r"returned 'elsewhere', expected one of \['go', 'stop'\]"),
        (labelled("perhaps", {"enough": "other", "once more": END}), r"decide wrote label 'perhaps', expected one of"),
        (fanned({"count": "two"}), "each sent .* to 'b'"),
        (fanned({"cuont": 2}), "each sent .* to 'b'"),
        (fanned({"count": 2, "more": 1}), "each sent .* to 'b'"),
    ],
)  # fmt: skip
def test_what_a_node_or_a_router_may_not_return_is_refused_when_it_runs(made: Graph, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        run(made)


def test_a_run_without_deps_is_refused() -> None:
    says = r"sample.a was started without Deps. Run it through interlock.engine.run"
    with pytest.raises(SetupError, match=says):
        run(wired("a", "^ a", "a $"), context=None)


# Nodes that share a superstep


class Walk(TypedDict, total=False):
    at: str
    label: str
    found: Annotated[dict[str, str], operator.or_]


def chained(control: RunControl | None = None) -> Graph:
    """a → b → c → END, together; `c` writes a channel with a reducer."""

    @node(reads=("at",), writes=("at",), labels=("on", "off"))
    async def a(state: Walk) -> Walk:
        return {"at": state.get("at", "") + "a", "label": "on"}

    @node(reads=("at",), writes=("at",))
    async def b(state: Walk) -> Walk:
        if control:
            control.request_drain("stopped")
        return {"at": state.get("at", "") + "b"}

    @node(reads=("at",), writes=("found",))
    async def c(state: Walk) -> Walk:
        return {"found": {state.get("at", ""): "seen"}}

    made = Graph("chained", Walk)
    made.nodes(a, b, c)
    made.edge(START, "a")
    made.by_label("a", {"on": "b", "off": END})
    made.edge("b", "c", END)
    made.together("a", "b", "c")
    return made


def walked(
    made: Graph, saver: InMemorySaver, control: RunControl | None = None, given: Any = None
) -> list[str]:
    """The nodes reported, in order."""
    app: Any = made.compile(saver)
    seen: list[str] = []

    def emit(event: Any) -> None:
        seen.append(f"{event.type} {event.node}")

    deps = SimpleNamespace(steps=StepLog(), cancel=Token(), emit=emit, effects=KEEPS_NOTHING)
    config = {"configurable": {"thread_id": "t"}}
    with suppress(GraphDrained):
        asyncio.run(app.ainvoke(given, config, context=deps, control=control))
    return [line.removeprefix("node_start ") for line in seen if line.startswith("node_start")]


def test_pure_nodes_that_follow_each_other_share_a_superstep_and_stay_as_declared() -> None:
    saver, made = InMemorySaver(), chained()
    assert walked(made, saver, given={"at": ""}) == ["a", "b", "c"]
    config: Any = {"configurable": {"thread_id": "t"}}
    values = made.compile(saver).get_state(config).values
    assert (values["at"], values["label"], values["found"]) == ("ab", "on", {"ab": "seen"})
    assert len(list(saver.list(config))) == 3, "the input, its entry into the state, and the whole chain"
    drawn: Any = {(e.source, e.target) for e in made.compile().get_graph().edges}
    assert drawn == {("__start__", "a"), ("a", "b"), ("a", "__end__"), ("b", "c"), ("c", "__end__")}


def test_a_request_to_stop_is_heard_between_the_nodes_of_a_chain() -> None:
    saver, control = InMemorySaver(), RunControl()
    made = chained(control)
    assert walked(made, saver, control, {"at": ""}) == ["a", "b"]
    state = made.compile(saver).get_state({"configurable": {"thread_id": "t"}})
    assert (state.next, state.values["at"]) == (("c",), "ab")
    assert walked(made, saver) == ["c"]


class Inner(TypedDict, total=False):
    at: str
    found: Annotated[dict[str, str], operator.or_]


Calls = list[str]


def nested(calls: Calls, ways: str, control: RunControl | None = None) -> Graph:
    """A graph that is a node: pay → note → END, both together with its START, or → wait."""

    @node(reads=("at",), writes=("at",))
    async def pay(state: Inner) -> Inner:
        calls.append("pay")
        if control:
            control.request_drain("stopped")
        return {"at": state.get("at", "") + "p"}

    @node(reads=("at", "found"), writes=("found",))
    async def note(state: Inner) -> Inner:
        return {"found": {**state.get("found", {}), state.get("at", ""): "seen"}}

    @node(reads=("found",), writes=("at",))
    async def wait(state: Inner) -> Inner:
        calls.append("wait")
        return {"at": f"{state.get('found')} {interrupt('go on?')}"}

    part = Graph("inner", Inner)
    part.nodes(pay, note, wait)
    part.edge(START, "pay", "note")
    part.route("note", _waits if ways == "waits" else _ends, {"wait": "wait", "end": END})
    part.edge("wait", END)
    part.together(START, "pay", "note")
    outer = Graph("outer", Walk)
    outer.subgraph("inner", part)
    outer.edge(START, "inner", END)
    return outer


def _waits(state: Inner) -> Literal["wait", "end"]:
    return "wait"


def _ends(state: Inner) -> Literal["wait", "end"]:
    return "end"


def test_a_graph_that_waits_goes_on_where_it_waits_and_repeats_nothing_before_it() -> None:
    calls: Calls = []
    saver, made = InMemorySaver(), nested(calls, "waits")
    assert walked(made, saver, given={"at": ""}) == ["pay", "note", "wait"]
    state = made.compile(saver).get_state({"configurable": {"thread_id": "t"}}, subgraphs=True)
    inner: Any = state.tasks[0].state
    assert (inner.next, inner.values["at"], inner.values["found"]) == (("wait",), "p", {"p": "seen"})
    assert walked(made, saver, given=Command(resume="yes")) == ["wait"]
    values = made.compile(saver).get_state({"configurable": {"thread_id": "t"}}).values
    assert values["at"] == "{'p': 'seen'} yes"
    assert calls == ["pay", "wait", "wait"]


def test_a_request_to_stop_is_heard_between_the_nodes_of_a_graph_inside_another() -> None:
    calls: Calls = []
    saver, control = InMemorySaver(), RunControl()
    assert walked(nested(calls, "ends", control), saver, control, {"at": ""}) == ["pay"]
    made = nested(calls, "ends")
    inner: Any = (
        made.compile(saver).get_state({"configurable": {"thread_id": "t"}}, subgraphs=True).tasks[0].state
    )
    assert (inner.next, inner.values["at"]) == (("note",), "p")
    assert walked(made, saver) == ["note"]
    assert calls == ["pay"]


class Batch(TypedDict, total=False):
    jobs: list[str]
    label: str
    paid: Annotated[dict[str, str], merge_by_key]
    told: str


class Job(TypedDict, total=False):
    job: str
    label: str
    paid: Annotated[dict[str, str], merge_by_key]


class Paid(TypedDict, total=False):
    paid: Annotated[dict[str, str], merge_by_key]


def batch(calls: Calls, apart: bool = False) -> Graph:
    """begin → one graph per job: pay → END, or → wait; → tell; together but for `wait`."""

    @node(reads=("jobs",), writes=("jobs",))
    async def begin(state: Batch) -> Batch:
        return {"jobs": state.get("jobs", [])}

    @node(reads=("job",), writes=("paid",), labels=("paid", "wait"))
    async def pay(state: Job) -> Job:
        job = state.get("job", "")
        calls.append(f"pay {job}")
        return {"label": "wait" if job == "asked" else "paid", "paid": {job: "yes"}}

    @node(reads=("job",), writes=("paid",))
    async def wait(state: Job) -> Job:
        return {"paid": {state.get("job", ""): interrupt("pay?")}}

    @node(reads=("paid",), writes=("told",))
    async def tell(state: Batch) -> Batch:
        return {"told": " ".join(f"{k}={v}" for k, v in sorted(state.get("paid", {}).items()))}

    part = Graph("job", Job, input=Job, output=Paid)
    part.nodes(pay, wait)
    part.edge(START, "pay")
    part.by_label("pay", {"paid": END, "wait": "wait"})
    part.edge("wait", END)
    part.together(START, "pay")
    g = Graph("batch", Batch)
    g.nodes(begin, tell)
    g.subgraph("job", part)
    g.edge(START, "begin")
    g.fan_out("begin", _each_job, "job", "tell", apart=lambda _: apart)
    g.edge("job", "tell", END)
    g.together(START, "begin", "job", "tell")
    return g


def _each_job(state: Batch) -> list[Job]:
    return [{"job": job} for job in state.get("jobs", [])]


@contextmanager
def driven(folder: Path, graph: Graph) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """A new store, and what drives the graph in it."""
    store = Store(folder)
    store.create_or_migrate()
    with closing(store.connect_for_driver()) as conn:
        steps = StepLog(conn=conn, run="t")
        app: Any = graph.compile(Saver(conn, steps))
        deps = SimpleNamespace(steps=steps, cancel=Token(), emit=id, effects=KEEPS_NOTHING)

        def drive(given: Any) -> Any:
            out = asyncio.run(app.ainvoke(given, {"configurable": {"thread_id": "t"}}, context=deps))
            conn.flush()
            return out

        yield conn, drive


def ran(tmp_path: Path, graph: Graph, jobs: list[str], calls: Calls, rows: str) -> list[Any]:
    """Run all jobs; returns them done, and the steps in the store."""
    with driven(tmp_path, graph) as (conn, drive):
        out = drive({"jobs": jobs})
        if "__interrupt__" in out:
            assert calls == ["pay asked"], "what was done on the way isn't done again"
            out = drive(Command(resume="yes"))
        assert out["told"] == " ".join(f"{job}=yes" for job in jobs)
        return conn.execute(f"select {rows}").fetchall()


@pytest.mark.parametrize(
    ("jobs", "supersteps"),
    [
        ([], "begin tell"),
        (["a"], "begin job pay tell"),
        (["a", "b"], "begin | job job pay pay | tell"),
        (["asked"], "begin | job pay wait | tell"),
    ],
)
def test_the_graph_of_an_only_payload_shares_its_senders_superstep_unless_it_waits(
    tmp_path: Path, jobs: list[str], supersteps: str
) -> None:
    calls: Calls = []
    rows = ran(tmp_path, batch(calls), jobs, calls, "root_step, node from steps order by root_step, node")
    found = [" ".join(node for step, node in rows if step == at) for at in sorted({step for step, _ in rows})]
    assert " | ".join(found) == supersteps


@pytest.mark.parametrize(
    ("jobs", "apart", "steps_taken"),
    [
        (["a"], False, "begin* job>pay** job* tell*"),
        (["a"], True, "begin* job>pay* job tell"),
        (["a", "b"], False, "begin* job>pay* job job>pay* job tell"),
        (["asked"], False, "begin* job>pay* job>wait job tell"),
    ],
)
def test_a_graph_begins_with_its_only_payload_and_hands_others_over(
    tmp_path: Path, jobs: list[str], apart: bool, steps_taken: str
) -> None:
    """`*`: it ran in the superstep of the node that its graph is."""
    calls: Calls = []
    outer = Graph("outer", Batch)
    outer.subgraph("batch", batch(calls, apart))
    outer.edge(START, "batch", END)
    rows = ran(tmp_path, outer, jobs, calls, "namespace, node, superstep from steps order by seq")
    taken: list[str] = []
    for namespace, name, superstep in rows:
        within = [part.partition(":")[0] for part in namespace.split("|")[1:]]
        taken.append(">".join([*within, name]) + "*" * superstep.count(".0"))
    assert " ".join(taken[:-1]) == steps_taken
    assert taken[-1] == "batch"


@pytest.mark.parametrize(("ways", "kept"), [("ends", ["pay", "note", "inner"]), ("waits", ["pay", "note"])])
def test_nodes_of_a_graph_that_ran_in_its_own_superstep_are_steps_inside_it(
    tmp_path: Path, ways: str, kept: list[str]
) -> None:
    """Even if it parks before the superstep is over. A graph that doesn't park leaves no checkpoint of its own."""
    with driven(tmp_path, nested([], ways)) as (conn, drive):
        out = drive({"at": "", "found": {"x": "y"}})
        rows = conn.execute("select node, namespace, workflow, route from steps order by seq").fetchall()
        inside = conn.execute("select 1 from checkpoints where checkpoint_ns != ''").fetchall()
    assert [row[0] for row in rows] == kept
    assert [row[1].partition(":")[0] for row in rows] == ["inner", "inner", ""][: len(kept)]
    assert rows[1][2:] == ("inner", "wait" if ways == "waits" else "end")
    assert ways == "waits" or (out["at"], out["found"], inside) == ("p", {"x": "y", "p": "seen"}, [])


def test_nodes_that_share_a_superstep_stop_for_nobody() -> None:
    """A hook or a person may keep a node waiting: a kill then would repeat what ran before it."""
    stopping = {
        f"{graph.name}.{name}"
        for graph in every_graph()
        for declare, given in graph.declarations
        if declare is Graph.together
        for name in given
        if (task := nodes_of(graph).get(name)) and task.group in ("hooks", "questions")
    }
    assert stopping == set()


def nodes_of(graph: Graph) -> dict[str, NodeSpec]:
    """The declarations of a graph's own nodes."""
    found = {
        given[0]: find_node_spec(given[1]) for declare, given in graph.declarations if declare is Graph.node
    }
    return {name: spec for name, spec in found.items() if spec}


def every_graph() -> list[Graph]:
    found: dict[str, Graph] = {}

    def add(graph: Graph) -> None:
        if graph.name not in found:
            found[graph.name] = graph
            for part in graph.subgraphs.values():
                add(part.graph)

    for name in PIPELINES:
        add(load_pipeline(name).build_uncompiled_graph())
    return [*found.values()]
