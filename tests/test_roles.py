"""Which role each request to `interlock serve` needs: of every route, and of bodies, by how their thread stands."""

import json
import re
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from api_lab import Ours
from databases import rows_of
from patience import HANG_S, until
from websockets.sync.client import connect

from interlock.engine.client import Options
from interlock.web import app
from interlock.web.api import routes
from interlock.web.guard import Access

NEEDED = """
GET    /api/me                                        view
GET    /api/stats                                     view
GET    /api/changes                                   view
GET    /api/requests                                  view
GET    /api/requests/{id}                             view
GET    /api/requests/{id}/file                        view
GET    /api/workflows                                 view
GET    /api/workflows/{name}                          view
GET    /api/workflows/{name}/diagram                  view
GET    /api/runs                                      view
GET    /api/runs/{run}                                view
GET    /api/runs/{run}/events                         view
GET    /api/runs/{run}/diagram                        view
GET    /api/runs/{run}/path                           view
GET    /api/runs/{run}/prompt                         view
GET    /api/runs/{run}/steps                          view
GET    /api/runs/{run}/calls                          view
GET    /api/runs/{run}/calls/{call}/output            view
GET    /api/runs/{run}/state                          view
GET    /api/runs/{run}/seen                           view
GET    /api/runs/{run}/diff                           view
GET    /api/runs/{run}/export                         view
POST   /api/runs/{run}/replay                         view
POST   /api/runs                                      drive
POST   /api/runs/{run}/decide                         decide
POST   /api/runs/{run}/prompt                         drive
POST   /api/runs/{run}/stop                           drive
POST   /api/runs/{run}/fork                           drive
POST   /api/runs/{run}/rewind                         drive
POST   /api/runs/{run}/undo                           drive
GET    /info                                          view
POST   /assistants/search                             view
POST   /assistants/count                              view
POST   /assistants                                    drive
GET    /assistants/{assistant}                        view
PATCH  /assistants/{assistant}                        drive
DELETE /assistants/{assistant}                        drive
GET    /assistants/{assistant}/schemas                view
GET    /assistants/{assistant}/graph                  view
GET    /assistants/{assistant}/subgraphs              view
GET    /assistants/{assistant}/subgraphs/{namespace}  view
POST   /assistants/{assistant}/versions               view
POST   /assistants/{assistant}/latest                 drive
POST   /threads/search                                view
POST   /threads/count                                 view
POST   /threads/prune                                 drive
POST   /threads                                       drive
GET    /threads/{thread}                              view
PATCH  /threads/{thread}                              drive
DELETE /threads/{thread}                              drive
POST   /threads/{thread}/copy                         drive
GET    /threads/{thread}/state                        view
POST   /threads/{thread}/state                        drive
POST   /threads/{thread}/state/checkpoint             view
GET    /threads/{thread}/state/{checkpoint}           view
GET    /threads/{thread}/history                      view
POST   /threads/{thread}/history                      view
GET    /threads/{thread}/stream                       view
POST   /threads/{thread}/stream/events                view
POST   /threads/{thread}/commands                     decide
GET    /threads/{thread}/runs                         view
POST   /threads/{thread}/runs                         decide
POST   /threads/{thread}/runs/stream                  decide
POST   /threads/{thread}/runs/wait                    decide
POST   /threads/{thread}/runs/crons                   view
GET    /threads/{thread}/runs/{run}                   view
DELETE /threads/{thread}/runs/{run}                   drive
GET    /threads/{thread}/runs/{run}/join              view
GET    /threads/{thread}/runs/{run}/stream            view
POST   /threads/{thread}/runs/{run}/cancel            drive
POST   /runs                                          drive
POST   /runs/stream                                   drive
POST   /runs/wait                                     drive
POST   /runs/batch                                    drive
POST   /runs/cancel                                   drive
POST   /runs/crons                                    view
POST   /runs/crons/search                             view
POST   /runs/crons/count                              view
PATCH  /runs/crons/{cron}                             view
DELETE /runs/crons/{cron}                             view
PUT    /store/items                                   drive
GET    /store/items                                   view
DELETE /store/items                                   drive
POST   /store/items/search                            view
POST   /store/namespaces                              view
"""
ROUTES = [(method, path, role) for method, path, role in map(str.split, NEEDED.strip().splitlines())]
ROLES = ("view", "decide", "drive")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ours]:
    found = Ours(tmp_path_factory.mktemp("roles") / "work")
    yield found
    found.close()


