"""One script of requests for servers that speak LangGraph's API: ours and LangGraph's own. Answers come normalised."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
from patience import until

OWN_TO_A_SERVER: dict[str, str] = {
    "langgraph_version": "which server answers",
    "langgraph_api_version": "which server answers",
    "langgraph_plan": "which server answers",
    "langgraph_host": "which server answers",
    "langgraph_api_url": "which server answers",
    "langgraph_auth_user": "there are no users: tokens have names",
    "langgraph_auth_user_id": "there are no users: tokens have names",
    "langgraph_auth_permissions": "there are no users: tokens have names",
    "langgraph_request_id": "requests have no ids",
    "checkpoint_map": "which node a graph inside belongs to",
    "langgraph_checkpoint_ns": "which node a graph inside belongs to",
    "langgraph_node": "which node a graph inside belongs to",
    "langgraph_path": "which node a graph inside belongs to",
    "langgraph_step": "which node a graph inside belongs to",
    "langgraph_triggers": "which node a graph inside belongs to",
    "user_id": "there are no users: tokens have names",
    "__request_start_time_ms__": "internal",
    "__after_seconds__": "internal",
    "created_by": "internal",
    "lc_versions": "which packages are installed",
    "langsmith_session_name": "nothing is sent to a tracing service",
    "durability": "every checkpoint is saved before the next step",
    "checkpoint_during": "every checkpoint is saved before the next step",
    "description": "workflows have a summary",
    "configurable": "a thread's config holds no ids of the server",
    "config": "a thread's config holds no ids of the server",
    "checkpoint_ns": "a checkpoint always has one here",
}
"""Keys that are left out of the comparison, and why; `docs/api-server.md` has them in words."""

COPY = "POST /threads/<id>/copy"
"""Only its status is compared: our copies show what waits at once, not after their first run."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX = re.compile(r"\b[0-9a-f]{32}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:[+-]\d\d:\d\d|Z)?")


def normal(value: Any) -> Any:
    if isinstance(value, dict):
        return {normal(k): normal(v) for k, v in value.items() if k not in OWN_TO_A_SERVER}
    if isinstance(value, list):
        return [normal(one) for one in value]
    if isinstance(value, str):
        return _TIME.sub("<time>", _HEX.sub("<interrupt>", _UUID.sub("<id>", value)))
    return value


def events(lines: Iterator[str]) -> list[Any]:
    """Server-sent events as pairs of name and data; comments are left out."""
    found: list[Any] = []
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            found.append([normal(name), normal(json.loads(line[6:]))])
    return found


