"""An app that has an `auth` of its own in its langgraph.json is served with it, and its `http.app` beside it."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_lab import GRAPHS, Ours
from folders import put
from langgraph_sdk import get_sync_client
from patience import HANG_S
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import connect

from interlock.engine.graph_files import load_langgraph_app
from interlock.state.errors import ConfigError

AUTH = """
from langgraph_sdk import Auth

auth = Auth()
NAMES = {"Bearer ann": "ann", "Bearer bob": "bob", "Bearer odd": "odd"}


@auth.authenticate
async def who(authorization: str | None, path: str, method: str) -> Auth.types.MinimalUserDict:
    if authorization == "Bearer broken":
        raise OSError("no database")
    if authorization not in NAMES:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Who are you?")
    return {"identity": NAMES[authorization], "permissions": ["read"], "team": "tea"}


@auth.on.threads
async def own(ctx, value):
    assert ctx.user.identity != "odd", "not you"
    value.setdefault("metadata", {})["owner"] = ctx.user.identity
    return {"owner": ctx.user.identity}


@auth.on.store
async def scoped(ctx, value):
    value["namespace"] = (ctx.user.identity, *value["namespace"])


@auth.on.assistants.create
async def nobody(ctx, value):
    return False
"""
ROUTES = """
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


@asynccontextmanager
async def lifespan(app):
    app.state.begun = True
    yield


async def hello(request):
    return JSONResponse({"hello": request.path_params["name"], "begun": request.app.state.begun})


paths = ("/hello/{name}", "/threads/mine", "/{name:path}")
app = Starlette(routes=[Route(path, hello) for path in paths], lifespan=lifespan)
"""
TELL = """
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


def tell(state, config):
    known = config["configurable"]
    return {"text": f"{known.get('langgraph_auth_user_id')} {(known.get('langgraph_auth_user') or {}).get('team')}"}