@pytest.fixture(scope="module")
def tokens(ours: Ours) -> Mapping[str, str]:
    return {role: ours.tokens("new", f"bot-{role}", "--role", role) for role in ROLES}


def home_of(ours: Ours) -> Path:
    return Path(ours.env["INTERLOCK_HOME"])


def everything(ours: Ours) -> list[object]:
    """Each row of the store, and each stream that was begun."""
    return [*rows_of(home_of(ours)), *sorted(file.name for file in (home_of(ours) / "live").glob("*"))]


def at_rest(ours: Ours) -> list[object]:
    """As `everything`, once nothing is written any more: a drive's end is noted after programs hear of it."""
    seen = [everything(ours)]

    def is_same() -> bool:
        time.sleep(0.5)
        seen.append(everything(ours))
        return seen[-1] == seen[-2]

    until(is_same, "the last rows")
    return seen[-1]


def status(http: httpx.Client, method: str, path: str, **given: Any) -> int:
    """Without the body: some streams never end."""
    with http.stream(method, path, **given) as answer:
        return answer.status_code


def test_the_table_has_every_route() -> None:
    there = [line.split()[:2] for table in (app.TABLE, routes.TABLE) for line in table.strip().splitlines()]
    assert sorted(map(tuple, there)) == sorted((method, path) for method, path, _ in ROUTES)


def test_the_app_answers_nothing_beside_the_table_but_the_sign_in_and_the_empty_page(tmp_path: Path) -> None:
    made: Any = app.PageServer(Options(home=tmp_path), Access(1)).guard
    found: set[tuple[str, str]] = set()
    for route in made._app.routes:
        methods = (getattr(route, "methods", None) or {"*"}) - {"HEAD"}
        found |= {(method, route.path) for method in methods}
    beside = found - {(method, path) for method, path, _ in ROUTES}
    assert beside == {
        ("POST", "/login"),
        ("POST", "/proof"),
        ("GET", "/ok"),
        ("*", "/static"),
        ("GET", "/{path:path}"),  # the page, which holds no data
        ("*", "/threads/{thread}/stream/events"),  # the socket, whose commands need their own roles
    }


def test_a_request_with_two_lengths_hides_no_second_one(ours: Ours, tokens: Mapping[str, str]) -> None:
    """A proxy may see one request where the server sees two, the second with any person's name."""
    hidden = f"GET /api/me HTTP/1.1\r\nHost: 127.0.0.1:{ours.port}\r\nx-api-key: {tokens['view']}\r\n\r\n"
    head = f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{ours.port}\r\nx-api-key: {tokens['view']}\r\n"
    lengths = f"Content-Length: {len(hidden) + 5}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", ours.port), timeout=HANG_S) as sent:
        sent.sendall(f"{head}{lengths}{hidden}".encode())
        said = b"".join(iter(lambda: sent.recv(65_536), b""))
    assert (said[:12], said.count(b"HTTP/1.1 ")) == (b"HTTP/1.1 400", 1), said


def test_every_route_needs_its_role_and_a_token_in_a_header(ours: Ours, tokens: Mapping[str, str]) -> None:
    cookies = {f"interlock-{ours.port}": ours.token, "authorization": f"Bearer {ours.token}"}
    with httpx.Client(base_url=ours.url, timeout=HANG_S, cookies=cookies) as nobody:
        for method, path, _ in ROUTES:
            at = re.sub(r"{\w+}", str(uuid4()), path)
            assert status(nobody, method, at, json={}) == 401, (method, path)
        assert nobody.get("/api/runs", params={"token": ours.token}).status_code == 401
    for role in ROLES:
        with ours.http(tokens[role]) as http:
            for method, path, needed in ROUTES:
                refused = ROLES.index(role) < ROLES.index(needed)
                at = re.sub(r"{\w+}", str(uuid4()), path)
                given: Any = [] if path == "/runs/batch" else {}
                found = status(http, method, at, json=given)
                assert (found == 403) == refused and found not in (401, 500), (role, method, path, found)


