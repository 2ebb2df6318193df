"""`interlock serve` speaks the API of LangGraph's server: with LangGraph's own client, and beside that server itself.

LangGraph's server isn't part of `[dev]`; to compare with it: pip install -e '.[studio]'.
"""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_lab import GRAPHS, Ours, langgraphs_server
from api_requests import SCRIPTS, Script, played
from langgraph_sdk import get_sync_client
from pages import followed
from patience import HANG_S

from interlock.engine import Decision, Options, resume_sync, run_sync

JOURNEYS = [Path(__file__).parent / name for name in ("api_journey.mjs", "api_hook.mjs")]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ours]:
    folder = tmp_path_factory.mktemp("api")
    found = Ours(folder / "work")
    yield found
    found.close()


@pytest.fixture
def client(ours: Ours) -> Generator[Any]:
    with get_sync_client(url=ours.url, api_key=ours.token) as made:
        yield made


def test_the_python_client_takes_its_journey(client: Any) -> None:
    thread = client.threads.create(metadata={"of": "a test"})["thread_id"]
    parts = client.runs.stream(
        thread, "ask", input={"topic": "tea"}, stream_mode=["values", "custom"], stream_resumable=True
    )
    assert [part.event for part in parts] == ["metadata", "values", "custom", "values", "values"]
    assert client.threads.search(metadata={"of": "a test"})[0]["status"] == "interrupted"
    run = client.runs.list(thread)[0]["run_id"]
    again = [part.event for part in client.runs.join_stream(thread, run, last_event_id="1")]
    assert again == ["custom", "values", "values"], "what came after the last id, once"
    copy = client.threads.copy(thread)["thread_id"]
    assert client.runs.wait(thread, "ask", command={"resume": "Yes."})["text"] == "Yes."
    assert [one["next"] for one in client.threads.get_history(thread)][-2:] == [["draft"], ["__start__"]]
    assert client.threads.get(copy)["values"]["text"] == "About tea.", "the copy still waits"


PARENT = """
from langgraph.graph import START, StateGraph
from langgraph.pregel.remote import RemoteGraph
from typing_extensions import TypedDict

State = TypedDict("State", {"topic": str, "text": str, "loud": str}, total=False)

def shout(state):
    return {"loud": state["text"].upper()}

ask = RemoteGraph("ask", url=URL, api_key=TOKEN)
inner = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
graph = StateGraph(State).add_sequence([("inner", inner), shout]).add_edge(START, "inner")
"""


def test_a_graph_on_a_server_is_a_part_of_one_that_runs_here_and_asks_through_it(
    ours: Ours, tmp_path: Path
) -> None:
    file = tmp_path / "parent.py"
    file.write_text(PARENT.replace("URL", repr(ours.url)).replace("TOKEN", repr(ours.token)))
    options = Options(home=tmp_path / "state", workspace=tmp_path, user_home=tmp_path, env={})
    parked = run_sync(f"{file}:graph", {"topic": "tea"}, options=options)
    assert parked.status == "waiting", parked.error
    decided = [Decision(request["id"], "proceed_once", text="Green.") for request in parked.pending]
    done = resume_sync(parked.run, decisions=decided, options=options)
    assert done.output == {"topic": "tea", "text": "Green.", "loud": "GREEN."}, done.error


