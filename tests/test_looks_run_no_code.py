"""Who may not start runs makes no file of the user's run, whatever they look at and however it changed meanwhile."""

import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from api_lab import Ours
from folders import put
from patience import until
from test_roles import ROUTES, status

from interlock.web.api.payloads import assistant_id_for_workflow, thread_id_for_run

NOTE = '''"""note: asks whether a note may go."""

from interlock.workflow import END, START, Deps, Graph, Input, Output, Runtime, State, Workflow, approve, node


class NoteInput(Input):
    topic: str


class NoteOutput(Output):
    status: str


class NoteState(State, total=False):
    topic: str
    status: str


@node(reads=("topic",), writes=("status",))
async def finish(state: NoteState, runtime: Runtime[Deps]) -> NoteState:
    return {"status": "done"}


def build() -> Graph:
    g = Graph("note", NoteState)
    g.nodes(finish)
    g.subgraph("review", approve("Publish this note?", show="topic"))
    g.edge(START, "review")
    g.by_label("review", {"approved": "finish", "rejected": "finish"})
    g.edge("finish", END)
    return g


WORKFLOW = Workflow("note", build, NoteInput, NoteOutput)
'''
PROCESSORS = """
from interlock.workflow import Deps, Runtime, State, node


@node(reads=(), writes=())
async def look(state: State, runtime: Runtime[Deps]) -> State:
    return {}


PROCESSORS = {"before_model": [look]}
"""


class Lab:
    """A server whose files of the user write a mark each time that they are run."""

    def __init__(self, folder: Path) -> None:
        put(folder / "home" / "trusted.json", {})
        self.ours = Ours(folder / "work")
        self.ours.close()
        self.mark = folder / "ran"
        here = self.ours.folder
        put(here / "named.py", (here / "graphs.py").read_text())
        put(here / "processors.py", PROCESSORS)
        put(here / ".interlock/settings.json", {"processors": ["processors.py"]})
        put(here / ".interlock/workflows/note.py", NOTE)
        self.files = [here / "named.py", here / "graphs.py", here / "processors.py"]
        self.files.append(here / ".interlock/workflows/note.py")
        self.ours.serve()
        self.runs = dict(self._runs())
        for file in self.files:
            file.write_text(f"{file.read_text()}\nopen({str(self.mark)!r}, 'a').write(__file__ + ' ')\n")
        port = self.ours.port
        self.ours.close()  # the next one has imported nothing
        self.ours.serve(port)
        self.mark.unlink(missing_ok=True)

    def _runs(self) -> Generator[tuple[str, str]]:
        with self.ours.http() as http:
            for name, given in {
                "named.py:ask": {"topic": "tea"},
                "ask": {"topic": "tea"},
                "note": {"topic": "tea"},
                "main": {"prompt": "fix it"},
            }.items():
                work = {"workflow": name, "input": given, "workspace": str(self.ours.folder)}
                run = http.post("/api/runs", json=work).json()["run"]

                def rests(run: str = run) -> bool:
                    return http.get(f"/api/runs/{run}").json()["status"] in ("waiting", "failed", "done")

                until(rests, f"the run of {name} to park")
                yield name, run


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Generator[Lab]:
    made = Lab(tmp_path_factory.mktemp("looks"))
    yield made
    made.ours.close()


@pytest.fixture(scope="module")
def tokens(lab: Lab) -> Mapping[str, str]:
    return {
        role: lab.ours.tokens("new", f"bot-{role}", "--role", role) for role in ("view", "decide", "drive")
    }


