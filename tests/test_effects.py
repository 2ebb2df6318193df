"""What nodes do outside by `effect` and `@durable`, in LangGraph graphs and own workflows, happens once."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm
from langchain_core.messages import AIMessage
from langgraph import graph as langgraph
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeTimeoutError
from langgraph.graph import MessagesState
from langgraph.types import RetryPolicy, Send, interrupt
from typing_extensions import TypedDict

from interlock.engine import Outcome, Pending
from interlock.engine import run as run_async
from interlock.engine.client import Client
from interlock.engine.driver.stop import Stop
from interlock.engine.options import Options
from interlock.engine.read import list_runs
from interlock.engine.travel.fork import fork_run
from interlock.engine.travel.replay import replay_run
from interlock.nodes.effects import EffectEntry
from interlock.state.deps import GRACE_S
from interlock.testing import Stage, kill_everywhere, said
from interlock.workflow import (
    END,
    START,
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

StateGraph: Any = langgraph.StateGraph
"""Untyped: its methods' types are partly unknown."""
WORDS = ("first", "second")
"""Each an effect, whose result is None where a person said that it took place."""


class Words(TypedDict, total=False):
    log: list[str]
    more: str


def leave(word: str) -> str:
    """The effect: a line in the workspace, where `kill_everywhere` compares it."""
    with Path("effects.log").open("a") as file:
        file.write(f"{word}\n")
    return word.upper()


async def leave_async(word: str) -> str:
    await asyncio.sleep(0)
    return leave(word)


async def calls_sync(state: Words, runtime: Runtime) -> Words:
    return {"log": [await effect(runtime, word, leave, word) or word.upper() for word in WORDS]}


async def calls_async(state: Words, runtime: Runtime) -> Words:
    for word in WORDS:
        await effect(runtime, word, leave_async, word)
    return {"log": [*WORDS]}


def in_thread(state: Words, runtime: Runtime) -> Words:
    return {"log": [effect_sync(runtime, word, leave, word) or word.upper() for word in WORDS]}


def decorated(state: Words) -> Words:
    return {"log": [durable(leave)(word) for word in WORDS]}


async def decorated_async(state: Words) -> Words:
    return {"log": [await durable(leave_async)(word) for word in WORDS]}


async def around_a_question(state: Words, runtime: Runtime) -> Words:
    first = await effect(runtime, "first", leave, "first")
    answer = interrupt("go on?")
    second = await effect(runtime, "second", leave, "second")
    return {"log": [first or "FIRST", second or "SECOND"], "more": answer}


def foreign(function: Callable[..., Any], nested: bool = False) -> Any:
    graph = StateGraph(Words).add_node("act", function).add_edge(START, "act")
    if nested:
        graph = StateGraph(Words).add_node("part", graph.compile()).add_edge(START, "part")
    return Workflow.from_langgraph(graph, "acts")


class Out(Output):
    log: list[str]


class Own(State, total=False):
    log: list[str]


def own() -> Workflow:
    @node(writes=("log",))
    async def act(state: Own, runtime: Runtime[Deps]) -> Own:
        return {"log": [await effect(runtime, word, leave, word) or word.upper() for word in WORDS]}

    def build() -> Graph:
        g = Graph("acts", Own)
        g.node("act", act)
        g.edge(START, "act", END)
        return g

    return Workflow("acts", build, Input, Out)


def there(folder: Path) -> Stage:
    stage = Stage(folder)
    os.chdir(stage.work)
    return stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    return there(tmp_path / "stage")


def happened(stage: Stage, request: Pending) -> bool:
    """Whether what a kill hid took place, as a person who looks would find."""
    log = stage.work / "effects.log"
    return log.exists() and request["tool_name"] in log.read_text()


def left(stage: Stage) -> list[str]:
    return (stage.work / "effects.log").read_text().split()


def result(outcome: Outcome) -> tuple[str, Any]:
    return outcome.status, outcome.output.get("log") or (outcome.error or {}).get("message")


