"""Runs that somebody cancels: those that wait for a person end, those that another process drives stop; on every store,
by every door, and every command says so."""

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from api_lab import Ours
from commands import Run
from folders import put
from patience import until
from warm import Warm

ASKS = """
import operator, time
from pathlib import Path
from typing import Annotated, Any
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

HERE = Path(__file__).parent

class State(TypedDict, total=False):
    topic: str
    said: Annotated[list[str], operator.add]

def ask(state):
    return {"said": [interrupt("Which colour?")]}

async def waits(state):
    import asyncio
    (HERE / "begun").touch()
    while not (HERE / "open").exists():
        await asyncio.sleep(0.01)
    return {"said": ["waited"]}

def blocks(state):
    (HERE / "begun").touch()
    while not (HERE / "open").exists():
        time.sleep(0.01)
    return {"said": ["blocked"]}

def built(*names):
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, globals()[name])
        builder.add_edge(START, name)
    return builder.compile()

asking = built("ask")
waiting = built("waits")
blocking = built("blocks")
both = built("ask", "waits")
"""
OWN = """
from interlock.workflow import END, Graph, Input, Output, START, State, Workflow, ask_person

class Given(Input):
    topic: str = ""

class Made(Output):
    answer: str = ""

class Values(State, total=False):
    topic: str
    answer: str

def build():
    g = Graph("own", Values)
    g.subgraph("ask", ask_person("Which colour?", answer="answer"))
    g.edge(START, "ask")
    g.edge("ask", END)
    return g

def enter(given, context):
    return {"topic": given.topic}

def leave(state, context):
    return Made(answer=state.get("answer", ""))

WORKFLOW = Workflow("own", build, Given, Made, enter=enter, leave=leave)
"""
GRAPHS = {name: f"./asks.py:{name}" for name in ("asking", "waiting", "blocking", "both")}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    put(folder / "asks.py", ASKS)
    put(folder / "langgraph.json", {"dependencies": ["."], "graphs": GRAPHS})
    put(folder / ".interlock" / "workflows" / "own.py", OWN)
    return folder