class Script:
    """Sends requests, and keeps what came."""

    def __init__(self, http: httpx.Client) -> None:
        self.http, self.found = http, list[Any]()

    def __call__(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        """The answer's JSON, or its events."""
        with self.http.stream(method, path, json=body, headers=headers) as answer:
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                shown = found = events(answer.iter_lines())
            else:
                text = answer.read().decode()
                is_json = answer.headers.get("content-type", "").startswith("application/json")
                found = json.loads(text) if text and is_json else text or None
                shown = normal(found)
        if f"{method} {normal(path)}" == COPY:
            shown = None
        elif answer.status_code >= 400:
            shown = sorted(found) if isinstance(found, dict) else type(found).__name__
        headers = {name: normal(answer.headers.get(name)) for name in ("location", "content-location")}
        self.found.append((f"{method} {normal(path)}", normal(body), answer.status_code, shown, headers))
        return found

    def thread(self, **more: Any) -> str:
        return self("POST", "/threads", more)["thread_id"]

    def wait(self, thread: str, graph: str, **more: Any) -> Any:
        return self("POST", f"/threads/{thread}/runs/wait", {"assistant_id": graph, **more})

    def stream(self, thread: str, graph: str, *modes: str, **more: Any) -> Any:
        body = {"assistant_id": graph, "stream_mode": [*modes], **more}
        return self("POST", f"/threads/{thread}/runs/stream", body)

    def until_running(self, thread: str, run: str) -> None:
        """Wait until a run has left the queue, without a trace in what is compared."""
        at = f"/threads/{thread}/runs/{run}"
        until(lambda: self.http.get(at).json()["status"] == "running", "the run")

    def until_at(self, thread: str, node: str) -> None:
        """Wait until a thread's run is in a node, without a trace."""
        at = f"/threads/{thread}/state"
        until(lambda: self.http.get(at).json()["next"] == [node], node)

    def until_idle(self, thread: str) -> None:
        """Wait until a thread's run is over, without a trace: its last event comes before that."""
        until(lambda: self.http.get(f"/threads/{thread}").json()["status"] != "busy", "the end")

    def command(self, thread: str, method: str, **params: Any) -> Any:
        """A command of the second protocol."""
        return self("POST", f"/threads/{thread}/commands", {"id": 1, "method": method, "params": params})

    def told(self, thread: str) -> None:
        """Keep a thread's events by the second protocol, until its own graph stops."""
        found: list[Any] = []
        channels = ["values", "lifecycle", "input", "messages", "tools", "custom", "tasks"]
        body = {"channels": channels}
        with self.http.stream("POST", f"/threads/{thread}/stream/events", json=body) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data: "):
                    continue
                made = json.loads(line[6:])
                params = {key: made["params"][key] for key in ("namespace", "data")}
                found.append((made["seq"], made["method"], normal(params)))
                is_last = made["method"] == "lifecycle" and not params["namespace"]
                if is_last and params["data"]["event"] != "running":
                    break
        self.found.append(("events of a thread", None, 200, found, {}))


def interrupt_and_resume(ask: Script) -> None:
    thread = ask.thread(metadata={"of": "a test"})
    ask("GET", f"/threads/{thread}")
    ask("GET", f"/threads/{thread}/state")
    ask.stream(thread, "ask", "values", "updates", "custom", "tasks", input={"topic": "tea"})
    ask("GET", f"/threads/{thread}/state")
    ask("GET", f"/threads/{thread}")
    copy = ask("POST", f"/threads/{thread}/copy")["thread_id"]
    ask.wait(thread, "ask", command={"resume": "Yes."})
    ask("GET", f"/threads/{thread}")
    past = ask("GET", f"/threads/{thread}/history?limit=10")
    ask("POST", f"/threads/{thread}/history", {"limit": 2})
    at = past[-2]["checkpoint"]
    ask("GET", f"/threads/{thread}/state/{at['checkpoint_id']}")
    ask("POST", f"/threads/{thread}/state/checkpoint", {"checkpoint": at})
    ask.wait(thread, "ask", input=None, checkpoint_id=at["checkpoint_id"])
    ask("POST", f"/threads/{thread}/state", {"values": {"text": "Patched."}, "as_node": "review"})
    ask.wait(thread, "ask", input=None)
    ask.wait(copy, "ask", command={"resume": {"a": ["value", 1]}})
    ask.wait(copy, "ask", command={"resume": "late"})
    ask("GET", f"/threads/{thread}/runs?limit=1")
    ask("DELETE", f"/threads/{copy}")
    ask("GET", f"/threads/{copy}")


def messages(ask: Script) -> None:
    thread = ask.thread()
    said = {"messages": [{"role": "user", "content": "hi", "id": "asked-1"}]}
    ask.stream(thread, "talk", "messages-tuple", input=said)
    ask.stream(thread, "talk", "messages", input=None)
    ask.wait(thread, "talk", input={"messages": [{"type": "human", "content": "again", "id": "asked-2"}]})
    ask("GET", f"/threads/{thread}/state")


def several_interrupts(ask: Script) -> None:
    thread = ask.thread()
    found = ask.wait(thread, "both", input={"topic": "tea"})["__interrupt__"]
    ids = {one["value"]: one["id"] for one in found}
    ask.wait(thread, "both", command={"resume": "one for two"})
    ask.wait(thread, "both", command={"resume": {ids["left?"]: "L"}})
    ask.wait(thread, "both", command={"resume": {ids["right?"]: "R"}})


def failures(ask: Script) -> None:
    thread = ask.thread()
    ask.stream(thread, "boom", "values", input={"topic": "tea"})
    ask("GET", f"/threads/{thread}")
    ask.wait(thread, "boom", input={"topic": "tea"})
    unknown = "00000000-0000-4000-8000-000000000000"
    ask("GET", f"/threads/{unknown}")
    ask("GET", "/threads/no-uuid")
    ask("POST", f"/threads/{unknown}/runs/wait", {"assistant_id": "ask", "input": {}})
    ask("POST", f"/threads/{thread}/runs/wait", {"assistant_id": "nothing", "input": {}})
    ask("POST", f"/threads/{thread}/runs/wait", {"assistant_id": unknown, "input": {}})
    ask("GET", f"/threads/{thread}/runs/{unknown}")
    ask("GET", f"/threads/{thread}/runs/{unknown}/join")
    ask("POST", f"/threads/{unknown}/copy")
    ask("POST", "/runs/wait", {"assistant_id": "ask", "command": {"resume": 1}})
    ask("POST", "/assistants", {"graph_id": "nothing"})
    ask("GET", f"/assistants/{unknown}")
    ask("GET", "/store/items?namespace=a")


def breakpoints(ask: Script) -> None:
    thread = ask.thread()
    ask.stream(thread, "ask", "updates", input={"topic": "tea"}, interrupt_before=["review"])
    ask("GET", f"/threads/{thread}/state")
    ask.stream(thread, "ask", "updates", input=None)


def subgraphs(ask: Script) -> None:
    thread = ask.thread()
    ask.stream(thread, "deep", "values", "updates", "custom", input={"topic": "tea"}, stream_subgraphs=True)
    ask.stream(thread, "deep", "values", "custom", input={"topic": "tea"})


def without_a_thread(ask: Script) -> None:
    ask("POST", "/runs/wait", {"assistant_id": "ask", "input": {"topic": "tea"}})
    ask("POST", "/runs/stream", {"assistant_id": "deep", "input": {"topic": "tea"}})


def items(ask: Script) -> None:
    ask("PUT", "/store/items", {"namespace": ["a", "b"], "key": "k", "value": {"n": 1}})
    ask("GET", "/store/items?namespace=a.b&key=k")
    ask("POST", "/store/items/search", {"namespace_prefix": ["a"]})
    ask("POST", "/store/namespaces", {})
    ask("DELETE", "/store/items", {"namespace": ["a", "b"], "key": "k"})
    ask("GET", "/store/items?namespace=a.b&key=k")


def assistants(ask: Script) -> None:
    found = ask("POST", "/assistants/search", {"graph_id": "ask"})[0]["assistant_id"]
    ask("GET", f"/assistants/{found}/schemas")
    ask("GET", f"/assistants/{found}/graph")
    made = ask("POST", "/assistants", {"graph_id": "ask", "name": "mine", "metadata": {"of": "me"}})
    ask("PATCH", f"/assistants/{made['assistant_id']}", {"metadata": {"more": 1}})
    ask("POST", f"/assistants/{made['assistant_id']}/latest", {"version": 1})
    ask("POST", "/assistants/count", {"metadata": {"of": "me"}})
    thread = ask.thread()
    ask.wait(thread, made["assistant_id"], input={"topic": "tea"})
    ask("DELETE", f"/assistants/{made['assistant_id']}")


def inputs(ask: Script) -> None:
    """As a graph takes them: nothing is checked that LangGraph doesn't check."""
    for given in ({"n": "5", "names": 3, "odd": 1}, {"odd": 1}, {}, {"n": None}, "text", [1], 5):
        ask.wait(ask.thread(), "typed", input=given)
    for given in ({"a": 1}, {"input": {"a": 1}}, "text", "", 0, 5, 1.5, True, False, [], ["a", 1]):
        ask.wait(ask.thread(), "single", input=given)
    said = {"role": "user", "content": "hi", "id": "1"}
    for given in ([said], said, [{**said, "type": "human"}], [{"type": "human", "content": "x", "id": "1"}]):
        ask.wait(ask.thread(), "chat", input={"messages": given, "odd": 1})
    thread = ask.thread()
    found = ask("POST", f"/threads/{thread}/runs/wait", {"assistant_id": "chat", "input": {"messages": "hi"}})
    assert found["messages"][1]["content"] == "human said hi"
    ask.wait(ask.thread(), "chat", input={"messages": [["user", "hi"]], "count": "three"})
    ask.wait(ask.thread(), "chat", input={"messages": [{"role": "user"}]})
    ask.wait(ask.thread(), "chat", input={"count": "x"})
    thread = ask.thread()
    ask.wait(thread, "typed", input={"n": 1})
    ask.wait(thread, "typed", input={"names": "b", "odd": 1})
    ask.wait(thread, "typed", input="text")
    ask("GET", f"/threads/{thread}/state")
    thread = ask.thread()
    ask.wait(thread, "single", input=1)
    ask.wait(thread, "single", input={"input": 2})
    ask.wait(thread, "single", input=[3])


def nothing_given(ask: Script) -> None:
    for graph in ("ask", "single"):
        thread = ask.thread()
        ask.wait(thread, graph)
        ask.stream(thread, graph, "values", input=None)
        ask("GET", f"/threads/{thread}")
        ask("GET", f"/threads/{thread}/state")
    ask("POST", "/runs/wait", {"assistant_id": "ask"})
    thread = ask.thread()
    ask.wait(thread, "ask", command={"goto": "close"})
    ask("GET", f"/threads/{thread}/state")


def outputs(ask: Script) -> None:
    """A graph's output has the keys of its schema; its state has all but those of nodes among themselves."""
    thread = ask.thread()
    ask.wait(thread, "private", input={"topic": "tea"})
    ask.stream(thread, "private", "values", "updates", input={"topic": "tea"})
    ask.stream(thread, "private", "debug", "tasks", "checkpoints", input={"topic": "tea"})
    ask.stream(thread, "private", "values", "updates", input={"topic": "tea"}, stream_subgraphs=True)
    ask("GET", f"/threads/{thread}")
    ask("GET", f"/threads/{thread}/state")
    ask("GET", f"/threads/{thread}/history?limit=2")
    run = ask("POST", f"/threads/{thread}/runs", {"assistant_id": "private", "input": {"topic": "tea"}})
    ask("GET", f"/threads/{thread}/runs/{run['run_id']}/join")
    ask.wait(thread, "private", input={"topic": "ask"})
    ask.wait(thread, "private", command={"resume": "said"})
    ask.wait(ask.thread(), "private", input={"topic": "tea"}, stream_mode="updates")
    ask.wait(ask.thread(), "private", input={"topic": "ask"}, stream_mode=["updates", "messages"])
    ask("POST", "/runs/wait", {"assistant_id": "private", "input": {"topic": "tea"}})
    ask.wait(thread, "single", input={"a": 1})
    ask.stream(thread, "single", "values", "updates", input={"a": 1})
    found = ask("POST", "/assistants/search", {"graph_id": "private"})[0]["assistant_id"]
    ask("GET", f"/assistants/{found}/schemas")


def unstreamed(ask: Script) -> None:
    thread = ask.thread()
    said = {"messages": [{"role": "user", "content": "hi", "id": "asked-1"}]}
    ask.wait(thread, "whole", input=said)
    ask.stream(thread, "whole", "messages-tuple", input=said)


def modes(ask: Script) -> None:
    thread = ask.thread()
    unknown = "00000000-0000-4000-8000-000000000000"
    given = {"assistant_id": "deep", "input": {"topic": "tea"}}
    for wrong in ("all", ["values", "all"], 5, [], "", None, ["end"], "events", ["values", "values"]):
        ask("POST", f"/threads/{ask.thread()}/runs/wait", {**given, "stream_mode": wrong})
    ask("POST", f"/threads/{thread}/runs/stream", {**given, "stream_mode": "all"})
    ask("POST", f"/threads/{thread}/runs", {**given, "stream_mode": "all"})
    ask("POST", "/runs/stream", {**given, "stream_mode": "all"})
    ask("GET", f"/threads/{thread}/stream?stream_modes=all")
    run = ask("POST", f"/threads/{thread}/runs", {**given, "stream_mode": ["values", "updates"]})["run_id"]
    ask("GET", f"/threads/{thread}/runs/{run}/join")
    ask("GET", f"/threads/{thread}/runs/{run}/stream?stream_mode=values")
    ask("GET", f"/threads/{thread}/runs/{unknown}/stream")
    for strategy in ("x", 5, None):
        ask("POST", f"/threads/{ask.thread()}/runs/wait", {**given, "multitask_strategy": strategy})
    for name in ("on_disconnect", "if_not_exists", "on_completion", "durability", "after_seconds", "config"):
        ask("POST", f"/threads/{ask.thread()}/runs/wait", {**given, name: "x"})
    for name in ("metadata", "command", "checkpoint", "context", "interrupt_before", "webhook"):
        ask("POST", f"/threads/{ask.thread()}/runs/wait", {**given, name: 5})


def searches(ask: Script) -> None:
    mark = str(uuid4())
    threads = [ask.thread(metadata={"mark": mark, "n": n}) for n in range(3)]
    ask.wait(threads[1], "ask", input={"topic": "tea"})
    ask.wait(threads[0], "deep", input={"topic": "jam"})
    about = {"metadata": {"mark": mark}}

    def order(**more: Any) -> None:
        found = ask("POST", "/threads/search", {**about, **more})
        places = [threads.index(one["thread_id"]) for one in found] if isinstance(found, list) else None
        ask.found.append((f"order {more}", None, 200, places, {}))

    for by in ("created_at", "updated_at", "status", "thread_id", "state_updated_at", "x", 5):
        for way in ("asc", "desc", "x"):
            if by == "thread_id":
                continue
            order(sort_by=by, sort_order=way)
    order(sort_by="created_at")
    order(sort_order="asc")
    order(limit=1, offset=1, sort_by="created_at", sort_order="asc")
    for status in ("idle", "interrupted", "busy", "error", "x"):
        order(status=status)
    for select in (
        ["thread_id"],
        ["thread_id", "values"],
        ["nothing"],
        "thread_id",
        [],
        ["interrupts", "status"],
    ):
        ask("POST", "/threads/search", {**about, "select": select})
    texts = {
        "topic": "values.topic",
        "last": "values.log[-1]",
        "first": "values.log[0]",
        "none": "values.x.y",
    }
    for extract in (
        texts,
        {"of": "metadata.mark"},
        {"x": "status"},
        {"x": ""},
        {"x": "values"},
        "x",
        {"a b": "values"},
    ):
        ask("POST", "/threads/search", {**about, "extract": extract, "sort_by": "created_at"})
    ask("POST", "/threads/search", {**about, "extract": texts, "select": ["thread_id", "status"]})
    ask("POST", "/threads/search", {**about, "ids": [threads[0], "x"]})
    ask("POST", "/threads/count", about)
    ask("POST", "/threads/count", {**about, "status": "idle"})
    for by in ("created_at", "updated_at", "name", "graph_id", "assistant_id", "x"):
        ask("POST", "/assistants/search", {"graph_id": "ask", "sort_by": by, "sort_order": "asc"})
    for select in (["assistant_id"], ["assistant_id", "nothing"], ["name", "config"], []):
        ask("POST", "/assistants/search", {"graph_id": "ask", "select": select})
    ask("POST", "/assistants/search", {"graph_id": "ask", "name": "ASK"})
    ask("POST", "/assistants/search", {"name": "%"})
    thread = threads[2]
    ask.wait(thread, "deep", input={"topic": "tea"})
    ask("GET", f"/threads/{thread}/runs?select=run_id&select=status")
    ask("GET", f"/threads/{thread}/runs?select=nothing")
    ask("GET", f"/threads/{thread}/runs?status=success")
    ask("GET", f"/threads/{thread}/runs?status=x")
    ask("GET", f"/threads/{thread}?include=ttl")
    ask("GET", f"/threads/{thread}/state?subgraphs=true")


def made_where_missing(ask: Script) -> None:
    given = {"assistant_id": "deep", "input": {"topic": "tea"}, "metadata": {"of": "me"}}
    for way in ("wait", "stream"):
        name = str(uuid4())
        ask("POST", f"/threads/{name}/runs/{way}", {**given, "if_not_exists": "create"})
        ask("GET", f"/threads/{name}")
        ask("GET", f"/threads/{name}/runs")
        ask("POST", f"/threads/{name}/runs/{way}", {**given, "metadata": {"of": "you", "more": 1}})
        ask("GET", f"/threads/{name}")
        ask("POST", f"/threads/{uuid4()}/runs/{way}", {**given, "if_not_exists": "reject"})
        ask("POST", f"/threads/{uuid4()}/runs/{way}", given)
    thread = ask.thread(metadata={"mine": 1})
    ask.wait(thread, "deep", input={"topic": "tea"}, metadata={"of": "me"}, if_not_exists="create")
    ask("GET", f"/threads/{thread}")
    ask("POST", "/threads", {"thread_id": thread, "if_exists": "do_nothing", "metadata": {"new": 1}})
    ask("POST", "/threads", {"thread_id": thread})
    ask("POST", "/threads", {"thread_id": thread, "if_exists": "x"})
    ask("PATCH", f"/threads/{thread}", {"metadata": {"mine": 2}})
    ask("PATCH", f"/threads/{thread}", {})
    ask("GET", f"/threads/{thread}")


def drawings(ask: Script) -> None:
    for graph in ("made", "outer", "single", "private"):
        found = ask("POST", "/assistants/search", {"graph_id": graph})[0]["assistant_id"]
        for xray in ("", "?xray=true", "?xray=1", "?xray=x", "?xray=0", "?xray=-1"):
            ask("GET", f"/assistants/{found}/graph{xray}")
        if graph != "single":
            ask("GET", f"/assistants/{found}/schemas")
        for way in ("subgraphs", "subgraphs?recurse=true", "subgraphs/inner", "subgraphs/none"):
            ask("GET", f"/assistants/{found}/{way}")
    more = {"graph_id": "made", "config": {"configurable": {"second": True}}}
    made = ask("POST", "/assistants", more)["assistant_id"]
    ask("GET", f"/assistants/{made}/graph")
    ask.wait(ask.thread(), made, input={"topic": "tea"})
    ask.wait(ask.thread(), "made", input={"topic": "tea"})
    ask.wait(ask.thread(), "made", input={"topic": "tea"}, config={"configurable": {"second": True}})
    ask("DELETE", f"/assistants/{made}")


def places(ask: Script) -> None:
    """Checkpoints that there are, and others."""
    thread, unknown = ask.thread(), "1f000000-0000-6000-8000-000000000000"
    ask("GET", f"/threads/{thread}/state/{unknown}")
    ask.wait(thread, "outer", input={"topic": "tea"})
    for name in (unknown, "x"):
        ask("GET", f"/threads/{thread}/state/{name}")
        ask("POST", f"/threads/{thread}/state/checkpoint", {"checkpoint": {"checkpoint_id": name}})
        ask.wait(thread, "outer", input=None, checkpoint_id=name)
        ask.wait(thread, "outer", input=None, checkpoint={"checkpoint_id": name})
        ask("POST", f"/threads/{thread}/history", {"before": name})
        ask("POST", f"/threads/{thread}/history", {"checkpoint": {"checkpoint_id": name}})
    ask("GET", f"/threads/{thread}")
    ask("GET", f"/threads/{thread}/state?subgraphs=true")
    found = ask("GET", f"/threads/{thread}/state")
    inner = found["tasks"][0]["checkpoint"] if isinstance(found, dict) and found["tasks"] else None
    if inner:
        ask("POST", f"/threads/{thread}/state/checkpoint", {"checkpoint": inner})
        ask("POST", f"/threads/{thread}/state/checkpoint", {"checkpoint": inner, "subgraphs": True})
    ask("POST", f"/threads/{thread}/state", {"values": {"text": "x"}, "as_node": "nowhere"})
    ask("POST", f"/threads/{thread}/state", {"values": {"odd": 1}})
    ask("POST", f"/threads/{thread}/state", {"values": 5})
    ask("POST", f"/threads/{thread}/state", {})
    ask("GET", f"/threads/{thread}/state")
    for limit in ("0", "x", "-1", "1000"):
        ask("GET", f"/threads/{thread}/history?limit={limit}")
    ask("POST", f"/threads/{thread}/history", {"limit": 3, "metadata": {"source": "loop"}})


def busy(ask: Script) -> None:
    thread = ask.thread()
    given = {"assistant_id": "slow", "input": {"topic": "30"}}
    run = ask("POST", f"/threads/{thread}/runs", given)["run_id"]
    ask.until_running(thread, run)
    ask("POST", f"/threads/{thread}/runs/wait", {**given, "multitask_strategy": "reject"})
    ask("POST", f"/threads/{thread}/state", {"values": {"text": "x"}})
    ask("DELETE", f"/threads/{thread}")
    ask("GET", f"/threads/{thread}")
    ask("GET", f"/threads/{thread}/runs")
    ask("GET", f"/threads/{thread}/runs/{run}")
    thread = ask.thread()
    run = ask("POST", f"/threads/{thread}/runs", given)["run_id"]
    ask.until_running(thread, run)
    ask("DELETE", f"/threads/{thread}/runs/{run}")
    ask("GET", f"/threads/{thread}/runs/{run}")
    ask("GET", f"/threads/{thread}/runs")
    thread = ask.thread()
    run = ask("POST", f"/threads/{thread}/runs", given)["run_id"]
    ask.until_running(thread, run)
    ask.http.post(f"/threads/{thread}/runs/{run}/cancel?wait=1")
    ask("GET", f"/threads/{thread}/runs/{run}")
    ask("POST", f"/threads/{thread}/runs/{run}/cancel?wait=1")
    ask("POST", f"/threads/{thread}/runs/{run}/cancel?action=x")


def cancelled_before_they_began(ask: Script) -> None:
    """The first run of a thread, and one that was to answer its interrupt."""
    thread, later = ask.thread(), {"after_seconds": 12}
    for given in ({"input": {"topic": "tea"}}, {"command": {"resume": "Yes."}}):
        asked = {"assistant_id": "ask", **given}
        run = ask("POST", f"/threads/{thread}/runs", {**asked, **later})["run_id"]
        ask.http.post(f"/threads/{thread}/runs/{run}/cancel?wait=1")
        ask("GET", f"/threads/{thread}")
        ask("GET", f"/threads/{thread}/state")
        ask("POST", f"/threads/{thread}/runs/{run}/cancel?wait=1")
        ask("POST", "/runs/cancel", {"thread_id": thread, "run_ids": [run]})
        ask("POST", f"/threads/{thread}/runs/wait", asked)
        ask("GET", f"/threads/{thread}")


def contexts(ask: Script) -> None:
    """A context and `configurable` are one, and an assistant's is filled up."""
    given = {"graph_id": "contextual", "context": {"who": "me", "level": 1}}
    made = ask("POST", "/assistants", given)["assistant_id"]
    ask("GET", f"/assistants/{made}/schemas")
    for name in (made, "contextual"):
        for more in (
            {},
            {"context": {"level": 2}},
            {"config": {"configurable": {"level": 3}}},
            {"context": {"level": 2}, "config": {"configurable": {"who": "you"}}},
        ):
            ask.wait(ask.thread(), name, input={}, **more)
    thread = ask.thread()
    run = ask("POST", f"/threads/{thread}/runs", {"assistant_id": made, "input": {}, "context": {"level": 4}})
    ask("GET", f"/threads/{thread}/runs/{run['run_id']}/join")
    ask("DELETE", f"/assistants/{made}?delete_threads=true")
    ask("GET", f"/threads/{thread}")


def nothing_again(ask: Script) -> None:
    """No input for a thread that waits, stands at a breakpoint, or is over."""
    for graph in ("ask", "outer", "deep", "paused"):
        thread = ask.thread()
        ask.wait(thread, graph, input={"topic": "tea"})
        ask.wait(thread, graph, input=None)
        ask.stream(thread, graph, "values", "updates", input=None)
        ask.wait(thread, graph, command={})
        ask("GET", f"/threads/{thread}")
        ask("GET", f"/threads/{thread}/state")


def schemas_of_answers(ask: Script) -> None:
    thread = ask.thread()
    ask.stream(thread, "form", "values", "updates", input={"topic": "tea"})
    ask("GET", f"/threads/{thread}")
    ask("GET", f"/threads/{thread}/state")
    ask.wait(thread, "form", command={"resume": {"ok": True}})


def unfit_state(ask: Script) -> None:
    thread = ask.thread()
    ask.wait(thread, "counted", input={"n": 1})
    ask.wait(thread, "counted", input={"n": -1})
    ask("GET", f"/threads/{thread}")
    ask("GET", f"/threads/{thread}/state")
    ask("POST", "/threads/search", {"ids": [thread]})


def events_of_nodes(ask: Script) -> None:
    for graph in ("deep", "talk", "boom", "ask"):
        given = {"topic": "tea", "messages": [{"role": "user", "content": "hi", "id": "1"}]}
        body = {"assistant_id": graph, "input": given, "stream_mode": ["events", "values"]}
        found = ask("POST", f"/threads/{ask.thread()}/runs/stream", body)
        ask.found.pop()
        names = [(name, data.get("event"), data.get("name")) for name, data in found]
        ask.found.append((graph, None, 200, names, {}))


def debugged(ask: Script) -> None:
    for graph in ("deep", "outer"):
        more = {"input": {"topic": "tea"}, "stream_subgraphs": True}
        ask.stream(ask.thread(), graph, "debug", "checkpoints", "tasks", **more)


def cancelled(ask: Script) -> None:
    given = {"assistant_id": "idle", "input": {"topic": "20"}}
    for before in (False, True):
        for action in ("interrupt", "rollback"):
            thread = ask.thread()
            if before:
                ask.wait(thread, "idle", input={"topic": "0"})
            run = ask("POST", f"/threads/{thread}/runs", given)["run_id"]
            ask.until_at(thread, "pause")
            ask("POST", f"/threads/{thread}/runs/{run}/cancel?wait=1&action={action}")
            ask("GET", f"/threads/{thread}")
            ask("GET", f"/threads/{thread}/state")
    waits = ask.thread()
    run = ask("POST", f"/threads/{waits}/runs", {**given, "after_seconds": 60})["run_id"]
    ask("GET", f"/threads/{waits}")
    ask("POST", f"/threads/{waits}/runs/{run}/cancel?wait=1")
    ask("GET", f"/threads/{waits}")
    for body in (
        {"thread_id": waits, "run_ids": [run]},
        {"run_ids": [run]},
        {"thread_id": waits},
        {"thread_id": waits, "run_ids": [run], "status": "pending"},
        {"status": "x"},
        {},
    ):
        ask("POST", "/runs/cancel", body)


def read_again(ask: Script) -> None:
    thread = ask.thread()
    given = {"input": {"topic": "tea"}, "stream_mode": ["values", "updates"], "stream_resumable": True}
    run = ask("POST", f"/threads/{thread}/runs", {"assistant_id": "deep", **given})["run_id"]
    ask("GET", f"/threads/{thread}/runs/{run}/join")
    for mode in ("values", "updates", "metadata", "messages-tuple"):
        ask("GET", f"/threads/{thread}/runs/{run}/stream?stream_mode={mode}", headers={"last-event-id": "-1"})
    ask("GET", f"/threads/{thread}/runs?limit=0")
    ask("POST", "/runs", {"assistant_id": "deep", "input": {"topic": "tea"}})
    ask("POST", "/runs/batch", [{"assistant_id": "deep", "input": {"topic": "tea"}}])


def second_protocol(ask: Script) -> None:
    for graph in ("outer", "both", "boom", "talk"):
        thread = str(uuid4())
        given = {"topic": "tea", "messages": [{"role": "user", "content": "hi", "id": "1"}]}
        ask.command(thread, "run.start", assistant_id=graph, input=given)
        ask.told(thread)
        ask.until_idle(thread)
        for method in ("agent.getTree", "nothing"):
            ask.command(thread, method)


WRONG: dict[str, list[Any]] = {
    "POST /threads": [{"metadata": None}, {"ttl": 5}, {"ttl": {"strategy": "x"}}, {"if_exists": "x"}, []],
    "PATCH /threads/{thread}": [{"ttl": 5}, {"metadata": 5}],
    "POST /threads/search": [{"limit": None}, {"limit": "3"}, {"status": None}, {"ids": "x"}, {"values": 5}],
    "POST /threads/prune": [{}, {"thread_ids": "x"}],
    "POST /threads/{thread}/history": [{"limit": 1001}, {"metadata": 5}],
    "POST /threads/{thread}/state/checkpoint": [{}, {"checkpoint": "x"}],
    "POST /threads/{thread}/runs/wait": [
        *(
            {"assistant_id": "deep", name: "x"}
            for name in ("stream_subgraphs", "stream_resumable", "context")
        ),
        *({"assistant_id": "deep", name: 5} for name in ("interrupt_before", "config", "command", "webhook")),
        *({"assistant_id": "deep", "webhook": ""}, {"assistant_id": "deep", "interrupt_after": "x"}),
        *({"assistant_id": "deep", "config": one} for one in ({"recursion_limit": "x"}, {"tags": "x"})),
        {"assistant_id": "deep", "command": {"goto": 5}},
        {"input": {}},
    ],
    "POST /runs/batch": [[], [{}], ["x"]],
    "POST /assistants": [
        {},
        {"graph_id": 5},
        *({"graph_id": "deep", n: 5} for n in ("name", "metadata", "config")),
    ],
    "POST /assistants/search": [{"limit": "x"}, {"select": ["x"]}, {"sort_by": "x"}, {"metadata": 5}],
    "PUT /store/items": [
        {},
        {"namespace": [], "key": "k", "value": {}},
        {"namespace": ["a"], "key": "k", "value": "x"},
        {"namespace": ["a"], "key": "k", "value": {}, "index": "x"},
        {"namespace": ["a"], "key": "k", "value": {}, "ttl": "x"},
    ],
}


def bodies(ask: Script) -> None:
    thread = ask.thread()
    ask.wait(thread, "deep", input={"topic": "tea"})
    for route, several in WRONG.items():
        method, path = route.split()
        for body in several:
            ask(method, path.format(thread=thread), body)


def versions(ask: Script) -> None:
    made = ask("POST", "/assistants", {"graph_id": "deep", "metadata": {"of": str(uuid4())}})["assistant_id"]
    ask("PATCH", f"/assistants/{made}", {"metadata": {"more": 1}})
    mark = {"metadata": {"mark": str(uuid4())}}
    several = [ask("POST", "/assistants", {"graph_id": "deep", "name": n, **mark}) for n in ("b", "A", "c")]
    ask("POST", "/assistants/search", {**mark, "sort_by": "name", "sort_order": "asc"})
    for one in several:
        ask("DELETE", f"/assistants/{one['assistant_id']}")
    for body in ({}, {"metadata": {"more": 1}}, {"limit": 1}):
        ask("POST", f"/assistants/{made}/versions", body)
    ask("POST", "/assistants", {"graph_id": "deep", "assistant_id": "x"})
    ask("POST", "/threads/search", {"metadata": {"nobody has this": None}})
    ask("DELETE", f"/assistants/{made}")


SCRIPTS: list[Callable[[Script], None]] = [
    interrupt_and_resume,
    messages,
    several_interrupts,
    failures,
    breakpoints,
    subgraphs,
    without_a_thread,
    items,
    assistants,
    inputs,
    nothing_given,
    outputs,
    unstreamed,
    modes,
    searches,
    made_where_missing,
    drawings,
    places,
    busy,
    cancelled_before_they_began,
    contexts,
    nothing_again,
    schemas_of_answers,
    unfit_state,
    events_of_nodes,
    debugged,
    cancelled,
    read_again,
    second_protocol,
    bodies,
    versions,
]


def played(script: Callable[[Script], None], http: httpx.Client) -> list[Any]:
    ask = Script(http)
    script(ask)
    return ask.found