def test_our_own_workflow_asks_as_an_interrupt_and_a_token_has_its_role(ours: Ours, tmp_path: Path) -> None:
    tokens = {role: ours.tokens("new", f"bot-{role}", "--role", role) for role in ("view", "decide")}
    with ours.http() as http, ours.http(tokens["view"]) as viewer, ours.http(tokens["decide"]) as decider:
        ask, thread = Script(http), http.post("/threads", json={}).json()["thread_id"]
        given = {"messages": [{"role": "user", "content": "fix it"}]}
        (asked,) = ask.wait(thread, "main", input=given)["__interrupt__"]
        assert (
            asked["value"]["question"] == "replace calc.py"
            and "+    return a + b" in asked["value"]["preview"]
        )
        assert asked["response_schema"]["properties"]["choice"]["enum"][0] == "proceed_once"
        yes = {"assistant_id": "main", "command": {"resume": {"choice": "proceed_once"}}}
        wait = f"/threads/{thread}/runs/wait"
        assert viewer.get(f"/threads/{thread}/state").status_code == 200
        assert viewer.post(wait, json=yes).status_code == 403
        assert decider.post(wait, json={"assistant_id": "main", "input": given}).status_code == 403
        said = [(one["type"], one["content"]) for one in decider.post(wait, json=yes).json()["messages"]]
        assert said[0] == ("human", "fix it") and said[-1] == ("ai", "Fixed.")
        assert "a + b" in (ours.folder / "calc.py").read_text()
        (run,) = [row["run"] for row in http.get("/api/runs").json()["runs"] if row["workflow"] == "main"]
        assert "approved by bot-decide" in http.get(f"/api/runs/{run}/calls").json()[0]["who"]
        ours.tokens("rm", "bot-view")
        assert viewer.get(f"/threads/{thread}").status_code == 401, "it was revoked"


REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/threads/nothing", None, 422, "must be a UUID"),
    ("POST", "/threads/search", {"limit": 0}, 422, "limit"),
    ("POST", "/threads/search", [], 422, "JSON object"),
    ("POST", "/threads", {"metadata": "x"}, 422, "metadata"),
    ("POST", "/runs/wait", {"assistant_id": "nothing"}, 422, "Must be one of"),
    ("POST", "/runs/wait", {}, 422, "assistant_id"),
    ("POST", "/runs/wait", {"assistant_id": "ask", "stream_mode": "all"}, 422, "stream_mode"),
    ("POST", "/runs/wait", {"assistant_id": "ask", "webhook": "http://x"}, 422, "webhook"),
    ("POST", "/runs/wait", {"assistant_id": "ask", "multitask_strategy": "x"}, 422, "multitask_strategy"),
    ("POST", "/runs/crons/search", {}, 404, "Crons aren't supported"),
    ("PATCH", "/assistants/ask", {"name": "x"}, 409, "can't be changed"),
    ("POST", "/threads/{thread}/stream/events", {"channels": ["all"]}, 400, "unsupported"),
    ("POST", "/threads/{thread}/state", {"values": {}}, 400, "no state"),
    ("POST", "/assistants/search", {"metadata": 5}, 422, "`metadata` must be"),
    ("POST", "/threads/search", {"metadata": "x"}, 422, "`metadata` must be"),
    ("POST", "/threads/count", {"values": [1]}, 422, "`values` must be"),
    ("POST", "/store/items/search", {"namespace_prefix": 5}, 422, "`namespace_prefix` must be"),
    ("POST", "/store/items/search", {"filter": "x"}, 422, "`filter` must be"),
    ("POST", "/store/items/search", {"filter": {"a": {"$odd": 1}}}, 422, "$odd"),
    ("POST", "/store/items/search", {"query": 5}, 422, "`query` must be"),
    ("POST", "/store/namespaces", {"prefix": 5}, 422, "`prefix` must be"),
    ("POST", "/store/namespaces", {"max_depth": "x"}, 422, "max_depth must be"),
    ("DELETE", "/store/items", {"namespace": ["a"]}, 422, "`key` must be"),
    ("PUT", "/store/items", {"namespace": ["langgraph"], "key": "k", "value": {}}, 422, "langgraph"),
]


def test_what_cant_be_done_is_refused_in_one_line(ours: Ours) -> None:
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        for method, path, body, status, words in REFUSED:
            answer = http.request(method, path.format(thread=thread), json=body)
            assert (answer.status_code, words in answer.json()["detail"]) == (status, True), (
                path,
                answer.text,
            )
    with httpx.Client(base_url=ours.url) as nobody:
        assert nobody.post("/threads", json={}).status_code == 401
        assert nobody.get("/info", auth=("x", ours.token)).status_code == 200, "as a password in an address"


