"""A replay of a LangGraph graph applies what its nodes wrote; none of them runs, unless a person wants it."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put

from interlock.engine import Decision, Options, Outcome, resume_sync, run_sync
from interlock.engine.client import Client
from interlock.engine.store import Store
from interlock.state.errors import UserError
from interlock.state.run import BY_PROCESS

SHAPES = Path(__file__).parents[1] / "foreign_shapes.py"
SENDING = """
import operator
from pathlib import Path
from typing import Annotated

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


def both(left, right):
    return left + right


class State(TypedDict, total=False):
    log: Annotated[list[str], both]


def letter(name):
    with Path(name).open("a") as file:
        file.write("sent\\n")


def send(state):
    if interrupt("send the letter?") != "yes":
        return {"log": ["kept"]}
    letter("sent")
    return {"log": ["sent"]}


def pay(state):
    answer = interrupt("pay the bill?")
    letter("paid")
    return {"log": [answer]}


def route(state):
    letter("routed")
    return "end"


def end(state):
    return {"log": ["end"]}


builder = StateGraph(State).add_node("send", send).add_node("pay", pay).add_node("end", end)
builder = builder.add_node("other", end).add_edge(START, "send").add_edge(START, "pay")
builder = builder.add_conditional_edges("pay", route, ["end", "other"]).add_edge("end", "other")
graph = builder.compile()
"""


@pytest.fixture
def options(tmp_path: Path, home: Path, run: Run) -> Options:
    return Options(home=home / "interlock", workspace=tmp_path / "work", env={})


def sent(options: Options, text: str = SENDING) -> Outcome:
    """A run in which the second question was answered before the first."""
    file = put((options.workspace or Path()) / "agent.py", text)
    parked = run_sync(f"{file}:graph", {}, options=options)
    send, pay = sorted(parked.pending, key=lambda one: one["preview"], reverse=True)
    for request, text in ((pay, "later"), (send, "yes")):
        parked = resume_sync(
            parked.run, decisions=[Decision(request["id"], "proceed_once", text=text)], options=options
        )
    assert parked.output == {"log": ["later", "sent", "end", "end"]}, parked.error
    return parked


def effects() -> dict[str, int]:
    return {name: len(Path(name).read_text().split()) for name in ("sent", "paid", "routed")}


def test_a_replay_runs_no_node_and_no_router_and_the_order_of_answers_is_no_difference(
    options: Options, run: Run
) -> None:
    name, before = sent(options).run, effects()
    told = run("replay", name, "--json")
    assert (told.code, told.json["divergence"]) == (0, None)
    assert effects() == before
    steps = [step["nodes"] for step in told.json["steps"]]
    assert steps == [[], [], ["pay", "send"], ["end"], ["other"]]
    recorded, replayed = told.json["paths"]["recorded"], told.json["paths"]["replayed"]
    assert recorded == replayed


CONTEXT = """
@dataclass
class Context:
    name: str = "x"

    def __post_init__(self):
        letter("connected")


"""


def test_a_replay_makes_no_context_because_its_class_is_code_of_its_author(
    options: Options, run: Run
) -> None:
    text = SENDING.replace("StateGraph(State)", "StateGraph(State, Context)")
    text = text.replace("builder =", f"{CONTEXT}builder =", 1).replace(
        "import operator", "from dataclasses import dataclass"
    )
    name = sent(options, text).run
    before = Path("connected").read_text()
    assert run("replay", name).code == 0 and before
    assert Path("connected").read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param('return {"log": [answer]}', 'return {"log": ["?"]}', "'pay' has changed", id="node"),
        pytest.param('write("sent', 'write("SENT', "has changed", id="function"),
        pytest.param('return "end"', 'return "other"', "'pay' has changed", id="router"),
        pytest.param(
            'add_edge("end", "other")', 'add_edge("end", "send")', "recorded other, replayed send", id="edge"
        ),
        pytest.param("left + right", "right + left", "changed in the state: log", id="reducer"),
    ],
)
def test_a_changed_graph_is_named_where_it_counts(
    options: Options, run: Run, old: str, new: str, words: str
) -> None:
    name, before = sent(options).run, effects()
    assert old in SENDING
    put(Path("agent.py"), SENDING.replace(old, new))
    told = run("replay", name)
    assert told.code == 1 and words in " ".join(told.out.split()), told.out
    assert effects() == before


def test_a_replay_stops_where_the_record_has_no_writes(options: Options, run: Run) -> None:
    name = sent(options).run
    with closing(Store(options.home).connect()) as conn, conn.transaction():
        conn.execute_raw("delete from writes where task_path like '%, end'")
    told = run("replay", name)
    assert told.code == 1 and "nothing that node 'end' wrote" in told.out
    assert f"interlock replay {name} --live" in told.out


def test_a_live_replay_lists_the_nodes_first_and_asks(options: Options, run: Run) -> None:
    name, before = sent(options).run, effects()
    asked = run("replay", name, "--live")
    assert asked.code == 2 and "send" in asked.err and "Use --yes" in asked.err
    assert effects() == before, "nobody agreed"
    told = run("replay", name, "--live", "--yes", "--json")
    assert told.json["divergence"] is None, "each question got its own answer"
    assert effects()["sent"] == before["sent"] + 1


@pytest.mark.parametrize("key", sorted(BY_PROCESS))
def test_a_graphs_key_may_have_the_name_of_a_channel_of_the_engine_and_counts_in_a_replay(
    options: Options, run: Run, key: str
) -> None:
    """In our own workflows these depend on the process that drives, so replays don't compare them."""
    counting = SENDING.replace("log", key).replace("[answer]", 'Path("paid").read_text().split()')
    file = put((options.workspace or Path()) / "agent.py", counting)
    parked = run_sync(f"{file}:graph", {}, options=options)
    decisions = [Decision(request["id"], "proceed_once", text="yes") for request in parked.pending]
    ended = resume_sync(parked.run, decisions=decisions, options=options)
    assert ended.output == {key: ["sent", "sent", "end", "end"]}
    told = run("replay", ended.run, "--live", "--yes", "--json")
    assert told.json["divergence"]["keys"] == [key]