def test_looking_changes_nothing(ours: Ours, tokens: Mapping[str, str]) -> None:
    """A GET has no effect, nor has whatever a `view` token may do."""
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        http.post(f"/threads/{thread}/runs/wait", json={"assistant_id": "ask", "input": {"topic": "tea"}})
        drive = http.get(f"/threads/{thread}/runs").json()[0]["run_id"]
        (run,) = (row["run"] for row in http.get("/api/runs").json()["runs"] if row["status"] == "waiting")
        request = http.get("/api/requests", params={"run": run}).json()[0]["id"]
    names = {"thread": thread, "id": request, "name": "ask", "assistant": "ask", "namespace": "x"}
    before = at_rest(ours)
    files = {
        path: path.read_bytes()
        for path in ours.folder.rglob("*")
        if path.is_file() and "cache" not in str(path)
    }
    with ours.http(tokens["view"]) as http:
        for method, path, role in ROUTES:
            given = {**names, "run": run if path.startswith("/api") else drive, "call": "x", "cron": "x"}
            at = path.format(**{"checkpoint": str(uuid4()), **given})
            if role == "view" or method == "GET":
                assert status(http, method, at, json={}) not in (401, 500), path
    assert everything(ours) == before
    assert {path: path.read_bytes() for path in files} == files


ANSWER: dict[str, Any] = {"assistant_id": "ask", "command": {"resume": "Yes."}}
ALLOWED: dict[str, dict[str, Any]] = {
    "an answer": {},
    "as clients send it": {
        "stream_mode": ["values"],
        "stream_subgraphs": False,
        "stream_resumable": False,
        "input": None,
        "config": {"configurable": {}},
        "if_not_exists": "create",
        "on_disconnect": "continue",
        "multitask_strategy": "enqueue",
        "command": {"resume": "Yes.", "update": None},
    },
}
"""What a `decide` token may send to a thread that waits."""
REFUSED: dict[str, dict[str, Any]] = {
    "no answer": {"command": None},
    "an input": {"command": None, "input": {"topic": "x"}},
    "an answer and an input": {"input": {"topic": "x"}},
    "an update": {"command": {"resume": "Yes.", "update": {"topic": "x"}}},
    "an update that empties a key": {"command": {"resume": "Yes.", "update": {"topic": ""}}},
    "an update by pairs": {"command": {"resume": "Yes.", "update": [["topic", None]]}},
    "an empty value in the configuration": {"config": {"configurable": {"x": False}}},
    "an empty value in the context": {"context": {"x": None}},
    "an input that is only empty inside": {"input": {"topic": ""}},
    "a jump": {"command": {"resume": "Yes.", "goto": "draft"}},
    "a jump alone": {"command": {"goto": "draft"}},
    "a configuration": {"config": {"configurable": {"x": 1}}},
    "a limit": {"config": {"recursion_limit": 1}},
    "a context": {"context": {"x": 1}},
    "a checkpoint": {"checkpoint_id": "1ef"},
    "a checkpoint as an object": {"checkpoint": {"checkpoint_id": "1ef"}},
    "metadata, which has the priority": {"metadata": {"priority": 9}},
    "a stop of what runs": {"multitask_strategy": "interrupt"},
    "a rollback": {"multitask_strategy": "rollback"},
    "a stop when it leaves": {"on_disconnect": "cancel"},
    "a breakpoint": {"interrupt_before": ["review"]},
    "a breakpoint behind": {"interrupt_after": "*"},
    "a later time": {"after_seconds": 1},
    "another assistant": {"assistant_id": "talk"},
    "a webhook": {"webhook": "http://127.0.0.1:1"},
    "a field that is not known": {"anything": 1},
}


