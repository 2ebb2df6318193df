"""A run's context is that run's own, and only what a program names is cancelled."""

from typing import Any
from uuid import uuid4

import pytest
import warm
from api_lab import Ours
from folders import tree

GRAPHS = {
    "langgraph.json": '{"dependencies": ["."], "graphs": {"tells": "./tells.py:graph"}}',
    "tells.py": """
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

class Context(TypedDict, total=False):
    user: str

class State(TypedDict, total=False):
    ask: bool
    users: list

def tell(state: State, runtime: Runtime[Context]):
    if state.get("ask"):
        interrupt("go on?")
    return {"users": [*state.get("users", []), (runtime.context or {}).get("user", "nobody")], "ask": False}

graph = StateGraph(State, context_schema=Context).add_node("tell", tell).add_edge(START, "tell").compile()
""",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("contexts")
    made = Ours(folder / "work", graphs=tree(folder / "graphs", GRAPHS))
    yield made
    made.close()


def _users(ours: Ours, thread: str, **given: Any) -> list[str]:
    with ours.http() as http:
        asked = {"assistant_id": "tells", **given}
        answer = http.post(f"/threads/{thread}/runs/wait", json=asked)
        assert answer.is_success, answer.text
        assert "users" in answer.json() or "__interrupt__" in answer.json(), answer.text
        return answer.json().get("users", [])


def _thread(ours: Ours) -> str:
    with ours.http() as http:
        return http.post("/threads", json={"thread_id": str(uuid4())}).json()["thread_id"]


def test_the_context_of_one_run_is_not_that_of_the_next_on_its_thread(ours: Ours) -> None:
    thread = _thread(ours)
    assert _users(ours, thread, input={"ask": False}, context={"user": "ann"}) == ["ann"]
    assert _users(ours, thread, input={"ask": False}) == ["ann", "nobody"]
    assert _users(ours, thread, input={"ask": False}, context={"user": "bob"}) == ["ann", "nobody", "bob"]


def test_a_parked_run_keeps_its_context_for_whoever_answers_in_a_terminal(ours: Ours) -> None:
    thread = _thread(ours)
    assert _users(ours, thread, input={"ask": False}, context={"user": "ann"}) == ["ann"]
    _users(ours, thread, input={"ask": True}, context={"user": "bob"})
    words = ["resume", "latest", "--answer", "1=yes", "--skip-trust"]
    done = warm.run(words, cwd=ours.folder, env=ours.env)
    assert done.returncode == 0, done.stderr
    with ours.http() as http:
        assert http.get(f"/threads/{thread}/state").json()["values"]["users"] == ["ann", "bob"]


@pytest.mark.parametrize(
    ("given", "why"), [({"status": "nosuch"}, "`status` must be one of"), ({}, "Name what to cancel")]
)
def test_a_cancel_that_names_nothing_stops_nothing(ours: Ours, given: dict[str, str], why: str) -> None:
    with ours.http() as http:
        answer = http.post("/runs/cancel", json=given)
        assert answer.status_code == 422 and why in answer.text


NOBODY = "00000000-0000-4000-8000-000000000000"
NAMES: dict[str, tuple[str, dict[str, Any], int]] = {
    "a thread called latest": ("/threads", {"thread_id": "latest"}, 422),
    "a thread that climbs": ("/threads", {"thread_id": "../x"}, 422),
    "a thread without a name": ("/threads", {"thread_id": ""}, 422),
    "a cancel of the latest thread": ("/runs/cancel", {"thread_id": "latest", "status": "all"}, 422),
    "a cancel of a run that climbs": ("/runs/cancel", {"thread_id": NOBODY, "run_ids": ["../x"]}, 422),
    "a cancel of nobody's run": ("/runs/cancel", {"thread_id": NOBODY, "run_ids": [NOBODY]}, 404),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_that_are_none_are_refused_for_what_they_are(ours: Ours, case: str) -> None:
    path, given, status = NAMES[case]
    with ours.http() as http:
        answer = http.post(path, json=given)
        expected = "must be a UUID" if status == 422 else "not found"
        assert answer.status_code == status and expected in answer.text


def test_a_thread_id_that_is_taken_is_refused(ours: Ours) -> None:
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        again = http.post("/threads", json={"thread_id": thread})
        assert again.status_code == 409 and "already exists" in again.text
