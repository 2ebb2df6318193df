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
from uuid import uuid4

import httpx
import pytest
from api_lab import GRAPHS, Ours, langgraphs_server
from api_requests import SCRIPTS, Script, played
from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_sync_client
from pages import followed
from patience import HANG_S

from interlock.engine import Decision, Options, resume_sync, run_sync
from interlock.engine.client.threads import WaitingRequest, decision_from_answer
from interlock.engine.store import Store
from interlock.engine.store.runs import NewRun, insert_run
from interlock.state.calls import ApprovalRequest, CallView
from interlock.web.api.prompt_dialect import answer_schema

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
    assert client.threads.prune([copy, str(uuid4())]) == {"pruned_count": 1}
    assert [one["thread_id"] for one in client.threads.search(ids=[thread, copy])] == [thread]


def test_a_page_of_threads_is_the_same_whatever_it_is_a_page_of(ours: Ours) -> None:
    """Runs of every status, and threads of programs among them: filters and pages agree with the whole list."""
    store = Store(Path(ours.env["INTERLOCK_HOME"]))
    statuses = ("done", "failed", "cancelled", "open", "open")
    with store.create_or_migrate().write_transaction() as conn:
        for number in range(10):
            insert_run(
                conn, NewRun(f"paged{number}", "paged", "/nowhere", f"title {number % 2}", {}, {"prompt": ""})
            )
            kept = (statuses[number % 5], 1000.0 + number, 2000.0 - number)
            conn.execute_raw(
                f"update runs set status = $1, created = $2, updated = $3 where run = 'paged{number}'", kept
            )
        child = "update runs set parent = 'paged0', subtask_of = 'paged0' where run = 'paged9'"
        conn.execute_raw(child)
    with ours.http() as http:

        def search(**given: Any) -> tuple[list[str], int]:
            found = http.post(
                "/threads/search", json={"limit": 1000, "select": ["thread_id", "status"], **given}
            )
            found.raise_for_status()
            counted = http.post("/threads/count", json=given).json()
            assert counted == int(found.headers["x-pagination-total"])
            return [f"{one['thread_id']} {one['status']}" for one in found.json()], counted

        for name in ("one", "two"):
            http.post("/threads", json={"metadata": {"graph_id": "paged", "of": name}}).raise_for_status()
        of_graph = {"metadata": {"graph_id": "paged"}}
        gone = http.post("/threads/search", json=of_graph)
        assert gone.status_code == 200 and gone.json()[-1]["values"] is None, (
            "its folder and its workflow are gone"
        )
        whole, count = search(**of_graph)
        assert count == len(whole) == 11, "without the subtask"
        for status in ("idle", "busy", "interrupted", "error"):
            assert search(**of_graph, status=status)[0] == [
                one for one in whole if one.endswith(f" {status}")
            ]
        assert {one.split()[1] for one in whole} == {"idle", "interrupted", "error"}
        for order in ({}, {"sort_by": "updated_at"}, {"sort_order": "asc"}):
            sorted_, _ = search(**of_graph, **order)
            assert sorted(sorted_) == sorted(whole)
            pages = [one for offset in range(0, 12, 3) for one in _page(http, {**of_graph, **order}, offset)]
            assert pages == [one.split()[0] for one in sorted_]
        assert search(metadata={"graph_id": "paged", "of": "one"})[1] == 1
        assert search(metadata={"graph_id": "paged", "title": "title 1"})[1] == 4
        ids = [one.split()[0] for one in whole[:4]]
        assert sorted(one.split()[0] for one in search(ids=ids)[0]) == sorted(ids)
        found = [http.get(f"/threads/{one}").status_code for one in (*ids, str(uuid4()))]
        assert [status == 404 for status in found] == [False] * 4 + [True], (
            "its workflow is gone, the thread isn't"
        )