def person(request: Pending) -> Any:
    return said(request, "answer: ok")


NODES = {
    "async node": foreign(calls_sync),
    "subgraph": foreign(calls_async, nested=True),
    "sync node": foreign(in_thread),
    "around an interrupt": foreign(around_a_question),
    "own workflow": own(),
}


@pytest.mark.parametrize(
    ("name", "every", "least"),
    [
        pytest.param("subgraph", 5, 3, marks=pytest.mark.sweep),
        ("own workflow", 2, 7),
        *(pytest.param(name, 1, 13, marks=pytest.mark.sweep) for name in NODES),
    ],
)
def test_killed_at_commits_each_effect_happens_once(
    name: str, every: int, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kills = kill_everywhere(there, NODES[name], {}, tmp_path, person=person, happened=happened, every=every)
    assert kills >= least


@pytest.mark.sweep
def test_an_effect_that_is_safe_to_repeat_is_repeated_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each commit, the effect's end among them."""

    async def act(state: Words, runtime: Runtime) -> Words:
        await effect(runtime, "write", Path("a.txt").write_text, "the same", idempotent=True)
        return {}

    monkeypatch.chdir(tmp_path)
    assert kill_everywhere(there, foreign(act), {}, tmp_path, every=2) > 3  # a question would be an error


def test_an_outcome_that_stays_unknown_is_asked_again_and_others_keep_their_answers(stage: Stage) -> None:
    """LangGraph answers a node's interrupts by their place: questions about effects keep theirs."""
    cuts = ["cut", "cut"]

    async def cut_off() -> str:
        if cuts:
            raise asyncio.CancelledError(cuts.pop())  # as where the run is stopped
        return leave("first")

    async def act(state: Words, runtime: Runtime) -> Words:
        name = interrupt("name?")
        first = await effect(runtime, "first", cut_off)
        return {"log": [name, first, interrupt("last?")]}

    workflow = foreign(act)
    outcome, asked = stage.run(workflow, {}), list[str]()
    for _ in range(6):
        for request in outcome.pending:
            asked.append(request["kind"])
        words = (
            said(r, "redo" if r["kind"] == "outcome" else f"answer: a{len(asked)}") for r in outcome.pending
        )
        outcome = stage.resume(outcome.run, *words)
    assert (outcome.output["log"], asked) == (
        ["a1", "FIRST", "a4"],
        ["question", "outcome", "outcome", "question"],
    )


@pytest.mark.parametrize("act", [decorated, decorated_async])
def test_a_decorated_function_is_an_effect(stage: Stage, act: Any) -> None:
    def asks(state: Words) -> Any:
        return {**act(state), "more": interrupt("go on?")}

    async def asks_async(state: Words) -> Any:
        return {**await act(state), "more": interrupt("go on?")}

    workflow = foreign(asks if act is decorated else asks_async)
    assert result(stage.play(workflow, {}, person)) == ("done", ["FIRST", "SECOND"])
    assert left(stage) == [*WORDS]  # the node ran twice


def test_a_function_that_raises_has_failed_and_is_called_again_with_its_node(stage: Stage) -> None:
    tries: list[str] = []

    def unlucky() -> str:
        tries.append("try")
        if len(tries) % 2:
            raise ConnectionError("reset")
        return "made it"

    async def act(state: Words, runtime: Runtime) -> Words:
        return {"log": [await effect(runtime, "call", unlucky)]}

    failed = stage.run(foreign(act), {})
    assert "ConnectionError: reset" in result(failed)[1]
    assert result(stage.resume(failed.run)) == ("done", ["made it"])
    policy = RetryPolicy(max_attempts=2, initial_interval=0.01)
    graph = StateGraph(Words).add_node("act", act, retry_policy=policy).add_edge(START, "act")
    assert result(stage.run(Workflow.from_langgraph(graph, "acts"), {})) == ("done", ["made it"])


class Strange:
    pass


def test_a_result_is_stored_as_the_state_is_or_named(stage: Stage) -> None:
    results: list[Any] = [Strange(), AIMessage("hi")]

    async def act(state: MessagesState, runtime: Runtime) -> Any:
        message = await effect(runtime, "ask", lambda: results.pop(0))
        interrupt("go on?")
        return {"messages": [message]}

    graph = StateGraph(MessagesState).add_node("act", act).add_edge(START, "act")
    failed = stage.run(Workflow.from_langgraph(graph, "acts"), {"messages": []})
    says = "Effect 'ask' of node 'act' took place, but its result can't be stored: "
    assert says in result(failed)[1] and "test_effects.Strange" in result(failed)[1]
    parked = stage.resume(failed.run)
    (request,) = parked.pending
    assert (request["kind"], request["tool_name"], request["preview"]) == (
        "outcome",
        "ask",
        "effect ask of act",
    )
    parked = stage.resume(parked.run, said(request, "redo"))
    done = stage.resume(parked.run, person(parked.pending[0]))
    assert done.output["messages"][0]["content"] == "hi"


def test_outside_a_run_the_function_is_just_called(stage: Stage) -> None:
    graph = StateGraph(Words).add_node("one", in_thread).add_node("two", decorated)
    plain = graph.add_edge(START, "one").add_edge("one", "two").compile()
    assert plain.invoke({})["log"] == ["FIRST", "SECOND"]
    assert left(stage) == [*WORDS, *WORDS]


async def empty(state: Words, runtime: Runtime) -> None:
    await effect(runtime, "", leave, "x")


async def twice(state: Words, runtime: Runtime) -> None:
    await asyncio.gather(*(effect(runtime, "x", leave, "x") for _ in WORDS))


def unnamed(state: Words) -> None:
    durable(leave)(object())  # pyright: ignore[reportArgumentType]


async def elsewhere(state: Words) -> None:
    inner = StateGraph(Words).add_node("act", calls_sync).add_edge(START, "act").compile(InMemorySaver())
    await inner.ainvoke({}, {"configurable": {"thread_id": "other"}})


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (empty, "effect needs a key"),
        (twice, "Effect 'x' is under way twice in one step. Give each effect a key of its own."),
        (unnamed, "@durable can't name the call of 'leave'"),
        (elsewhere, "Effect 'first' stands in a graph whose steps aren't kept with the run"),
    ],
)
def test_what_the_journal_cannot_name_is_refused(stage: Stage, act: Any, message: str) -> None:
    assert message in result(stage.run(foreign(act), {}))[1]


