"""A batch that was killed or stopped goes on where it was, line by line."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put
from patience import until
from warm import Warm

GRAPH = """
import time
from pathlib import Path
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

HERE = Path(__file__).parent

class State(TypedDict, total=False):
    topic: str
    made: str

def note(state):
    with (HERE / "log").open("a") as log:
        log.write(state["topic"] + "\\n")
    return {}

def work(state):
    topic = state["topic"]
    while topic == "slow" and not (HERE / "open").exists():
        (HERE / "waits").touch()
        time.sleep(0.01)
    if topic == "breaks" and not (HERE / "open").exists():
        raise ValueError("not yet")
    return {"made": interrupt("Which?") if topic == "asks" else topic.upper()}

graph = StateGraph(State).add_node(note).add_node(work).add_edge(START, "note").add_edge("note", "work").compile()
"""
TOPICS = ("first", "asks", "breaks", "slow", "last")
LINES = [*({"topic": topic} for topic in TOPICS[:3]), "{bad", *({"topic": topic} for topic in TOPICS[3:])]
BATCH = ("run", "lines", "--batch", "lines.jsonl", "--skip-trust")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    put(folder / "agent.py", GRAPH)
    put(folder / "langgraph.json", {"dependencies": ["."], "graphs": {"lines": "./agent.py:graph"}})
    _put_lines(folder, LINES)
    return folder


def _put_lines(folder: Path, lines: list[Any]) -> None:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    put(folder / "lines.jsonl", text + "\n")


def _noted(work: Path) -> list[str]:
    return (work / "log").read_text().splitlines()


def _stopped_in_the_middle(work: Path, number: int) -> None:
    process = Warm(BATCH, cwd=work, env=os.environ, stderr=subprocess.DEVNULL)
    until((work / "waits").exists, "the slow line")
    process.send_signal(number)
    process.wait()
    put(work / "open")
    assert _noted(work) == [*TOPICS[:4]]


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_batch_goes_on_and_what_was_done_is_not_repeated(run: Run, work: Path, number: int) -> None:
    _stopped_in_the_middle(work, number)
    done = run(*BATCH, "--resume")
    first, asks, breaks, bad, slow, last = done.events
    assert (first["made"], slow["made"], last["made"]) == ("FIRST", "SLOW", "LAST")
    assert breaks["made"] == "BREAKS", "it is tried again"
    assert asks["status"] == "waiting" and asks["session_id"] in done.err
    assert bad["error"]["type"] == "input" and done.code == 42
    assert _noted(work) == [*TOPICS], "each line began once"
    assert run("resume", asks["session_id"], "--skip-trust", "--answer", "all=red").code == 2
    assert run("resume", asks["session_id"], "--skip-trust", "--answer", "1=red").code == 0
    again = run(*BATCH, "--resume").events
    assert [line.get("made") for line in again] == ["FIRST", "red", "BREAKS", None, "SLOW", "LAST"]
    assert len(run("runs", "--json").json) == len(TOPICS) and _noted(work) == [*TOPICS]
    assert run(*BATCH).events[0]["made"] == "FIRST"
    assert len(_noted(work)) == 2 * len(TOPICS), "without the flag the file is run anew"


CHANGES: dict[str, tuple[list[Any], str]] = {
    "another input": ([{"topic": "other"}, *LINES[1:]], "line 1 has changed since the batch began"),
    "a line less": (LINES[:2], "line 3 is gone, line 5 is gone since"),
    "a bad line": (["{", *LINES[1:]], "line 1 is gone"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_is_refused_by_line_before_anything_runs(
    run: Run, work: Path, change: str
) -> None:
    _stopped_in_the_middle(work, signal.SIGKILL)
    lines, told = CHANGES[change]
    _put_lines(work, lines)
    refused = run(*BATCH, "--resume")
    assert refused.code == 42 and told in refused.err and refused.out == ""
    assert _noted(work) == [*TOPICS[:4]]
    _put_lines(work, [*LINES, {"topic": "more"}])
    assert run(*BATCH, "--resume").events[-1]["made"] == "MORE", "lines may be added"


def test_a_cancelled_line_stays_so_and_the_next_ones_run(run: Run, work: Path) -> None:
    _stopped_in_the_middle(work, signal.SIGKILL)
    (waiting,) = (row["run"] for row in run("runs", "--status", "waiting", "--json").json)
    assert run("cancel", waiting).code == 0
    _, asks, *_, last = run(*BATCH, "--resume").events
    assert asks["error"]["type"] == "cancelled" and last["made"] == "LAST"


def test_a_batch_of_which_nothing_ran_begins_and_resume_alone_is_refused(run: Run, work: Path) -> None:
    put(work / "open")
    begun = run(*BATCH, "--resume")
    assert "no line of lines.jsonl has run here yet" in begun.err and len(begun.events) == len(LINES)
    alone = run("run", "lines", "--skip-trust", "--resume")
    assert alone.code == 2 and "--resume belongs to --batch" in alone.err