def _page(http: httpx.Client, given: dict[str, Any], offset: int) -> list[str]:
    found = http.post(
        "/threads/search", json={**given, "select": ["thread_id"], "limit": 3, "offset": offset}
    )
    return [one["thread_id"] for one in found.json()]


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
    ("GET", "/threads/{thread}/stream?stream_modes=all", None, 422, "Invalid stream mode"),
    ("POST", "/threads/search", {"sort_by": "x"}, 422, "sort_by"),
    ("POST", "/threads/search", {"select": ["x"]}, 422, "select"),
    ("POST", "/threads/search", {"extract": {"x": "status"}}, 422, "extract"),
    ("GET", "/assistants/ask/graph?xray=x", None, 422, "xray"),
    ("POST", "/assistants/search", {"metadata": 5}, 422, "`metadata` must be"),
    ("POST", "/threads/search", {"metadata": "x"}, 422, "`metadata` must be"),
    ("POST", "/threads/count", {"values": [1]}, 422, "`values` must be"),
    ("POST", "/store/items/search", {"namespace_prefix": 5}, 422, "`namespace_prefix` must be"),
    ("POST", "/store/items/search", {"filter": "x"}, 422, "`filter` must be"),
    ("POST", "/store/items/search", {"filter": {"a": {"$odd": 1}}}, 422, "$odd"),
    ("POST", "/store/items/search", {"query": 5}, 422, "`query` must be"),
    ("POST", "/store/namespaces", {"prefix": 5}, 422, "`prefix` must be"),
    ("POST", "/store/namespaces", {"max_depth": "x"}, 422, "`max_depth` must be"),
    ("DELETE", "/store/items", {"namespace": ["a"]}, 422, "key is required"),
    ("POST", "/threads", {"ttl": 5}, 422, "`ttl` must be an object"),
    ("POST", "/threads", {"metadata": None}, 422, "`metadata` must be"),
    ("POST", "/assistants", {"graph_id": "ask", "metadata": 5}, 422, "`metadata` must be"),
    ("POST", "/runs/wait", {"assistant_id": "ask", "config": {"tags": 5}}, 422, "`tags` a list of strings"),
    ("POST", "/runs/wait", {"assistant_id": "ask", "command": {"goto": 5}}, 422, "`goto` a node"),
    ("POST", "/runs/batch", [], 422, "at least one run"),
    ("POST", "/runs/cancel", {"run_ids": ["x"]}, 422, "either thread_id and run_ids, or a status"),
    ("PUT", "/store/items", {"namespace": ["a"], "key": "k", "value": {}, "ttl": "x"}, 422, "`ttl` must be"),
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


def test_no_input_lets_a_thread_pass_its_breakpoint_and_asks_again_what_waits(ours: Ours) -> None:
    with ours.http() as http:
        ask = Script(http)
        thread = ask.thread()
        assert ask.wait(thread, "paused", input={"topic": "tea"})["log"] == ["draft"]
        assert ask.wait(thread, "paused", input=None)["log"] == ["draft", "close"]
        assert ask("GET", f"/threads/{thread}")["status"] == "idle"
        thread = ask.thread()
        asked = ask.wait(thread, "ask", input={"topic": "tea"})
        assert ask.wait(thread, "ask", input=None) == asked
        assert ask.wait(thread, "ask", command={"resume": "Yes."})["text"] == "Yes."


def test_a_state_that_its_types_refuse_doesnt_hide_the_thread(ours: Ours) -> None:
    with ours.http() as http:
        ask = Script(http)
        thread = ask.thread()
        ask.wait(thread, "counted", input={"n": 1})
        ask.wait(thread, "counted", input={"n": -1})
        shown = ask("GET", f"/threads/{thread}")
        assert (shown["status"], shown["values"], shown["error"]["error"]) == (
            "error",
            {"n": 2},
            "ValidationError",
        )
        assert http.get(f"/threads/{thread}/state").status_code == 400
        assert [one["thread_id"] for one in ask("POST", "/threads/search", {"ids": [thread]})] == [thread]


def test_an_assistants_context_is_filled_up_by_that_of_a_run(ours: Ours) -> None:
    with ours.http() as http:
        ask = Script(http)
        given = {"graph_id": "contextual", "context": {"who": "me", "level": 1}}
        name = ask("POST", "/assistants", given)["assistant_id"]
        thread = ask.thread()
        assert ask.wait(thread, name, input={}, context={"level": 2})["text"] == "me 2"
        assert (
            ask.wait(ask.thread(), name, input={}, config={"configurable": {"who": "you"}})["text"] == "you 1"
        )
        both = {"assistant_id": name, "context": {"level": 2}, "config": {"configurable": {"level": 3}}}
        assert http.post("/runs/wait", json=both).status_code == 400
        http.delete(f"/assistants/{name}?delete_threads=true").raise_for_status()
        assert http.get(f"/threads/{thread}").status_code == 404


def test_what_a_rollback_took_back_is_told_until_the_next_run(ours: Ours) -> None:
    with ours.http() as http:
        ask = Script(http)
        thread = ask.thread()
        given = {"assistant_id": "idle", "input": {"topic": "60"}}
        run = ask("POST", f"/threads/{thread}/runs", given)["run_id"]
        ask.until_at(thread, "pause")
        assert ask("POST", f"/threads/{thread}/runs/{run}/cancel?wait=1&action=rollback") == {}
        shown = ask("GET", f"/threads/{thread}")
        assert (shown["status"], shown["error"]["error"]) == ("idle", "UserRollback")
        ask.wait(thread, "idle", input={"topic": "0"})
        assert ask("GET", f"/threads/{thread}")["error"] is None