def test_a_fork_repeats_the_effects_after_its_step_only_and_a_replay_none(stage: Stage) -> None:
    graph = StateGraph(Words).add_node("one", calls_sync).add_node("two", around_a_question)
    workflow = Workflow.from_langgraph(graph.add_edge(START, "one").add_edge("one", "two"), "acts")
    parked = stage.run(workflow, {})
    assert left(stage) == ["first", "second", "first"]
    forks = [fork_run(stage.home, parked.run, step, in_place=True).run for step in (0, 1)]
    done = [stage.resume(run, person(stage.resume(run).pending[0])) for run in (parked.run, *forks)]
    assert [*map(result, done)] == [("done", ["FIRST", "SECOND"])] * 3
    # Parked, then its fork before `one`, then its fork where it was parked.
    assert left(stage)[3:] == ["second", *WORDS, *WORDS, "second"]
    for run in done:
        before = left(stage)
        replayed = asyncio.run(replay_run(stage.home, run.run))
        assert replayed.divergence is None
        assert left(stage) == before


MAPS = """
import operator, os, signal, time
from pathlib import Path
from typing import Annotated
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict
from interlock.workflow import effect

class S(TypedDict, total=False):
    i: int
    done: Annotated[list, operator.add]

def charge(item):
    with Path("charged").open("a") as file:
        file.write(f"{item}\\n")
    if not Path("killed").exists():
        if item == 149:
            Path("waits").touch()
            time.sleep(60)  # under way when the kill comes
        if item == 150:
            while not Path("waits").exists():
                time.sleep(0.01)
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

async def work(state, runtime):
    await effect(runtime, "charge", charge, state["i"])
    return {"done": [state["i"]]}

def items(state):
    return [Send("work", {"i": i}) for i in range(300)]

graph = StateGraph(S).add_node(work).add_conditional_edges(START, items, ["work"]).compile()
"""