def looks(lab: Lab) -> list[tuple[str, str]]:
    """Each look, at each workflow and each run of one."""
    found: list[tuple[str, str]] = []
    for method, path, role in ROUTES:
        if role not in ("view", "decide"):
            continue
        for name, run in lab.runs.items():
            others = {
                "id": f"{run}-1",
                "name": name,
                "thread": thread_id_for_run(run),
                "checkpoint": str(uuid4()),
            }
            one: dict[str, Any] = {**others, "call": "x", "cron": "x", "namespace": "x"}
            one["run"] = run if path.startswith("/api") else str(uuid4())
            for assistant in (assistant_id_for_workflow(name), name):
                found.append((method, path.format(**{**one, "assistant": assistant})))
    return list(dict.fromkeys(found))


BODIES: dict[str, dict[str, Any]] = {
    "/search$": {"limit": 1000},
    "/commands$": {"id": 1, "method": "run.start", "params": {"assistant_id": "talk", "input": {}}},
    "/runs(/stream|/wait)?$": {"assistant_id": "ask", "input": {"topic": "x"}},
    "/stream/events$": {"channels": ["values"]},
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("role", ["view", "decide"])
def test_no_look_runs_a_file_as_it_is_now(lab: Lab, tokens: Mapping[str, str], role: str) -> None:
    lab.mark.unlink(missing_ok=True)
    with lab.ours.http(tokens[role]) as http:
        for method, path in looks(lab):
            given = next((body for at, body in BODIES.items() if re.search(at, path)), dict[str, Any]())
            found = status(http, method, path, json=given)
            ran = lab.mark.read_text() if lab.mark.exists() else ""
            assert (ran, found < 500) == ("", True), (method, path, found)


def test_who_may_start_runs_sees_what_their_code_makes(lab: Lab, tokens: Mapping[str, str]) -> None:
    """The same looks do run it: else the test above would prove nothing."""
    doors = [
        "/api/workflows",
        *(f"/api/workflows/{name}{way}" for name in ("named.py:ask", "note") for way in ("", "/diagram")),
        *(f"/api/runs/{lab.runs[name]}/diagram" for name in ("named.py:ask", "ask", "note")),
        *(f"/assistants/ask/{way}" for way in ("schemas", "graph", "subgraphs")),
        f"/threads/{thread_id_for_run(lab.runs['named.py:ask'])}/state",
    ]
    with lab.ours.http(tokens["view"]) as view:
        for door in doors[1:-1]:
            told = view.get(door)
            sentence = "as it is now. That needs the role 'drive'. This token has 'view'."
            assert (told.status_code, sentence in told.text) == (403, True), (door, told.text)
    with lab.ours.http(tokens["drive"]) as drive:
        for door in doors:
            assert drive.get(door).status_code == 200, door
    ran = lab.mark.read_text()
    assert all(str(file) in ran for file in lab.files[:2]), ran


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only the graph's types have: the empty value of a key that nothing was written to."""
    return {key: value for key, value in values.items() if value}


def _seen(http: httpx.Client, thread: str) -> dict[str, Any]:
    state = http.get(f"/threads/{thread}/state").json()
    history = http.post(f"/threads/{thread}/history", json={"limit": 10}).json()
    row = http.get(f"/threads/{thread}").json()
    parts = ("values", "next", "metadata", "created_at", "checkpoint", "parent_checkpoint", "interrupts")
    return {
        "state": {part: state[part] for part in parts},
        "tasks": [(task["name"], task["id"], task["interrupts"]) for task in state["tasks"]],
        "history": [
            {**{part: one[part] for part in parts[1:-1]}, "values": _set(one["values"])} for one in history
        ],
        "thread": {part: row[part] for part in ("status", "values", "interrupts")},
    }


def test_the_state_of_a_run_is_shown_from_its_record(lab: Lab, tokens: Mapping[str, str]) -> None:
    thread = thread_id_for_run(lab.runs["named.py:ask"])
    with lab.ours.http(tokens["view"]) as view, lab.ours.http(tokens["drive"]) as drive:
        recorded, made = _seen(view, thread), _seen(drive, thread)
    assert recorded["state"]["interrupts"] and recorded["state"]["values"]["text"] == "About tea."
    assert recorded == made
