"""A node that raised, its error handler, and the node that a run was killed in: in lists, diagrams and exports."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from commands import ENTRY, Run
from folders import put
from patience import until

GRAPH = """
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

class State(TypedDict, total=False):
    said: str
    tries: int

def fails(state):
    raise ValueError("the till is empty,\\nkey=s3cret-t0ken-1234567890")

def mend(state):
    return {"said": "mended"}

def jump(state) -> Command:
    return Command(update={"said": "jumped"}, goto="last")

def fine(state):
    return {}

def built(handler):
    made = StateGraph(State).add_node("first", fine).add_node("fails", fails, error_handler=handler)
    made = made.add_node("last", fine).add_edge(START, "first").add_edge("first", "fails")
    return made.add_edge("fails", "last").compile()

mended, jumped, broken = built(mend), built(jump), built(None)

import pathlib
def flaky(state):
    marker = pathlib.Path("tried")
    if not marker.exists():
        marker.touch()
        raise OSError("not yet")
    return {"said": "at last"}

inner = StateGraph(State).add_node("flaky", flaky).add_edge(START, "flaky").compile()
nested = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile()
"""


@pytest.fixture
def graph(run: Run, tmp_path: Path) -> str:
    return str(put(tmp_path / "agent.py", GRAPH))


def _nodes(run: Run) -> list[tuple[str, str | None]]:
    return [(s["node"], s["route"]) for s in run("history", "latest", "--json").json["steps"]]


@pytest.mark.parametrize(
    ("name", "after", "taken"),
    [
        ("mended", [("fails.error_handler", None)], "__error_handler__fails --> __end__"),
        ("jumped", [("fails.error_handler", None), ("last", None)], "last --> __end__"),
    ],
)
def test_a_failed_node_and_its_error_handler_are_steps_of_the_record(
    run: Run, graph: str, name: str, after: list[tuple[str, str | None]], taken: str
) -> None:
    assert run("run", f"{graph}:{name}", "--skip-trust").code == 0
    assert _nodes(run) == [("first", None), ("fails", "raised"), *after]
    assert "raised: ValueError: the till is empty" in run("history", "latest").out
    assert "fails → fails.error_handler" in run("show", "latest").out
    exported = run("export", "latest").out
    assert "ValueError: the till is empty" in exported and "fails.error_handler" in exported
    lines = run("diagram", f"{graph}:{name}", "--run", "latest").out.splitlines()
    edges = [line.strip() for line in lines if "-->" in line]
    blue = next(line for line in lines if "linkStyle" in line and "#0969da" in line)
    numbers = [int(number) for number in blue.split()[1].split(",")]
    walked = [edges[number] for number in numbers]
    assert 'fails -->|"raised"| __error_handler__fails' in walked and taken in walked
    assert "fails --> last" not in walked
    assert run("replay", "latest").code == 0


def test_a_run_that_a_node_ends_says_which_node_and_stops_there(run: Run, graph: str) -> None:
    assert run("run", f"{graph}:broken", "--skip-trust").code == 1
    assert _nodes(run)[-1] == ("fails", "raised")
    assert "stopped in fails" in run("show", "latest").out
    drawn = run("diagram", f"{graph}:broken", "--run", "latest").out
    assert 'fails["fails ×1: stopped here"]' in drawn


def test_a_node_that_raised_and_then_ended_has_both_steps(run: Run, graph: str) -> None:
    assert run("run", f"{graph}:nested", "--skip-trust").code == 1
    assert "stopped in inner › flaky" in run("show", "latest").out
    assert run("resume", "latest", "--skip-trust").code == 0
    assert _nodes(run) == [("flaky", "raised"), ("inner", "raised"), ("flaky", None), ("inner", None)]
    drawn = run("diagram", f"{graph}:nested", "--run", "latest", "--depth", "2").out
    assert "stopped here" not in drawn and 'inner_flaky["flaky ×1"]' in drawn


def test_a_secret_in_the_text_of_an_error_is_masked(
    run: Run, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "s3cret-t0ken-1234567890")
    run("run", f"{graph}:mended", "--skip-trust")
    for shown in (run("history", "latest"), run("export", "latest"), run("history", "latest", "--json")):
        assert "s3cret-t0ken" not in shown.out


def test_a_run_killed_while_it_waits_for_the_model_names_the_node_that_waits(
    run: Run, tmp_path: Path
) -> None:
    replies = put(tmp_path / "replies.json", [{"error": {"status": 503, "retry_after": 25}}, {"text": "hi"}])
    process = subprocess.Popen(
        [*ENTRY, "-p", "go", "-m", f"script:{replies}"],
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    until(lambda: "; retry " in process.stderr.readline(), "the wait")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert "stopped in turn › wait_retry" in run("show", "latest").out
    assert json.loads(run("show", "latest", "--json").out)["stopped_in"] == ["turn › wait_retry"]
    drawn = run("diagram", "main", "--run", "latest", "--depth", "2").out
    marked = [line.split('"')[1] for line in drawn.splitlines() if "stopped here" in line]
    assert marked == ["wait_retry ×1: stopped here"]