def test_a_killed_map_asks_only_what_had_begun_names_each_item_and_takes_one_answer_for_all(
    stage: Stage,
) -> None:
    (stage.work / "agent.py").write_text(MAPS)
    env = {"PATH": os.environ["PATH"], "HOME": str(stage.folder), "INTERLOCK_HOME": str(stage.home)}
    assert warm.run(["run", "agent.py:graph"], cwd=stage.work, env=env).returncode == -signal.SIGKILL
    begun = {*map(int, (stage.work / "charged").read_text().split())}
    parked = warm.run(["resume", "latest"], cwd=stage.work, env=env)
    asked = stage.waiting(list_runs(stage.home)[0].run)
    items = [request["args"]["item"] for request in asked]
    assert len({*items}) == len(items) <= 33  # threads of the pool
    assert {*items} <= begun | {*range(300)} and 150 in items
    assert f"{len(items)} unknown outcomes of charge" in parked.stderr
    assert '{"item": 150}' in parked.stderr and "--answer all=redo" in parked.stderr
    wrong = warm.run(["resume", "latest", "--answer", "all=perhaps"], cwd=stage.work, env=env)
    assert "redo or skip settles every unknown outcome" in wrong.stderr
    done = warm.run(["resume", "latest", "--answer", "all=skip"], cwd=stage.work, env=env)
    assert sorted(json.loads(done.stdout)["done"]) == [*range(300)]
    charged = [*map(int, (stage.work / "charged").read_text().split())]
    assert len(charged) == len({*charged}) >= 300 - len(items)


def test_a_try_after_a_time_out_takes_the_result_of_the_effect_that_the_first_began(stage: Stage) -> None:
    """The function is called once, though the node is: nothing can end its thread."""
    calls: list[str] = []

    def charge() -> str:
        calls.append("charge")
        time.sleep(0.6)
        return "paid"

    async def act(state: Words, runtime: Runtime) -> Words:
        return {"log": [await effect(runtime, "charge", charge)]}

    async def calls_tool(state: Words) -> Words:
        return {"log": [await guarded([charged], risk="write")[0].ainvoke({})]}

    def charged() -> str:
        """Charges."""
        return charge()

    policy = RetryPolicy(max_attempts=20, initial_interval=0.01, retry_on=NodeTimeoutError)
    for node_ in (act, calls_tool):
        graph = StateGraph(Words).add_node("act", node_, retry_policy=policy, timeout=0.15)
        workflow = Workflow.from_langgraph(graph.add_edge(START, "act"), "acts")
        yolo = Stage(stage.folder, given={"approval_mode": "yolo"})
        assert result(yolo.run(workflow, {})) == ("done", ["paid"])
        assert calls == ["charge"]
        calls.clear()


@pytest.mark.parametrize("ends_as", [asyncio.CancelledError, ConnectionError])
def test_a_coroutine_that_a_stop_cuts_short_has_an_unknown_outcome_however_it_ends(
    stage: Stage, ends_as: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        EffectEntry.__init__,
        "__defaults__",
        tuple(0.05 if value == GRACE_S else value for value in EffectEntry.__init__.__defaults__ or ()),
    )
    calls: list[str] = []

    async def post() -> str:
        calls.append("post")
        if len(calls) == 1:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                raise ends_as("cut") from None
        return "posted"

    async def act(state: Words, runtime: Runtime) -> Words:
        return {"log": [await effect(runtime, "post", post)]}

    async def fails(state: Words) -> Words:
        while not calls:
            await asyncio.sleep(0.01)
        if len(calls) == 1 and not asked:
            raise ValueError("no")
        return {}

    asked: list[Pending] = []
    graph = StateGraph(Words).add_node("act", act).add_node("fails", fails)
    workflow = Workflow.from_langgraph(graph.add_edge(START, "act").add_edge(START, "fails"), "acts")
    failed = stage.run(workflow, {})
    assert (failed.status, calls) == ("failed", ["post"])
    asked += [Pending(kind="outcome")]  # pyright: ignore[reportCallIssue]
    parked = stage.resume(failed.run)
    assert [request["tool_name"] for request in parked.pending] == ["post"]
    assert result(stage.resume(failed.run, said(parked.pending[0], "redo"))) == ("done", ["posted"])
    assert calls == ["post", "post"]