def _threads(ours: Ours) -> dict[str, str]:
    """A thread in each state."""
    with ours.http() as http:

        def driven(graph: str, given: object) -> str:
            thread = http.post("/threads", json={}).json()["thread_id"]
            http.post(f"/threads/{thread}/runs/wait", json={"assistant_id": graph, "input": given})
            return thread

        made = {"waiting": driven("ask", {"topic": "tea"}), "done": driven("ask", {"topic": "tea"})}
        http.post(f"/threads/{made['done']}/runs/wait", json=ANSWER)
        slow = http.post("/threads", json={}).json()["thread_id"]
        http.post(f"/threads/{slow}/runs", json={"assistant_id": "slow", "input": {"topic": "600"}})
        until(lambda: http.get(f"/threads/{slow}").json()["status"] == "busy", "the slow one to run")
        made |= {
            "failed": driven("boom", {"topic": "tea"}),
            "fresh": http.post("/threads", json={}).json()["thread_id"],
        }
        mine = http.post("/assistants", json={"graph_id": "ask", "name": "mine", "context": {"x": 1}})
        made["mine"] = mine.json()["assistant_id"]
        return {**made, "unknown": str(uuid4()), "stopped": _stopped(http, slow)}


def _stopped(http: httpx.Client, thread: str) -> str:
    drive = http.get(f"/threads/{thread}/runs").json()[0]["run_id"]
    http.post(f"/threads/{thread}/runs/{drive}/cancel", params={"wait": "1"})
    return thread


@pytest.mark.sweep
def test_a_token_that_decides_answers_what_waits_and_starts_nothing(
    ours: Ours, tokens: Mapping[str, str]
) -> None:
    there = _threads(ours)
    mine, stopped = there.pop("mine"), there["stopped"]
    doors = ("runs", "runs/stream", "runs/wait")
    before = at_rest(ours)
    with ours.http(tokens["decide"]) as http:
        for door in doors:
            for what, more in {**REFUSED, "an assistant with a context": {"assistant_id": mine}}.items():
                told = http.post(f"/threads/{there['waiting']}/{door}", json={**ANSWER, **more})
                assert (told.status_code, "'drive'" in told.text) == (403, True), (door, what, told.text)
            for state, thread in there.items():
                for what, more in ALLOWED.items() if state != "waiting" else ():
                    graph = {"assistant_id": "slow"} if thread == stopped else {}
                    told = http.post(f"/threads/{thread}/{door}", json={**ANSWER, **more, **graph})
                    wanted = (403, 404) if state == "unknown" else (403,)
                    assert told.status_code in wanted, (door, state, what, told.text)
        for state, thread in there.items():
            started: list[dict[str, Any]] = [
                {"assistant_id": "ask", "input": {"topic": "x"}, "config": {"configurable": {"x": 1}}},
                {"assistant_id": "talk", "input": "x"},
                {"assistant_id": "ask", "input": "x", "multitaskStrategy": "interrupt"},
                *([] if state == "waiting" else [{"assistant_id": "ask", "input": "x"}]),
            ]
            for params in started:
                command = {"id": 1, "method": "run.start", "params": params}
                told = http.post(f"/threads/{thread}/commands", json=command)
                assert told.status_code == 403, (state, params, told.text)
        jump = {"interrupt_id": "x", "response": 1, "goto": "draft"}
        told = http.post(
            f"/threads/{there['waiting']}/commands", json={"id": 1, "method": "input.respond", "params": jump}
        )
        assert told.json()["error"] == "no_such_interrupt"
    assert everything(ours) == before, "who is refused leaves nothing behind"
    for what, more in ALLOWED.items():
        with ours.http() as http:
            copy = http.post(f"/threads/{there['waiting']}/copy").json()["thread_id"]
            name = http.get(f"/threads/{copy}/state").json()["interrupts"][0]["id"]
        with ours.http(tokens["decide"]) as http:
            wait = f"/threads/{copy}/runs/wait"
            assert http.post(wait, json={**ANSWER, **more}).json()["text"] == "Yes.", what
            late = http.post(wait, json={**ANSWER, "command": {"resume": {name: "Again."}}})
            assert late.status_code == 403, "it is answered"


