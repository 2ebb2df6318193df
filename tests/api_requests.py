"""One script of requests for servers that speak LangGraph's API: ours and LangGraph's own. Answers come normalised."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx

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

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON, or its events."""
        with self.http.stream(method, path, json=body) as answer:
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
        self.found.append((f"{method} {normal(path)}", normal(body), answer.status_code, shown))
        return found

    def thread(self, **more: Any) -> str:
        return self("POST", "/threads", more)["thread_id"]

    def wait(self, thread: str, graph: str, **more: Any) -> Any:
        return self("POST", f"/threads/{thread}/runs/wait", {"assistant_id": graph, **more})

    def stream(self, thread: str, graph: str, *modes: str, **more: Any) -> Any:
        body = {"assistant_id": graph, "stream_mode": [*modes], **more}
        return self("POST", f"/threads/{thread}/runs/stream", body)


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
]


def played(script: Callable[[Script], None], http: httpx.Client) -> list[Any]:
    ask = Script(http)
    script(ask)
    return ask.found
