"""Building blocks of a workflow of one's own: joins, bounded loops, people, models, limits, nested workflows."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.graph import StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from interlock.engine import Decision, Outcome, events, resume, run
from interlock.engine.client import Client
from interlock.state.errors import SetupError, UserError
from interlock.state.events import Init, NodeStart, Result
from interlock.testing import Scene, Stage, check_paths, kill_everywhere
from interlock.workflow import (
    END,
    START,
    Deps,
    Field,
    Graph,
    Input,
    Output,
    Runtime,
    State,
    Workflow,
    agent,
    approve,
    ask_model,
    ask_person,
    loop,
    merge_by_key,
    node,
)


class In(Input):
    text: str = "x"


class Out(Output):
    log: dict[str, str] = Field(default_factory=dict)
    text: str = ""


class Own(State, total=False):
    text: str
    log: Annotated[dict[str, str], merge_by_key]
    answer: str
    feedback: str
    status: str


def step(name: str, **declared: Any) -> Any:
    """A node that adds its name to the log."""

    @node(writes=("log",), **declared)
    async def leave(state: Own) -> Own:
        return {"log": {name: "was here"}}

    leave.__name__ = name
    return leave


def put_steps(g: Graph, *names: str, **declared: Any) -> None:
    g.nodes(*(step(name, **declared) for name in names))


def alone(function: Any) -> Callable[[Graph], None]:
    """A graph of one node."""

    def wire(g: Graph) -> None:
        g.nodes(function)
        g.edge(START, function.__name__, END)

    return wire


def workflow(wire: Callable[[Graph], None], name: str = "own") -> Workflow:
    def build() -> Graph:
        g = Graph(name, Own)
        wire(g)
        return g

    return Workflow(name, build, In, Out)


def play(stage: Stage, wire: Callable[[Graph], None], *said: str) -> Outcome:
    from interlock.testing import reads_from

    return stage.play(workflow(wire), {}, reads_from(said))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "stage")


def branches(g: Graph, together: bool = False) -> None:
    """A short branch and a long one that join."""
    put_steps(g, "short", "long", "longer", "meet")
    if together:
        g.together("short", "long", "longer", "meet")
    g.edge("long", "longer")
    g.join(("short", "longer"), "meet")


@pytest.mark.parametrize("together", [False, True])
def test_a_join_runs_once_after_branches_of_different_length(stage: Stage, together: bool) -> None:
    def wire(g: Graph) -> None:
        put_steps(g, "begin")
        branches(g, together)
        g.edge(START, "begin", "short")
        g.edge("begin", "long")
        g.edge("meet", END)

    done = play(stage, wire)
    path = stage.path(done.run)
    assert (done.status, sorted(path), path[-1]) == (
        "done",
        ["begin", "long", "longer", "meet", "short"],
        "meet",
    )
    assert done.output["log"].keys() == {"begin", "short", "long", "longer", "meet"}


@pytest.mark.parametrize("feedback", ["answer", "feedback"])
def test_branches_may_begin_at_the_start_and_wait_for_people(stage: Stage, feedback: str) -> None:
    def wire(g: Graph) -> None:
        g.subgraph("left", approve("Left?"))
        g.subgraph("right", approve("Right?", feedback=feedback))
        put_steps(g, "l", "r", "meet")
        g.edge(START, "left")
        g.edge(START, "right")
        g.by_label("left", {"approved": "l", "rejected": "l"})
        g.by_label("right", {"approved": "r", "rejected": "r"})
        g.join(("l", "r"), "meet")
        g.edge("meet", END)

    if feedback == "feedback":
        with pytest.raises(
            SetupError, match=r"'left' and 'right' run side by side and both write \['feedback'\]"
        ):
            workflow(wire).compile()
        return
    parked = stage.run(workflow(wire), {})
    assert sorted(request["reason"] for request in parked.pending) == ["Left?", "Right?"]
    first, second = parked.pending
    waiting = stage.resume(parked.run, Decision(first["id"], "proceed_once"))
    assert [request["reason"] for request in waiting.pending] == [second["reason"]]
    done = stage.resume(parked.run, Decision(second["id"], "reject"))
    assert (done.status, stage.path(done.run)[-1]) == ("done", "meet")


def test_joins_that_could_wait_together_are_refused() -> None:
    def wire(g: Graph) -> None:
        put_steps(g, "a", "b", "c", "inner", "outer")
        for name in ("a", "b", "c"):
            g.edge(START, name)
        g.join(("a", "b"), "inner")
        g.join(("inner", "c"), "outer")
        g.edge("outer", END)

    with pytest.raises(SetupError, match="the joins 'inner' and 'outer' could wait at the same time"):
        workflow(wire).compile()


def test_a_loop_goes_round_so_often_and_then_on(stage: Stage) -> None:
    def wire(g: Graph) -> None:
        put_steps(g, "work")
        loop(g, "again", most=3, again="work", enough=END)
        g.edge(START, "work", "again")

    with pytest.raises(SetupError, match="names no node 'again'"):  # `loop` makes it
        Graph("own", Own).edge(START, "again")
    done = play(stage, wire)
    assert stage.path(done.run) == ["work", "again"] * 4
    assert workflow(wire).build().unbounded() == []


def colour(g: Graph) -> None:
    g.subgraph("ask", ask_person("Which colour?", answer="text", show="answer", options=("red", "blue")))
    put_steps(g, "red", "blue", "none")
    for name in ("red", "blue", "none"):
        g.edge(name, END)
    g.edge(START, "ask")
    g.by_label("ask", {"red": "red", "blue": "blue", "declined": "none"})


def test_a_question_with_options_leads_where_its_answer_says(tmp_path: Path) -> None:
    scenes = [
        Scene({}, "ask red", said=["answer: RED"]),
        Scene({}, "ask blue", said=["answer: green", "answer: blue"]),
        Scene({}, "ask none", said=["reject: neither"]),
    ]
    check_paths(workflow(colour), scenes, tmp_path)
    with pytest.raises(AssertionError, match="no scene takes"):
        check_paths(workflow(colour), scenes[:1], tmp_path / "less")
    with pytest.raises(AssertionError, match="scene 0 took 'ask red', expected 'ask blue'"):
        check_paths(workflow(colour), [Scene({}, "ask blue", said=["answer: red"])], tmp_path / "other")


def test_what_a_person_made_of_a_text_goes_on(stage: Stage) -> None:
    def wire(g: Graph) -> None:
        g.subgraph("check", approve("Fine?", show="text"))
        g.edge(START, "check")
        g.by_label("check", {"approved": END, "rejected": END})

    parked = stage.run(workflow(wire), {"text": "a draft"})
    assert parked.pending[0]["choices"] == ["proceed_once", "modify", "reject"]
    for wrong, told in (({"txt": "better"}, "Did you mean 'text'"), ({}, "lacks 'text'")):
        with pytest.raises(UserError, match=told):
            stage.resume(parked.run, Decision(parked.pending[0]["id"], "modify", args=wrong))
    done = stage.resume(parked.run, Decision(parked.pending[0]["id"], "modify", args={"text": "better"}))
    assert done.output["text"] == "better"


@pytest.mark.parametrize(
    "part",
    [approve("Fine?", show="txt"), ask_person("Which?", answer="txt"), agent(task="txt", answer="text")],
)
def test_a_part_that_names_a_key_that_the_state_lacks_is_refused(part: Graph) -> None:
    with pytest.raises(SetupError, match=r"own.check is given \['txt'\], which Own lacks; it has .*'text'"):
        Graph("own", Own).subgraph("check", part)


TRIES: list[int] = []


def flaky(**declared: Any) -> Callable[[Graph], None]:
    """A node that fails, or sleeps for long, the first two times."""

    @node(writes=("text",), retry_wait_s=0.0, **declared)
    async def fetch(state: Own) -> Own:
        TRIES.append(1)
        if len(TRIES) < 3 and "timeout_s" in declared:
            await asyncio.sleep(60)
        if len(TRIES) < 3:
            raise OSError("no route")
        return {"text": f"after {len(TRIES)}", **({"label": "ok"} if "labels" in declared else {})}

    def wire(g: Graph) -> None:
        TRIES.clear()
        g.nodes(fetch)
        g.edge(START, "fetch")
        if "labels" not in declared:
            g.edge("fetch", END)
            return
        put_steps(g, "sorry")
        g.edge("sorry", END)
        g.by_label("fetch", {"ok": END, **{label: "sorry" for label in declared["labels"] if label != "ok"}})

    return wire


def test_a_node_is_tried_again_and_then_its_error_ends_the_drive_or_leads_on(tmp_path: Path) -> None:
    def ended(name: str, **declared: Any) -> Outcome:
        return play(Stage(tmp_path / name), flaky(**declared))

    assert ended("enough", retries=2).output["text"] == "after 3"
    failed = ended("few", retries=1)
    assert (failed.status, "no route" in str(failed.error), len(TRIES)) == ("failed", True, 2)
    led = ended("led", retries=1, labels=("ok", "failed"))
    assert led.output["log"] == {"sorry": "was here"}


def test_a_time_out_is_an_edge_or_ends_the_drive_by_name(tmp_path: Path) -> None:
    led = play(Stage(tmp_path / "led"), flaky(timeout_s=0.05, labels=("ok", "timeout")))
    assert (led.status, led.output["log"]) == ("done", {"sorry": "was here"})
    late = play(Stage(tmp_path / "late"), flaky(timeout_s=0.05))
    assert late.error == {
        "type": "run",
        "message": "own.fetch took longer than 0.05 s. Try again with: interlock resume",
    }
    assert play(Stage(tmp_path / "again"), flaky(timeout_s=1.0, retries=2)).output["text"] == "after 3"


class Colour(BaseModel):
    name: str


def test_a_model_answers_in_text_or_in_a_shape_once_for_each_question(tmp_path: Path) -> None:
    @node(writes=("log",))
    async def ask(state: Own, runtime: Runtime[Deps]) -> Own:
        text = await ask_model(runtime, "Say something.")
        same = await ask_model(runtime, "Say something.")
        shaped = await ask_model(runtime, "Which colour?", schema=Colour, role="painter")
        return {"log": {"text": text, "same": same, "colour": shaped.name}}

    replies = [
        {"text": "Hello."},
        {"role": "painter", "text": "blue, I think"},
        {"role": "painter", "text": '```json\n{"name": "blue"}\n```'},
    ]
    done = play(Stage(tmp_path / "well", replies), alone(ask))
    assert done.output["log"] == {"text": "Hello.", "same": "Hello.", "colour": "blue"}
    failed = play(Stage(tmp_path / "badly", [*replies[:2], replies[1]]), alone(ask))
    assert "The model's answer (role 'painter') can't be used: it is no Colour" in str(failed.error)
    again = Stage(tmp_path / "again", [*replies[:2], *replies[1:]])
    assert again.resume(play(again, alone(ask)).run).output["log"]["colour"] == "blue"


def test_a_workflow_is_a_part_of_another(stage: Stage) -> None:
    """Also one that begins with branches."""
    inner = workflow(colour, "inner")

    def begins_with_branches() -> Graph:
        g = Graph("begins", Own)
        branches(g)
        g.edge(START, "short")
        g.edge(START, "long")
        g.edge("meet", END)
        return g

    def wire(g: Graph) -> None:
        g.subgraph("inner", inner.build)
        g.subgraph("begins", begins_with_branches)
        g.edge(START, "inner", "begins", END)

    done = play(stage, wire, "answer: red")
    assert done.output["log"].keys() == {"red", "short", "long", "longer", "meet"}


def test_an_output_that_the_state_lacks_is_told(stage: Stage) -> None:
    class Needs(Output):
        missing: str

    failed = workflow(alone(step("work")))
    outcome = stage.run(Workflow("own", failed.build, In, Needs), {})
    assert (outcome.status, "The output of 'own': missing: Field required" in str(outcome.error)) == (
        "failed",
        True,
    )


def parked_at_a_person(g: Graph) -> None:
    put_steps(g, "work")
    g.subgraph("check", approve("Fine?"))
    g.edge(START, "work", "check")
    g.by_label("check", {"approved": END, "rejected": END})


def test_events_come_one_by_one_and_the_last_tells_the_end(stage: Stage) -> None:
    async def told() -> tuple[list[Any], list[Any]]:
        first = [e async for e in events(run, workflow(parked_at_a_person), {}, options=stage.options)]
        name, waits = first[0].session_id, first[-1].pending_approvals
        said = [Decision(waits[0]["id"], "proceed_once")]
        return first, [e async for e in events(resume, name, decisions=said, options=stage.options)]

    first, second = asyncio.run(told())
    assert isinstance(first[0], Init)
    assert next(e.node for e in first if isinstance(e, NodeStart)) == "work"
    assert isinstance(first[-1], Result)
    assert (first[-1].status, second[-1].status) == ("waiting", "done")


def test_events_that_nobody_wants_any_more_stop_the_run_which_goes_on_later(stage: Stage) -> None:
    @node(writes=("log",))
    async def wait(state: Own) -> Own:
        if not TRIES:
            TRIES.append(1)
            await asyncio.sleep(60)
        return {"log": {"wait": "over"}}

    async def broken_off() -> str:
        TRIES.clear()
        stream = events(run, workflow(alone(wait)), {}, options=stage.options)
        name = ""
        async for event in stream:
            name = event.session_id if isinstance(event, Init) else name
            if isinstance(event, NodeStart):
                break
        await stream.aclose()
        return name

    name = asyncio.run(broken_off())
    assert stage.resume(name).output["log"] == {"wait": "over"}


def test_events_raise_what_the_door_raises(stage: Stage) -> None:
    async def refused() -> None:
        async for _ in events(run, "no-such-workflow", {}, options=stage.options):
            pass

    with pytest.raises(Exception, match="No workflow 'no-such-workflow'"):
        asyncio.run(refused())


def test_kills_find_an_effect_that_goes_past_the_journal(tmp_path: Path) -> None:
    @node(writes=("log",))
    async def append(state: Own, runtime: Runtime[Deps]) -> Own:
        with (runtime.context.info.workspace / "log.txt").open("a") as file:
            file.write("once\n")
        return {"log": {"append": "done"}}

    with pytest.raises(AssertionError, match=r"killed at commit \d+: files: .*log.txt"):
        kill_everywhere(Stage, workflow(alone(append)), {}, tmp_path)


class Shared(TypedDict, total=False):
    text: str
    own: int


@pytest.mark.parametrize("compiled", [True, False])
def test_a_graph_of_langgraph_is_a_part(tmp_path: Path, compiled: bool) -> None:
    def count(state: Shared) -> Shared:
        return {"own": len(state["text"])}

    def shout(state: Shared) -> Shared:
        return {"text": state["text"].upper() + str(state.get("own"))}

    inner = (
        StateGraph(Shared).add_node(count).add_node(shout).add_edge(START, "count").add_edge("count", "shout")
    )

    def wire(g: Graph) -> None:
        g.subgraph("inner", inner.compile() if compiled else inner)
        g.edge(START, "inner", END)

    assert play(Stage(tmp_path), wire).output["text"] == "X1"


def test_a_graph_of_langgraph_that_asks_as_a_part_fails_with_what_to_do(tmp_path: Path) -> None:
    def asks(state: Shared) -> Shared:
        return {"text": interrupt(state["text"])}

    inner = StateGraph(Shared).add_node(asks).add_edge(START, "asks")

    def wire(g: Graph) -> None:
        g.subgraph("inner", inner)
        g.edge(START, "inner", END)

    assert "own.inner called interrupt(), which" in str(play(Stage(tmp_path), wire).error)


def test_a_graph_of_langgraph_that_is_a_part_does_not_run_in_a_replay(tmp_path: Path) -> None:
    stage, calls = Stage(tmp_path), tmp_path / "calls"

    def shout(state: Shared) -> Shared:
        with calls.open("a") as file:
            file.write("x")
        return {"text": state["text"].upper()}

    inner = StateGraph(Shared).add_node(shout).add_edge(START, "shout")

    def wire(g: Graph) -> None:
        g.subgraph("inner", inner)
        g.edge(START, "inner", END)

    done = play(stage, wire)
    assert done.output["text"] == "X"
    assert Client(stage.options).replay_run(done.run).divergence is None
    assert calls.read_text() == "x"