@pytest.mark.parametrize(
    ("body", "keys", "error"),
    [
        ('{"log": [interrupt("pay the bill?")]}', None, ""),
        ('{"log": [interrupt("pay the bill?") + "!"]}', ["log"], ""),
        ('{"log": [interrupt("pay twice?")]}', [], "asks what nobody was asked: pay twice?"),
    ],
)
def test_only_the_function_of_swap_runs_and_is_answered_as_the_record_answers_its_question(
    options: Options, body: str, keys: list[str] | None, error: str
) -> None:
    name, before = sent(options).run, effects()
    marks = 'open("swapped", "w").close()'
    new = f"from langgraph.types import interrupt\n\n\ndef pay(state):\n    {marks}\n    return {body}\n"
    put(Path("new.py"), new)
    found = Client(options).replay_run(name, swap="pay=new.py:pay").divergence
    counted = effects()
    assert Path("swapped").exists() and (counted["sent"], counted["paid"]) == (before["sent"], before["paid"])
    if keys is None:
        assert found is None
    else:
        assert found and found["keys"] == keys and error in (found["error"] or {"message": ""})["message"]


def test_other_workflows_have_no_live_replay_and_graphs_choose_their_own_models(options: Options) -> None:
    client, name = Client(options), sent(options).run
    with pytest.raises(UserError, match="has no node 'mail'"):
        put(Path("new.py"), "def f(state): ...")
        client.replay_run(name, swap="mail=new.py:f")
    with pytest.raises(UserError, match="chooses its models itself"):
        client.fork_with_model(name, "flash")
    script = put(Path("script.json"), json.dumps([{"text": "Hello."}]))
    own = run_sync("main", {"prompt": "Hi."}, options=replace(options, model=f"script:{script}"))
    with pytest.raises(UserError, match="always replays without effects"):
        client.replay_run(own.run, live=True)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("edited", {"text": "tea"}),
        ("parallel", {"text": "tea"}),
        ("sent", {"text": "tea"}),
        ("nested", {"text": "tea"}),
        ("asking_on", {"text": "tea"}),
        ("handing", {"text": "tea"}),
        ("typed", {"name": "tea"}),
        ("loop", {"text": "tea"}),
        ("talk", {"messages": "tea"}),
        ("functional", {"input": "tea"}),
        ("paused", {"text": "tea"}),
        ("paused_inside", {"text": "tea"}),
    ],
)
def test_graphs_of_all_shapes_replay_from_what_they_wrote(
    options: Options, name: str, given: dict[str, Any]
) -> None:
    file = shutil.copy(SHAPES, "shapes.py")
    outcome = run_sync(f"{Path(file).absolute()}:{name}", given, options=options)
    for _ in range(9):
        if outcome.status != "waiting":
            break
        made = [Decision(request["id"], "proceed_once", text="7") for request in outcome.pending]
        outcome = resume_sync(outcome.run, decisions=made, options=options)
    assert outcome.status == "done", outcome.error
    found = Client(options).replay_run(outcome.run)
    assert found.divergence is None
    assert found.paths.recorded == found.paths.replayed and found.paths.recorded
