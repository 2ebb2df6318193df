"""LangGraph's own server (`langgraph dev`) loads every graph, and runs one to an interrupt and on, over its HTTP API.

It is also the oracle for graphs that know nothing of Interlock: there and here, their states and interrupts are the
same.

The server is a few dozen packages, so it isn't part of `[dev]`; to run this: pip install -e '.[studio]'.
"""

import json
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from api_lab import langgraphs_server
from patience import HANG_S

from interlock.engine import Decision
from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals
from interlock.engine.store.foreign_saver import make_saver
from interlock.engine.store.steps import StepLog
from interlock.engine.workflows import find_workflow
from interlock.graphs import PIPELINES
from interlock.graphs.foreign import ForeignWorkflow
from interlock.graphs.foreign_requests import to_json_value
from interlock.testing import Stage

ROOT = Path(__file__).parent.parent
NAMED = json.loads((ROOT / "langgraph.json").read_text())["graphs"]
EXAMPLES = sorted(p.parent.name for p in (ROOT / "examples").glob("*/README.md"))
SHAPES = ROOT / "tests" / "foreign_shapes.py"
PATHS = (
    *("line", "asked", "twice", "parallel", "sent", "nested", "invoking"),
    *("edited", "handing", "loop", "paused", "paused_inside"),
)
COMPARED: dict[str, dict[str, Any] | str] = {
    **{shape: {"text": "tea"} for shape in PATHS},
    "functional": "tea",
}
"""Graph of `foreign_shapes.py` → its input."""


def test_the_file_names_every_workflow_and_example() -> None:
    assert sorted(NAMED) == sorted([*PIPELINES, *EXAMPLES])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx.Client]:
    graphs = {name: place.replace("./", f"{ROOT}/") for name, place in NAMED.items()}
    graphs |= {f"shape_{name}": f"{SHAPES}:{name}" for name in COMPARED}
    served = langgraphs_server(tmp_path_factory.mktemp("studio"), graphs)
    with served as url, httpx.Client(base_url=url, timeout=HANG_S) as client:
        yield client


def ask(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


@pytest.mark.langgraph_server
def test_it_loads_every_graph_with_its_schema(server: httpx.Client) -> None:
    found = {a["graph_id"]: a["assistant_id"] for a in ask(server, "/assistants/search", limit=100)}
    assert {name for name in found if not name.startswith("shape_")} == {*NAMED}
    for name, assistant in ((name, found[name]) for name in NAMED):
        schemas = server.get(f"/assistants/{assistant}/schemas").json()
        assert "approval_mode" in schemas["input_schema"]["properties"], name
        assert len(server.get(f"/assistants/{assistant}/graph").json()["nodes"]) > 3


@pytest.mark.langgraph_server
@pytest.mark.parametrize("said", [{"choice": "proceed_once"}, "approve", "reject"], ids=str)
def test_a_run_stops_at_an_interrupt_and_goes_on_with_the_answer(
    server: httpx.Client, tmp_path: Path, said: Any
) -> None:
    call = {"name": "write_file", "args": {"file_path": "out.txt", "content": "hi"}}
    (tmp_path / "script.json").write_text(json.dumps([{"tool_calls": [call]}, {"text": "That's it."}]))
    work = tmp_path / "work"
    work.mkdir()
    given = {"prompt": "write it", "model": f"script:{tmp_path / 'script.json'}", "workspace": str(work)}
    thread = ask(server, "/threads")["thread_id"]
    ask(server, f"/threads/{thread}/runs/wait", assistant_id="main", input=given)
    state = server.get(f"/threads/{thread}/state").json()
    assert state["next"] == ["tools"]
    assert len(state["tasks"][0]["interrupts"]) == 1
    assert not (work / "out.txt").exists()
    done = ask(server, f"/threads/{thread}/runs/wait", assistant_id="main", command={"resume": said})
    assert server.get(f"/threads/{thread}/state").json()["next"] == []
    assert (work / "out.txt").exists() == (said != "reject")
    assert done["status"] == ("done" if said != "reject" else "failed")


@pytest.mark.langgraph_server
@pytest.mark.parametrize("shape", COMPARED)
def test_a_graph_has_the_same_states_and_interrupts_there_and_here(
    server: httpx.Client, tmp_path: Path, shape: str
) -> None:
    there, here = _there(server, shape), _here(tmp_path, shape)
    assert here == there


class Seen(NamedTuple):
    asked: list[list[tuple[str, Any]]]
    """At each stop, the nodes that ask, and their payloads."""
    states: list[Any]
    """The values of each checkpoint of the run itself, oldest first."""


def _there(server: httpx.Client, shape: str) -> Seen:
    thread, asked = ask(server, "/threads")["thread_id"], []
    body: dict[str, Any] = {"input": COMPARED[shape]}
    while True:
        ask(server, f"/threads/{thread}/runs/wait", assistant_id=f"shape_{shape}", **body)
        state = server.get(f"/threads/{thread}/state").json()
        if not state["next"]:
            break
        found = [(task["name"], one) for task in state["tasks"] for one in task["interrupts"]]
        asked.append(sorted((name, json.dumps(one["value"])) for name, one in found))
        answers = {one["id"]: ANSWER for _, one in found}
        body = {"command": {"resume": answers}} if answers else {"input": None}
    history = server.get(f"/threads/{thread}/history", params={"limit": 100}).json()
    return Seen(asked, [one["values"] for one in reversed(history)])


ANSWER = 7


def _here(folder: Path, shape: str) -> Seen:
    stage, name, asked = Stage(folder), f"{SHAPES}:{shape}", []
    given = COMPARED[shape]
    outcome = stage.run(name, given if isinstance(given, dict) else {"input": given})
    with closing(Store(stage.home).connect()) as conn:
        workflow, _ = find_workflow(name, stage.options)
        assert isinstance(workflow, ForeignWorkflow)
        approvals = SqlApprovals(conn, outcome.run)
        saver = make_saver(workflow, conn, StepLog(), approvals, stage.home)
        app, thread = workflow.build().compile(saver), {"configurable": {"thread_id": outcome.run}}
        while outcome.status == "waiting":
            tasks = app.get_state(thread).tasks
            stops = [
                (task.name, json.dumps(to_json_value(one.value))) for task in tasks for one in task.interrupts
            ]
            asked.append(sorted(stops))
            decisions = [Decision(one["id"], "proceed_once", text=str(ANSWER)) for one in outcome.pending]
            outcome = stage.resume(outcome.run, *decisions)
        assert outcome.status == "done", outcome.error
        return Seen(asked, [to_json_value(one.values) for one in reversed([*app.get_state_history(thread)])])