def test_the_second_event_protocol_streams_asks_and_goes_on(ours: Ours) -> None:
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]

        def command(method: str, **params: Any) -> Any:
            return http.post(
                f"/threads/{thread}/commands", json={"id": 1, "method": method, "params": params}
            ).json()

        assert command("nothing.known")["error"] == "unknown_command"
        assert "run_id" in command("run.start", assistant_id="ask", input={"topic": "tea"})["result"]
        body = {"channels": ["lifecycle", "input", "values"]}
        with http.stream("POST", f"/threads/{thread}/stream/events", json=body) as answer:
            asked = next(data for name, data in _events(answer) if name == "input.requested")
        state = http.get(f"/threads/{thread}/state").json()
        name = state["interrupts"][0]["id"]
        assert asked["params"]["data"]["payload"]["question"] == "Publish this?"
        assert command("input.respond", interrupt_id="unknown", response=1)["error"] == "no_such_interrupt"
        assert command("input.respond", interrupt_id=name, response="Yes.")["type"] == "success"
        with http.stream("POST", f"/threads/{thread}/stream/events", json=body) as answer:
            found = []
            for name, data in _events(answer):
                found.append((name, data["seq"]))
                if data["params"]["data"].get("event") == "completed":
                    break
        assert [seq for _, seq in found] == sorted({seq for _, seq in found}), "each event once, in order"


def _events(answer: httpx.Response) -> Generator[tuple[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    named: dict[str, str] = json.loads((GRAPHS / "langgraph.json").read_text())["graphs"]
    graphs = {name: place.replace("./", f"{GRAPHS}/") for name, place in named.items()}
    with langgraphs_server(tmp_path_factory.mktemp("oracle"), graphs, disable_persistence=True) as url:
        yield url


@pytest.mark.langgraph_server
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_same_requests_get_the_same_answers(
    ours: Ours, theirs: str, script: Callable[[Script], None]
) -> None:
    with httpx.Client(base_url=theirs, timeout=HANG_S) as http:
        expected = played(script, http)
    with ours.http() as http:
        found = played(script, http)
    for one, other in zip(found, expected, strict=True):
        assert one == other, one[0]


@pytest.mark.langgraph_server
@pytest.mark.skipif(not shutil.which("npm"), reason="npm isn't installed")
def test_the_javascript_client_and_the_hook_take_the_same_journeys(
    ours: Ours, theirs: str, tmp_path: Path
) -> None:
    packages = ["@langchain/langgraph-sdk", "@langchain/core", "react", "react-dom", "jsdom"]
    subprocess.run(["npm", "install", "--silent", *packages], cwd=tmp_path, check=True)
    for journey in JOURNEYS:
        shutil.copy(journey, tmp_path)
        said = [
            subprocess.run(
                ["node", journey.name, url, token], cwd=tmp_path, check=True, capture_output=True, text=True
            ).stdout
            for url, token in ((ours.url, ours.token), (theirs, "x"))
        ]
        assert json.loads(said[0]) == json.loads(said[1])


@pytest.mark.skipif(not shutil.which("curl"), reason="curl isn't installed")
@pytest.mark.skipif(
    not Path(sys.executable).with_name("interlock").exists(), reason="this environment has no `interlock`"
)
@pytest.mark.sweep
def test_the_page_about_the_api_works_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = (Path(__file__).parent.parent / "docs" / "api-server.md").read_text()
    page = tmp_path / "page.md"
    page.write_text(text.replace("4280", str(port)))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    done = followed(page, tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "'text': 'Green tea.'" in done.stdout and "'text': 'Black tea.'" in done.stdout
    assert "[['review'], ['draft'], ['__start__']]" in done.stdout.replace("[[], ", "[")