State = TypedDict("State", {"text": str}, total=False)
tell = StateGraph(State).add_node("tell", tell).add_edge(START, "tell").compile()
"""


def app_with(tmp_path: Path, **settings: Any) -> Path:
    folder = tmp_path / "graphs"
    put(folder / "graphs.py", (GRAPHS / "graphs.py").read_text())
    put(folder / "auth.py", AUTH)
    put(folder / "routes.py", ROUTES)
    put(folder / "tell.py", TELL)
    graphs = {"ask": "./graphs.py:ask", "tell": "./tell.py:tell"}
    put(folder / "langgraph.json", {"dependencies": ["."], "graphs": graphs, **settings})
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ours]:
    folder = tmp_path_factory.mktemp("auth")
    graphs = app_with(folder, auth={"path": "./auth.py:auth"}, http={"app": "./routes.py:app"})
    made = Ours(folder / "work", graphs=graphs)
    yield made
    made.close()


def as_(served: Ours, name: str) -> httpx.Client:
    return httpx.Client(base_url=served.url, headers={"authorization": f"Bearer {name}"}, timeout=HANG_S)


def test_whom_the_app_lets_in_uses_its_graphs_and_nothing_else(served: Ours) -> None:
    with get_sync_client(url=served.url, headers={"authorization": "Bearer ann"}) as client:
        thread = client.threads.create(metadata={"owner": "bob"})["thread_id"]
        assert client.threads.get(thread)["metadata"]["owner"] == "ann", "the handler's word counts"
        forged = {"configurable": {"langgraph_auth_user_id": "root", "langgraph_auth_user": {"team": "root"}}}
        assert client.runs.wait(thread, "tell", input={}, config=forged)["text"] == "ann tea"
        assert {one["graph_id"] for one in client.assistants.search()} == {"ask", "tell"}
        assert client.runs.wait(None, "tell", input={}, context=forged["configurable"])["text"] == "ann tea"
        batch = client.runs.create_batch([{"assistant_id": "tell", "input": {}}])
        assert batch[0]["metadata"]["owner"] == "ann"
    with as_(served, "ann") as http:
        for graph in ("main", "edit"):
            refused = http.post("/runs/wait", json={"assistant_id": graph, "input": {"messages": "x"}})
            assert refused.status_code == 422, refused.text
        assert http.post("/assistants", json={"graph_id": "ask"}).status_code == 403
        for path in ("/api/runs", "/api/me", "/api/requests"):
            assert http.get(path).status_code == 401, "the page is this computer's user's"


def test_nobody_else_is_let_in_and_what_fails_lets_nobody_in(served: Ours) -> None:
    with served.http() as http:
        assert http.get("/api/runs").status_code == 200, "the page takes its token"
        for path in ("/info", "/threads/search", "/assistants/search", "/runs/batch", "/store/items"):
            assert http.post(path, json={}).status_code == 401, f"{path}: a token of ours isn't the app's"
    for name, status in (("eve", 401), ("broken", 500), ("odd", 403)):
        with as_(served, name) as http:
            assert http.post("/threads", json={}).status_code == status
            assert http.post("/threads/search", json={}).status_code == status
            assert http.post("/runs/wait", json={"assistant_id": "tell", "input": {}}).status_code == status
    with httpx.Client(base_url=served.url) as nobody:
        for path in ("/threads/search", "//threads/search", "/threads/search/", "/Threads/search"):
            assert nobody.post(path, json={}).status_code in (401, 404, 405), path
    evil = {"authorization": "Bearer ann", "origin": "https://evil.example"}
    with httpx.Client(base_url=served.url, headers=evil) as other:
        assert other.post("/threads", json={}).status_code == 403, "another site"


def test_a_thread_is_its_owners_whatever_is_asked_of_it(served: Ours) -> None:
    with as_(served, "ann") as ann, as_(served, "bob") as bob:
        thread = ann.post("/threads", json={}).json()["thread_id"]
        given = {"assistant_id": "ask", "input": {"topic": "tea"}}
        run = ann.post(f"/threads/{thread}/runs", json=given).json()["run_id"]
        ann.get(f"/threads/{thread}/runs/{run}/join")
        for method, path in (
            *(("GET", way) for way in ("", "/state", "/history", "/runs", f"/runs/{run}", "/stream")),
            *(
                ("POST", way)
                for way in ("/history", "/copy", "/runs", "/runs/wait", "/runs/stream", "/stream/events")
            ),
            *(("POST", way) for way in ("/state", f"/runs/{run}/cancel")),
            *(("PATCH", ""), ("DELETE", ""), ("DELETE", f"/runs/{run}")),
        ):
            body = {**given, "if_not_exists": "create", "channels": ["values"], "command": {"resume": "x"}}
            answer = bob.request(method, f"/threads/{thread}{path}", json=None if method == "GET" else body)
            assert answer.status_code in (404, 409), (method, path, answer.text)
        assert "404" in bob.get(f"/threads/{thread}/runs/{run}/join").text
        assert "404" in bob.get(f"/threads/{thread}/runs/{run}/stream").text
        said = bob.post(
            f"/threads/{thread}/commands", json={"id": 1, "method": "input.respond", "params": {}}
        )
        assert said.status_code == 404 or said.json()["type"] == "error"
        assert thread not in bob.post("/threads/search", json={}).text
        assert bob.post("/threads/count", json={}).json() == 0
        assert bob.post("/threads/prune", json={"thread_ids": [thread]}).json() == {"pruned_count": 0}
        assert bob.post("/runs/cancel", json={"status": "all"}).status_code == 404
        bob.post(
            "/threads", json={"thread_id": thread, "if_exists": "do_nothing", "metadata": {"owner": "bob"}}
        )
        assert ann.get(f"/threads/{thread}").json()["status"] == "interrupted"
        for token in ("bob", "eve", served.token):
            with pytest.raises((WebSocketException, InvalidStatus)):
                address = f"ws://127.0.0.1:{served.port}/threads/{thread}/stream/events"
                with connect(address, additional_headers={"authorization": f"Bearer {token}"}) as socket:
                    socket.recv(timeout=HANG_S)


def test_runs_of_the_terminal_and_of_other_apps_are_no_business_of_its_users(
    served: Ours, tmp_path: Path
) -> None:
    with served.http() as http:
        work = {"workflow": "tell", "input": {}, "workspace": str(served.folder)}
        run = http.post("/api/runs", json=work).json()["run"]
        assert run in http.get("/api/runs").text
    with as_(served, "ann") as ann:
        mine = ann.post("/threads", json={}).json()["thread_id"]
        titles = [one["metadata"] for one in ann.post("/threads/search", json={"limit": 100}).json()]
        assert titles and all(one["owner"] == "ann" for one in titles)
    with as_(served, "ann") as ann, as_(served, "bob") as bob:
        item = {"namespace": ["notes"], "key": "k", "value": {"of": "ann"}}
        assert ann.put("/store/items", json=item).status_code == 204
        asked = {"namespace": "notes", "key": "k"}
        assert ann.get("/store/items", params=asked).json()["value"] == {"of": "ann"}
        assert bob.get("/store/items", params=asked).json() is None
        assert bob.post("/store/items/search", json={"namespace_prefix": []}).json()["items"] == []
        namespaces = bob.post("/store/namespaces", json={}).json()["namespaces"]
        assert not [one for one in namespaces if one[0] != "bob"], namespaces
    other = Ours(tmp_path / "other")
    other.close()
    other.env = {**other.env, "INTERLOCK_HOME": served.env["INTERLOCK_HOME"]}
    other.serve()
    try:
        with other.http() as http:
            assert http.get(f"/threads/{mine}").status_code == 404, "another folder's server doesn't show it"
            assert mine not in http.post("/threads/search", json={"limit": 100}).text
    finally:
        other.close()


def test_routes_of_the_app_are_served_open_as_their_author_left_them(served: Ours) -> None:
    with httpx.Client(base_url=served.url) as nobody:
        assert nobody.get("/hello/ann").json() == {"hello": "ann", "begun": True}
        for path in ("/threads/mine", "/api/runs", "/api/mine", "/threads", "/store"):
            assert nobody.get(path).status_code == 401, path
        for path in ("/", "/stats", "/run/x", "/static/app.js", "/ok"):
            assert "hello" not in nobody.get(path).text, f"{path}: the page stays where it is"


@pytest.mark.parametrize("closed", [False, True])
def test_routes_of_the_app_need_a_token_or_its_auth_where_their_author_says_so(
    tmp_path: Path, closed: bool
) -> None:
    http: dict[str, Any] = {"app": "./routes.py:app", "disable_store": True}
    more: dict[str, Any] = {"auth": {"path": "./auth.py:auth"}} if closed else {}
    graphs = app_with(tmp_path, http={**http, "enable_custom_route_auth": closed}, **more)
    made = Ours(tmp_path / "work", graphs=graphs)
    try:
        with httpx.Client(base_url=made.url) as nobody:
            assert nobody.get("/hello/eve").status_code == 401
        with as_(made, "ann") if closed else made.http() as known:
            assert known.get("/hello/ann").json()["hello"] == "ann"
            assert known.post("/store/namespaces", json={}).status_code == 405, "its langgraph.json closes it"
        if not closed:
            with made.http(made.tokens("new", "bot", "--role", "decide")) as bot:
                assert bot.get("/hello/bot").status_code == 403
    finally:
        made.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"auth": {"path": "./none.py:auth"}}, "there is no file for './none.py:auth'"),
        ({"auth": {"path": "./auth.py:none"}}, "has no 'none'"),
        ({"auth": {"path": "./auth.py:NAMES"}}, "`auth` must name LangGraph's `Auth`"),
        ({"auth": {"disable_studio_auth": True}}, "`auth` must name LangGraph's `Auth`"),
        ({"http": {"app": "./auth.py:auth"}}, "`http.app` must name"),
        ({"encryption": {"path": "./x.py:y"}}, "`encryption` isn't supported"),
    ],
)
def test_an_app_whose_auth_cant_be_read_isnt_served(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_langgraph_app(app_with(tmp_path, **settings))
    assert message in str(error.value) and "\n" not in str(error.value)