WAYS: dict[str, tuple[tuple[str, ...], int]] = {
    "cancel": (("cancel", "latest"), 0),
    "resume --cancel": (("resume", "latest", "--cancel"), 130),
    "resume --cancel 1": (("resume", "latest", "--cancel", "1"), 130),
    "resume --cancel all": (("resume", "latest", "--cancel", "all"), 130),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workflow", ["asking", "own"])
def test_a_run_that_waits_at_its_own_question_is_cancelled_and_every_command_says_so(
    run: Run, work: Path, workflow: str, way: str
) -> None:
    asked = run("run", workflow, "--skip-trust")
    assert asked.code == 75 and "interlock cancel" in asked.err
    command, code = WAYS[way]
    done = run(*command)
    assert done.code == code and "cancelled" in done.err.lower()
    (row,) = run("runs", "--json").json
    assert (row["status"], row["waiting"]) == ("cancelled", 0)
    shown = run("show", "latest").out
    assert "Cancelled by " in shown and "interlock resume" not in shown
    assert "cancelled by" in shown.partition("decided")[2]
    assert run("approvals").err.startswith("No open requests")
    waited = run("wait", "latest")
    assert waited.code == 130 and "cancelled" in waited.out
    assert run("resume", "latest", "--skip-trust").code == 130
    late = run("resume", "latest", "--skip-trust", "--answer", "1=red")
    assert late.code == 2 and "was cancelled" in late.err
    again = run("cancel", "latest")
    assert again.code == 1 and "is cancelled: there is nothing to stop" in again.err
    assert run("doctor", "--store").code == 0
    assert run("runs", "--json").json[0]["status"] == "cancelled"


def test_a_cancelled_run_is_forked_where_it_asked(run: Run, work: Path) -> None:
    assert run("run", "asking", "--skip-trust").code == 75
    assert run("cancel", "latest").code == 0
    (row,) = run("runs", "--json").json
    assert run("fork", row["run"], "--at", str(row["step"]), "--in-place").code == 0
    fork = next(one["run"] for one in run("runs", "--json").json if one["run"] != row["run"])
    assert run("resume", fork, "--skip-trust").code == 75
    done = run("resume", fork, "--skip-trust", "--answer", "2=red", "-o", "json")
    assert done.code == 0 and done.json["said"] == ["red"]


class _Driven:
    """A run that another process drives."""

    def __init__(self, work: Path, workflow: str) -> None:
        words = ["run", workflow, "--skip-trust", "-o", "json"]
        self.process = Warm(words, cwd=work, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until((work / "begun").exists, "the node")

    def end(self) -> tuple[int, dict[str, Any], str]:
        assert self.process.stdout and self.process.stderr
        with self.process.stdout as out, self.process.stderr as err:
            written, said = out.read(), err.read()
        return self.process.wait(), json.loads(written) if written else {}, said


def test_a_run_that_another_process_drives_stops_and_can_be_resumed(run: Run, work: Path) -> None:
    driven = _Driven(work, "waiting")
    told = run("cancel", "latest")
    assert told.code == 0 and "was asked to stop. Resume it with" in told.err
    code, _, said = driven.end()
    assert code == 130, said
    (row,) = run("runs", "--json").json
    assert (row["status"], row["error"]["type"]) == ("interrupted", "cancelled")
    assert run("wait", "latest").code == 130
    put(work / "open")
    assert run("resume", "latest", "--skip-trust").code == 0


@pytest.mark.sweep
def test_a_driven_run_whose_code_heeds_nothing_ends_with_its_process_and_says_so(
    run: Run, work: Path
) -> None:
    driven = _Driven(work, "blocking")
    assert run("cancel", "latest").code == 0
    code, _, said = driven.end()
    assert code == 130 and "blocks (asks.py:" in said and "blocks and can't be stopped" in said
    (row,) = run("runs", "--json").json
    assert (row["status"], row["error"]["type"]) == ("interrupted", "cancelled")
    assert "Stopped on request" in run("show", "latest").out


BLOCKS = """
import time
from interlock.workflow import END, Graph, Input, Output, START, State, Workflow, node

class Values(State, total=False):
    pass

@node()
async def look_up(state):
    time.sleep(600)
    return {}

def build():
    g = Graph("stuck", Values)
    g.nodes(look_up)
    g.edge(START, "look_up", END)
    return g

WORKFLOW = Workflow("stuck", build, Input, Output)
"""


def test_a_node_of_ones_own_that_blocks_past_the_time_out_is_named(run: Run, work: Path) -> None:
    put(work / ".interlock" / "workflows" / "stuck.py", BLOCKS)
    process = Warm(
        ["run", "stuck", "--skip-trust", "--timeout", "1"], cwd=work, env=os.environ, stderr=subprocess.PIPE
    )
    assert process.stderr
    with process.stderr as err:
        said = err.read()
    assert process.wait() == 124
    assert "look_up (stuck.py:10) blocks after its time-out" in said
    (row,) = run("runs", "--json").json
    assert (row["status"], row["error"]["type"]) == ("interrupted", "timeout")


def test_a_run_that_asks_while_another_branch_works_is_cancelled_and_its_driver_stops(
    run: Run, work: Path
) -> None:
    driven = _Driven(work, "both")
    until(lambda: run("approvals", "--json").json, "the request")
    told = run("resume", "latest", "--skip-trust", "--cancel", "all")
    assert told.code == 0 and "was asked to stop" in told.err
    code, _, said = driven.end()
    assert code == 130, said
    (row,) = run("runs", "--json").json
    assert (row["status"], row["waiting"]) == ("cancelled", 0)
    assert run("wait", "latest").code == 130


@pytest.fixture
def ours(tmp_path: Path) -> Generator[Ours]:
    graphs = tmp_path / "graphs"
    put(graphs / "asks.py", ASKS)
    put(graphs / "langgraph.json", {"dependencies": ["."], "graphs": GRAPHS})
    found = Ours(tmp_path / "served", graphs=graphs)
    yield found
    found.close()


def test_the_page_cancels_a_run_that_waits_and_a_program_that_answers_later_hears_of_it(ours: Ours) -> None:
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        place = f"/threads/{thread}/runs/wait"
        asked = http.post(place, json={"assistant_id": "asking", "input": {}}).json()
        assert asked["__interrupt__"][0]["value"] == "Which colour?"
        (row,) = http.get("/api/runs").json()["runs"]
        assert http.post(f"/api/runs/{row['run']}/stop", json={}).json()["became"] == "ended"
        assert http.get(f"/api/runs/{row['run']}").json()["status"] == "cancelled"
        assert http.get(f"/threads/{thread}").json()["status"] == "idle", "it asks nobody any more"
        assert [one["thread_id"] for one in http.post("/threads/search", json={"status": "idle"}).json()] == [
            thread
        ]
        late = http.post(place, json={"assistant_id": "asking", "command": {"resume": "red"}}).json()
        assert "Cancelled by" in late["__error__"]["message"]
        anew = http.post(place, json={"assistant_id": "asking", "input": {"topic": "x"}}).json()
        assert anew["__interrupt__"][0]["value"] == "Which colour?"
        assert http.get(f"/api/runs/{row['run']}").json()["status"] == "waiting"


def test_a_drive_that_is_cancelled_before_it_began_leaves_its_thread_idle(ours: Ours) -> None:
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        later = {"assistant_id": "asking", "input": {}, "after_seconds": 600}
        place = f"/threads/{thread}/runs/{http.post(f'/threads/{thread}/runs', json=later).json()['run_id']}"
        assert http.get(f"/threads/{thread}").json()["status"] == "busy"
        assert http.post(f"{place}/cancel?wait=1").status_code == 200
        found = http.get(f"/threads/{thread}").json()
        assert (found["status"], found.get("error")) == ("idle", None)
        again = http.post(f"{place}/cancel?wait=1"), http.post("/runs/cancel", json={"status": "all"})
        assert [one.status_code for one in again] == [404, 404], "nothing is left to cancel"


@pytest.mark.sweep
def test_a_program_stops_a_drive_whose_node_blocks_and_no_row_says_that_it_runs(ours: Ours) -> None:
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        begun = http.post(f"/threads/{thread}/runs", json={"assistant_id": "blocking", "input": {}}).json()
        place = f"/threads/{thread}/runs/{begun['run_id']}"
        until((ours.folder / "begun").exists, "the node")
        assert http.post(f"{place}/cancel?wait=1").status_code == 200
        assert http.get(place).json()["status"] == "interrupted"
        (row,) = http.get("/api/runs").json()["runs"]
        assert (row["status"], row["error"]["type"]) == ("interrupted", "cancelled")