def test_a_socket_and_commands_take_an_answer_and_no_more(ours: Ours, tokens: Mapping[str, str]) -> None:
    there = _threads(ours)
    thread = there["waiting"]
    with ours.http() as http:
        name = http.get(f"/threads/{thread}/state").json()["interrupts"][0]["id"]
    address = f"{ours.url.replace('http', 'ws', 1)}/threads/{thread}/stream/events"
    before = at_rest(ours)
    for role, told in (("view", "'decide'"), ("decide", "'drive'")):
        headers = {"x-api-key": tokens[role]}
        with connect(address, additional_headers=headers, open_timeout=HANG_S, proxy=None) as talk:
            answer = {
                "interrupt_id": name,
                "response": "Yes.",
                **({"goto": "draft"} if role == "decide" else {}),
            }
            start: dict[str, Any] = {"assistant_id": "talk", "input": {}}
            for method, params in (("run.start", start), ("input.respond", answer)):
                talk.send(json.dumps({"id": 1, "method": method, "params": params}))
                assert told in json.loads(talk.recv(HANG_S))["message"], (role, method)
    assert everything(ours) == before
    command = {"id": 1, "method": "input.respond", "params": {"interrupt_id": name, "response": "Yes."}}
    with ours.http(tokens["decide"]) as http:
        assert http.post(f"/threads/{thread}/commands", json=command).json()["type"] == "success"
        until(lambda: http.get(f"/threads/{thread}").json()["status"] == "idle", "the answer to be taken")
        assert http.get(f"/threads/{thread}").json()["values"]["text"] == "Yes."


def test_who_only_looks_runs_no_file_by_naming_it_as_a_workflow(
    ours: Ours, tokens: Mapping[str, str]
) -> None:
    ran = ours.folder.parent / "ran"
    text = (ours.folder / "graphs.py").read_text()
    (ours.folder / "named.py").write_text(f"open({str(ran)!r}, 'w').close()\n{text}")
    for role, found in (("view", 403), ("decide", 403), ("drive", 200)):
        with ours.http(tokens[role]) as http:
            for door in ("", "/diagram"):
                assert status(http, "GET", f"/api/workflows/named.py:ask{door}") == found, (role, door)
        assert ran.exists() == (role == "drive"), role
    ran.unlink()


def test_a_request_target_without_a_path_needs_a_token_like_any_other(ours: Ours) -> None:
    for target in ("*", "request"):
        with closing(HTTPConnection("127.0.0.1", ours.port, timeout=HANG_S)) as asked:
            asked.request("GET", target)
            with asked.getresponse() as answer:
                assert answer.status == 401, target


@pytest.mark.sweep
def test_who_only_looks_stops_nothing_by_leaving_and_swaps_no_node(
    ours: Ours, tokens: Mapping[str, str]
) -> None:
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        made = http.post(
            f"/threads/{thread}/runs", json={"assistant_id": "slow", "input": {"topic": "600"}}
        ).json()
        until(lambda: http.get("/api/runs", params={"status": "running"}).json()["runs"], "it to run")
        run = http.get("/api/runs", params={"status": "running"}).json()["runs"][0]["run"]
        at = f"/threads/{thread}/runs/{made['run_id']}"
        for role in ("view", "decide"):
            with ours.http(tokens[role]) as looking:
                for door in ("join", "stream"):
                    for word in ("true", "True", "1"):
                        assert (
                            status(looking, "GET", f"{at}/{door}", params={"cancel_on_disconnect": word})
                            == 403
                        )
                swap = looking.post(f"/api/runs/{run}/replay", json={"swap": f"draft={__file__}:swapped"})
                assert (swap.status_code, "'drive'" in swap.text) == (403, True)
                assert looking.get(f"/api/runs/{run}/replay", params={"swap": "x"}).status_code in (404, 405)
        assert http.get(at).json()["status"] in ("pending", "running")
        http.post(f"{at}/cancel", params={"wait": "1"})