def test_the_events_of_a_run_are_those_of_each_node(ours: Ours) -> None:
    with ours.http() as http:
        ask = Script(http)
        found = ask.stream(ask.thread(), "ask", "events", input={"topic": "tea"})
        names = [(data["event"], data["name"]) for name, data in found if name == "events"]
        assert ("on_chain_stream", "draft") in names and ("on_chain_stream", "ask") not in names


def test_a_threads_stream_has_what_its_modes_ask_for(ours: Ours) -> None:
    with ours.http() as http, ours.http() as other:
        thread = Script(http).thread()
        at = f"/threads/{thread}/stream?stream_modes=lifecycle,state_update"
        with http.stream("GET", at) as answer:
            Script(other).wait(thread, "deep", input={"topic": "tea"})
            other.post(f"/threads/{thread}/state", json={"values": {"text": "Patched."}}).raise_for_status()
            found: list[tuple[str, Any]] = []
            for name, data in _events(answer):
                found.append((name, data))
                if name == "state_update":
                    break
    assert [name for name, _ in found] == ["metadata", "metadata", "state_update"]
    assert found[1][1]["status"] == "run_done"
    assert found[2][1]["state"]["values"]["text"] == "Patched."


def test_a_graph_of_a_function_is_drawn_as_its_assistant_configures_it(ours: Ours) -> None:
    with ours.http() as http:
        ask = Script(http)
        given = {"graph_id": "made", "context": {"second": True}}
        name = ask("POST", "/assistants", given)["assistant_id"]
        drawn = {one: ask("GET", f"/assistants/{one}/graph")["nodes"] for one in (name, "made")}
        assert [node["id"] for node in drawn[name]] == ["__start__", "draft", "close", "__end__"]
        assert [node["id"] for node in drawn["made"]] == ["__start__", "draft", "__end__"]
        assert ask.wait(ask.thread(), name, input={"topic": "tea"})["log"] == ["draft", "close"]
        http.delete(f"/assistants/{name}").raise_for_status()


def test_an_outputs_keys_are_those_of_its_schema_through_every_door(ours: Ours, client: Any) -> None:
    with ours.http() as http:
        ask = Script(http)
        thread = ask.thread()
        assert ask.wait(thread, "private", input={"topic": "tea"}) == {"text": "SECRETLY TEA"}
        streamed = ask.stream(thread, "private", "values", "updates", input={"topic": "tea"})
        assert "notes" not in str(streamed) and "secretly" not in str(streamed)
        run = client.runs.create(thread, "private", input={"topic": "tea"})["run_id"]
        assert client.runs.join(thread, run) == {"text": "SECRETLY TEA"}
    remote = RemoteGraph("private", sync_client=client)
    assert remote.invoke({"topic": "tea"}) == {"text": "SECRETLY TEA"}


def test_the_schema_of_an_unknown_outcome_names_its_answers() -> None:
    call = CallView(id="1.0", name="run_shell_command", args={"command": "git push"})
    about = {"key": "k", "call": call, "reason": "", "preview": ""}
    request = ApprovalRequest(kind="outcome", choices=("proceed_once", "reject"), **about)
    fields = answer_schema(request)["properties"]
    assert fields["text"]["enum"] == ["redo", "skip"]
    assert (
        fields["choice"]["description"]
        == "proceed_once: Run it again (redo). reject: Leave it, and tell the model that the outcome is unknown (skip)."
    )
    for said, choice in (("redo", "proceed_once"), ("skip", "reject"), ({"choice": "reject"}, "reject")):
        assert decision_from_answer(WaitingRequest("r-1", "i", request), said).choice == choice


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
            events = _events(answer)
            asked = next(data for name, data in events if name == "input.requested")
            told = next(data for _, data in events)
            assert told["params"]["data"]["event"] == "interrupted", "at once"
        state = http.get(f"/threads/{thread}/state").json()
        name = state["interrupts"][0]["id"]
        assert asked["params"]["data"]["payload"]["question"] == "Publish this?"
        assert command("input.respond", interrupt_id="unknown", response=1)["error"] == "no_such_interrupt"
        twice = [{"interrupt_id": name, "response": said} for said in ("Yes.", "No.")]
        assert command("input.respond", responses=twice)["error"] == "invalid_argument"
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


def _play(journey: str, url: str, token: str, folder: Path, tries: int = 1) -> str:
    """What a journey prints. `tries`: for the yardstick, which isn't what is tested."""
    command = ["node", journey, url, token]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and tries > 1:
        return _play(journey, url, token, folder, tries - 1)
    assert done.returncode == 0, (url, done.stderr[-3000:])
    return done.stdout


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
            _play(journey.name, ours.url, ours.token, tmp_path),
            _play(journey.name, theirs, "x", tmp_path, tries=3),  # a busy machine makes it late for the hook
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