def test_a_stopped_thread_begins_no_further_effect(stage: Stage) -> None:
    stop = Stop()

    def first(loop: asyncio.AbstractEventLoop) -> str:
        asyncio.run_coroutine_threadsafe(asked(), loop).result()
        return leave("first")

    async def asked() -> None:
        stop()

    loops: list[asyncio.AbstractEventLoop] = []

    def act(state: Words, runtime: Runtime) -> Words:
        done = [effect_sync(runtime, "first", first, loops[-1])]
        return {"log": [*done, effect_sync(runtime, "second", leave, "second")]}

    async def stopped() -> Outcome:
        loops.append(asyncio.get_running_loop())
        return await run_async(foreign(act), {}, options=stage.options, stop=stop)

    outcome = asyncio.run(stopped())
    assert (outcome.status, left(stage)) == ("cancelled", ["first"])
    assert result(stage.resume(outcome.run)) == ("done", ["FIRST", "SECOND"])
    assert left(stage) == ["first", "second"]


def test_a_map_whose_item_fails_begins_no_node_that_waits_for_a_thread(stage: Stage) -> None:
    begun: list[int] = []

    def work(state: Any) -> Words:
        begun.append(state["i"])
        if state["i"] == 3 and len(begun) < 200:
            raise ValueError("no")
        time.sleep(0.02)
        return {}

    def items(state: Words) -> list[Send]:
        return [Send("work", {"i": i}) for i in range(200)]

    graph = StateGraph(Words).add_node("work", work).add_conditional_edges(START, items, ["work"])
    failed = stage.run(Workflow.from_langgraph(graph, "acts"), {})
    assert failed.status == "failed"
    first = len(begun)
    assert first < 150
    begun += [0] * 200
    assert stage.resume(failed.run).status == "done"
    assert sorted({*begun}) == [*range(200)] and len(begun) == 200 + 200 + 1  # the failed one, once more


HINTED = '''
import subprocess
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode
from interlock.workflow import durable, effect_sync

def keeps(text):
    with open("notes", "a") as file:
        file.write(text)

@durable
def once(text):
    keeps(text)

def reads(state):
    open("notes").read(), open("notes", encoding="utf-8")
    once("x")

def wrapped(state, runtime):
    effect_sync(runtime, "note", lambda: subprocess.run(["true"]))
    effect_sync(runtime, "more", keeps, "x")

async def starts(state):
    keeps("x")
    subprocess.run(["true"])

@tool
def post(text: str) -> str:
    """Posts."""
    import requests
    return requests.post("http://x", text)

g = StateGraph(dict)
for node in (reads, wrapped, starts):
    g.add_node(node)
    g.add_edge(START, node.__name__)
g.add_node("tools", ToolNode([post])).add_edge(START, "tools")
'''


def test_doctor_names_effects_without_effect(tmp_path: Path) -> None:
    (file := tmp_path / "agent.py").write_text(HINTED)
    found = Client(Options(home=tmp_path / "state")).find_unguarded_effects(f"{file}:g")
    assert [(*hint,) for hint in found] == [
        ("starts", "open(…, 'a')", "agent.py:9"),
        ("starts", "subprocess.run(…)", "agent.py:26"),
        ("tools.post", "requests.post(…)", "agent.py:32"),
    ]
