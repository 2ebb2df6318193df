"""What nodes, and the programs that they start, write to stdout never lands in the output for programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from api_lab import Ours
from commands import execute
from folders import put

NOISE = """
import ctypes, os, subprocess, sys, threading

def noise(word):
    print(f"NOISE print {word}")
    subprocess.run(["echo", f"NOISE program {word}"], check=True)
    os.write(1, f"NOISE descriptor {word}\\n".encode())
    ctypes.CDLL(None).puts(b"NOISE library")
    ctypes.CDLL(None).fflush(None)
    other = threading.Thread(target=lambda: print(f"NOISE thread {word}", flush=True))
    other.start()
    other.join()

"""
GRAPH = f"""{NOISE}
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    topic: str
    made: str

def work(state):
    noise("sync")
    return {{"made": state.get("topic", "")}}

async def work_async(state):
    noise("async")
    return {{}}

def ask(state):
    return {{"made": interrupt("Which?")}} if state.get("topic") == "ask" else {{}}

builder = StateGraph(State).add_node(work).add_node(work_async).add_node(ask)
builder.add_edge(START, "work").add_edge("work", "work_async").add_edge("work_async", "ask")
graph = builder.compile()
noise("import")
"""
OWN = f"""{NOISE}
from interlock.workflow import END, Graph, Input, Output, START, State, Workflow, node

class Given(Input):
    topic: str = ""

class Made(Output):
    made: str

class Values(State, total=False):
    topic: str
    made: str

@node(reads=("topic",), writes=("made",))
async def work(state):
    noise("own")
    return {{"made": state["topic"]}}

def build():
    g = Graph("own", Values)
    g.nodes(work)
    g.edge(START, "work")
    g.edge("work", END)
    return g

def leave(state, context):
    return Made(made=state["made"])

WORKFLOW = Workflow("own", build, Given, Made, enter=lambda given, context: {{"topic": given.topic}}, leave=leave)
noise("import")
"""
PROCESSORS = f"""{NOISE}
from interlock.workflow import Deps, Runtime, node

@node(reads=("head",))
async def look(state, runtime: Runtime[Deps]):
    noise("processor")
    return {{}}

PROCESSORS = {{"before_model": [look]}}
noise("import")
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    put(folder / "loud.py", GRAPH)
    put(folder / "langgraph.json", {"dependencies": ["."], "graphs": {"loud": "./loud.py:graph"}})
    put(folder / ".interlock" / "workflows" / "own.py", OWN)
    put(folder / "lines.jsonl", '{"topic": "a"}\n{"topic": "b"}\n')
    return folder


def _ran(work: Path, *words: str, code: int = 0) -> list[Any]:
    """The JSON values that a command prints and nothing else; what the nodes write is on stderr."""
    done = execute(work, *words, "--skip-trust")
    assert done.returncode == code, done.stderr
    assert "NOISE" not in done.stdout
    assert "NOISE program" in done.stderr and "NOISE library" in done.stderr
    decoder, text, found = json.JSONDecoder(), done.stdout.strip(), list[Any]()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


FORMATS = {
    "json": ("-o", "json"),
    "--json": ("--json",),
    "stream-json": ("-o", "stream-json"),
    "text in a pipe": (),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("workflow", ["loud", "own"])
def test_a_runs_output_for_programs_is_nothing_else(work: Path, workflow: str, form: str) -> None:
    *_, last = _ran(work, "run", workflow, *FORMATS[form], "--input", '{"topic": "x"}')
    assert (last.get("output") or last)["made"] == "x"


@pytest.mark.parametrize("workflow", ["loud", "own"])
def test_a_batchs_lines_are_nothing_else(work: Path, workflow: str) -> None:
    found = _ran(work, "run", workflow, "--batch", "lines.jsonl")
    assert [line["made"] for line in found] == ["a", "b"]


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_a_resumed_runs_output_and_a_replays_are_nothing_else(work: Path, form: str) -> None:
    *_, asked = _ran(work, "run", "loud", "-o", form, "--input", '{"topic": "ask"}', code=75)
    assert asked["status"] == "waiting"
    done = execute(work, "resume", "latest", "--skip-trust", "-o", form, "--answer", "1=red")
    assert json.loads(done.stdout.splitlines()[-1] if form == "stream-json" else done.stdout)
    assert "NOISE" not in done.stdout
    assert execute(work, "trust", "--yes").returncode == 0
    again = execute(work, "replay", "latest", "--live", "--yes", "--json")
    assert json.loads(again.stdout)["divergence"] is None and "NOISE program" in again.stderr


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_a_prompts_output_is_nothing_else(work: Path, form: str) -> None:
    put(work / "mine.py", PROCESSORS)
    put(work / ".interlock" / "settings.json", {"processors": ["mine.py"]})
    script = put(work / "script.json", [{"text": "Hello."}])
    *_, last = _ran(work, "-p", "hi", "-o", form, "-m", f"script:{script}", "--no-loop-check")
    assert last["response"] == "Hello."


def test_a_node_whose_program_prints_runs_by_the_api(tmp_path: Path) -> None:
    graphs = tmp_path / "graphs"
    put(graphs / "loud.py", GRAPH)
    put(graphs / "langgraph.json", {"dependencies": ["."], "graphs": {"loud": "./loud.py:graph"}})
    ours = Ours(tmp_path / "served", graphs=graphs)
    try:
        with ours.http() as http:
            thread = http.post("/threads", json={}).json()["thread_id"]
            given = {"assistant_id": "loud", "input": {"topic": "x"}}
            assert http.post(f"/threads/{thread}/runs/wait", json=given).json() == {"topic": "x", "made": "x"}
    finally:
        ours.close()
