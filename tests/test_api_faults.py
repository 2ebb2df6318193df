"""What goes wrong around the API: other sites and hosts, guesses, slow readers, stale answers, other drivers."""

import asyncio
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_lab import INTERLOCK, Ours
from api_requests import Script
from patience import HANG_S, sampled, until
from websockets.sync.client import connect

from interlock.graphs import PIPELINES
from interlock.web.api import drive_streams

FRIEND = "http://localhost:3000"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ours]:
    found = Ours(tmp_path_factory.mktemp("faults") / "work", "--allow-origin", FRIEND)
    yield found
    found.close()


REFUSED: list[tuple[str, str, dict[str, str], int]] = [
    ("POST", "/threads/search", {"host": "evil.example"}, 421),
    ("GET", "/ok", {"host": "evil.example:4280"}, 421),
    ("GET", "/", {"host": "127.0.0.1.evil.example"}, 421),
    ("POST", "/threads/search", {"origin": "http://evil.example"}, 403),
    ("GET", "/info", {"origin": "null"}, 403),
    ("POST", "/runs/wait", {"sec-fetch-site": "cross-site"}, 403),
    ("POST", "/runs/wait", {"sec-fetch-site": "same-site"}, 403),
    ("OPTIONS", "/threads", {"origin": "http://evil.example", "access-control-request-method": "POST"}, 403),
]


def test_another_host_name_and_another_site_are_refused_even_with_a_token(ours: Ours) -> None:
    with ours.http() as http:
        for method, path, headers, status in REFUSED:
            answer = http.request(method, path, headers=headers)
            assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (status, None)


def test_a_site_that_is_allowed_uses_the_api_with_a_token(ours: Ours) -> None:
    with httpx.Client(base_url=ours.url, headers={"origin": FRIEND}) as friend:
        asked = friend.options("/threads", headers={"access-control-request-method": "POST"})
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, FRIEND)
        assert "x-api-key" in asked.headers["access-control-allow-headers"]
        made = friend.post("/threads", json={}, headers={"x-api-key": ours.token})
        assert (made.status_code, made.headers["access-control-allow-origin"]) == (200, FRIEND)
        assert friend.post("/threads", json={}).status_code == 401


def test_an_origin_that_is_none_is_refused_in_one_line(ours: Ours) -> None:
    command = [*INTERLOCK, "serve", "--allow-origin", "*"]
    said = subprocess.run(command, env=ours.env, capture_output=True, text=True, check=False)
    assert said.returncode == 2 and "Expected one like http://localhost:3000" in said.stderr


class _Talk:
    """A WebSocket, and what events came."""

    def __init__(self, ours: Ours, thread: str, token: str) -> None:
        address = f"{ours.url.replace('http', 'ws', 1)}/threads/{thread}/stream/events"
        headers = {"x-api-key": token}
        self._connecting = connect(address, additional_headers=headers, open_timeout=HANG_S, proxy=None)
        self._events: list[tuple[int, str]] = []
        self._ended = False

    def __enter__(self) -> "_Talk":
        self._socket = self._connecting.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._connecting.__exit__(None, None, None)

    def _heard(self, timeout: float) -> Any:
        """The next message that is no event; None for one."""
        made = json.loads(self._socket.recv(timeout))
        if made["type"] != "event":
            return made
        self._events.append((made["seq"], made["method"]))
        data = made["params"]["data"]
        self._ended |= (
            data.get("event") == "completed" and "graph_name" in data and not made["params"]["namespace"]
        )
        return None

    def sent(self, number: Any, method: str, **params: Any) -> Any:
        """The response to a command."""
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (made := self._heard(HANG_S)) is None:
            pass
        return made

    def read(self) -> list[tuple[int, str]]:
        """The events up to the end of the run, and whatever is already under way behind it."""
        while not self._ended:
            self._heard(HANG_S)
        try:
            while True:
                self._heard(0.5)
        except TimeoutError:
            return self._events


def test_a_websocket_is_as_guarded_and_sends_each_event_once(ours: Ours) -> None:
    viewer = ours.tokens("new", "socket", "--role", "view")
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
    key = {"x-api-key": ours.token}
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    for headers in ({}, {**key, "origin": "http://evil.example"}, {**key, "host": "evil.example"}):
        more = {**upgrade, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", **headers}
        refused = httpx.get(f"{ours.url}/threads/{thread}/stream/events", headers=more)
        assert refused.status_code == 403

    with _Talk(ours, thread, viewer) as watching, _Talk(ours, thread, ours.token) as here:
        watched = watching.sent(1, "subscription.subscribe", channels=["lifecycle", "values"])
        assert watched["type"] == "success"
        assert "drive" not in watching.sent(2, "run.start", assistant_id="deep").get("result", {})
        assert here.sent("x", "run.start")["error"] == "invalid_argument"
        assert here.sent(1, "subscription.subscribe", channels=["all"])["error"] == "invalid_argument"
        assert here.sent(2, "subscription.unsubscribe")["error"] == "no_such_subscription"
        assert here.sent(3, "run.start", assistant_id="deep", input={"topic": "tea"})["type"] == "success"
        assert here.sent(4, "subscription.subscribe", channels=["lifecycle"])["type"] == "success"
        assert here.sent(5, "subscription.subscribe", channels=["lifecycle", "values"])
        read = [one.read() for one in (watching, here)]
        assert len({seq for seq, _ in read[0]}) == len(read[0]) and read[0] == sorted(read[0])
        assert sorted(read[1]) == read[0], "two subscriptions, each event once"


HALF = b'{"assistant_id": "ask", "input": {"topic": "a\\ud83d"}, "metadata": {"n": 100000000000000000000}}'


def test_half_a_character_and_a_huge_number_reach_whoever_asks(ours: Ours) -> None:
    """Such as the name of a file that isn't UTF-8, in an error's text."""
    with ours.http() as http:
        thread = Script(http).thread()
        asked = http.post(f"/threads/{thread}/runs/wait", content=HALF)
        assert asked.json()["text"] == "About a\ufffd.", asked.text
        (run,) = http.get(f"/threads/{thread}/runs").json()
        assert run["metadata"]["n"] == "100000000000000000000"
        failed = Script(http).wait(thread := Script(http).thread(), "half", input={})
        assert failed["__error__"]["message"].startswith("no file a\ufffd"), failed
        assert http.get(f"/threads/{thread}").json()["status"] == "error"


UNFIT: list[tuple[str, dict[str, Any], str]] = [
    ("state", {"values": 5}, "`values` must be a JSON object"),
    ("state", {"values": {"log": 5}}, "can't be written: TypeError"),
    ("state", {"values": {}, "as_node": "nobody"}, "nobody"),
    ("state", {"values": {}, "as_node": 5}, "`as_node` must be a string"),
    ("state", {"values": {}, "checkpoint_id": [1]}, "`checkpoint_id` must be a string"),
    ("history", {"limit": 10**20}, "`limit` must be"),
    ("runs", {"assistant_id": "ask", "after_seconds": "x"}, "`after_seconds` must be"),
]


def test_what_a_thread_cant_take_is_one_line_and_leaves_it_as_it_was(ours: Ours) -> None:
    with ours.http() as http:
        thread = Script(http).thread()
        Script(http).wait(thread, "ask", input={"topic": "tea"})
        before = http.get(f"/threads/{thread}/state").json()
        for path, given, words in UNFIT:
            said = http.post(f"/threads/{thread}/{path}", json=given)
            status = 400 if given.get("as_node") == "nobody" else 422
            assert (said.status_code, words in said.json()["detail"]) == (status, True), said.text
        assert http.get(f"/threads/{thread}/state").json() == before
        assert len(http.get(f"/threads/{thread}/runs").json()) == 1


UNTAKEN: list[Any] = [
    {},
    None,
    {"nonsense": 1},
    {"prompt": 5, "query": ["x"], "path": {}, "calls": "x", "history": 3, "limits": "no"},
]


@pytest.mark.parametrize("workflow", sampled(PIPELINES, "search"))
def test_an_input_that_a_workflow_cant_take_is_refused_in_one_line(ours: Ours, workflow: str) -> None:
    """Or it is taken: some workflows need none."""
    with ours.http() as http:
        for given in UNTAKEN:
            begun = http.post("/api/runs", json={"workflow": workflow, "input": given})
            waited = http.post("/runs/wait", json={"assistant_id": workflow, "input": given})
            assert (begun.status_code in (200, 422), waited.status_code) == (True, 200), begun.text
            told = [begun.json().get("detail", ""), waited.json().get("__error__", {}).get("message", "")]
            assert all("\n" not in line and len(line) < 500 for line in told), told
            assert begun.status_code == 200 or told[0] == told[1], told


NOWHERE: list[tuple[dict[str, Any], str]] = [
    ({"workflow": "main", "workspace": "/" + "a" * 5000}, "no folder"),
    ({"workflow": "main", "workspace": "~nobody-at-all/x"}, "no folder"),
    ({"workflow": "main", "workspace": "a\0b"}, "no folder"),
    ({"workflow": "main", "workspace": 5}, "no folder"),
    ({"workflow": ""}, "must be the name of a workflow"),
    ({}, "must be the name of a workflow"),
    ({"workflow": "a" * 5000}, "No workflow"),
]


def test_a_run_that_the_page_cant_begin_is_refused_in_one_line(ours: Ours) -> None:
    with ours.http() as http:
        for given, words in NOWHERE:
            said = http.post("/api/runs", json=given)
            assert (said.status_code, words in said.text, len(said.text) < 500) == (422, True, True), (
                said.text
            )


def test_a_stale_answer_decides_nothing(ours: Ours) -> None:
    with ours.http() as http:
        ask = Script(http)
        thread = ask.thread()
        fix = {"messages": [{"role": "user", "content": "fix it"}]}
        (asked,) = ask.wait(thread, "main", input=fix)["__interrupt__"]
        other = {"choice": "proceed_once", "request": "another-1.1"}
        yes = {"choice": "proceed_once", "request": asked["value"]["request"]}
        for answer, words in (
            (other, "no longer waits"),
            ({"f" * 32: other}, "Unknown or already-consumed interrupt"),
            ({asked["id"]: yes, "f" * 32: yes}, "Unknown or already-consumed interrupt"),
        ):
            said = ask.wait(thread, "main", command={"resume": answer})
            assert words in said["__error__"]["message"]
            assert http.get(f"/threads/{thread}").json()["status"] == "interrupted", "it still waits"
        twice = (
            f'{{"assistant_id": "main", "command": {{"resume": {{"{asked["id"]}": 1, "{asked["id"]}": 2}}}}}}'
        )
        refused = http.post(f"/threads/{thread}/runs/wait", content=twice)
        assert refused.status_code == 422 and "twice" in refused.json()["detail"]
        done = ask.wait(thread, "main", command={"resume": {asked["id"]: yes}})
        for late in ({asked["id"]: yes}, yes):
            said = ask.wait(thread, "main", command={"resume": late})["__error__"]["message"]
            assert "interrupt" in said, "decided already: an answer to nothing is refused"
        values = http.get(f"/threads/{thread}/state").json()["values"]
        assert values["messages"] == done["messages"], "nothing happened"


def test_a_graph_that_exits_says_so_in_words(ours: Ours) -> None:
    with ours.http() as http:
        ask = Script(http)
        said = ask.wait(thread := ask.thread(), "boom", input={"topic": "exit"})["__error__"]
        assert said["message"] == "It exited (SystemExit: no topic). That ends its run."
        assert ask.wait(thread, "talk", input={"messages": "hello"}), "the server goes on"


@pytest.mark.sweep
def test_a_thread_that_a_terminal_drives_is_busy_and_a_new_run_waits_for_it(ours: Ours) -> None:
    command = [*INTERLOCK, "run", "slow", "--skip-trust", "--input", '{"topic": "30"}']
    with (
        subprocess.Popen(command, cwd=ours.folder, env=ours.env, stdout=subprocess.DEVNULL) as terminal,
        ours.http() as http,
    ):

        def found() -> list[Any]:
            return http.post("/threads/search", json={"metadata": {"graph_id": "slow"}}).json()

        until(lambda: [one for one in found() if one["status"] == "busy"], "the terminal's run")
        thread = found()[0]["thread_id"]
        for strategy, words in (("reject", "already running"), ("interrupt", "Stop it: interlock cancel")):
            given = {"assistant_id": "slow", "input": {"topic": "1"}, "multitask_strategy": strategy}
            refused = http.post(f"/threads/{thread}/runs", json=given)
            assert refused.status_code == 409 and words in refused.json()["detail"]
        assert http.post(f"/threads/{thread}/state", json={"values": {"text": "x"}}).status_code == 409
        waited = Script(http).wait(thread, "slow", input={"topic": "1"})
        assert terminal.wait() == 0
    assert waited["log"] == ["draft", "waited", "close"] * 2


def test_a_reader_that_takes_nothing_costs_little_and_reads_all_of_it_later(ours: Ours) -> None:
    with ours.http() as http, ExitStack() as stack:
        thread = Script(http).thread()
        given = {"assistant_id": "big", "input": {"topic": "5"}, "stream_resumable": True}
        run = http.post(f"/threads/{thread}/runs", json=given).json()["run_id"]
        whole = http.get(f"/threads/{thread}/runs/{run}/stream", headers={"last-event-id": "-1"}).content
        until(lambda: http.get(f"/threads/{thread}").json()["values"], "the thread's state, which is kept")
        before = _memory(ours)
        path = f"/threads/{thread}/runs/{run}/stream"
        readers = [stack.enter_context(_reader(ours, path)) for _ in range(10)]
        heads = [_head(one) for one in readers]
        assert http.get("/ok").is_success
        grown = _memory(ours) - before
        assert len(whole) > 10_000_000 and grown < 2 * len(whole), "all ten of them hold less than two events"
        said = heads[0]
        while piece := readers[0].recv(1_000_000):
            said += piece
        assert len(said) > len(whole)


def _reader(ours: Ours, path: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", ours.port), HANG_S)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{ours.port}\r\nx-api-key: {ours.token}\r\n"
    made.sendall(f"{head}last-event-id: -1\r\nconnection: close\r\n\r\n".encode())
    return made


def _head(reader: socket.socket) -> bytes:
    return reader.recv(100)


def _memory(ours: Ours) -> int:
    try:
        status = Path(f"/proc/{ours.process.pid}/status").read_text()
    except OSError:
        pytest.skip("no /proc tells how much memory a process has")
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def test_a_reader_that_takes_nothing_for_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive_streams, "PATIENCE_S", 0.01)
    cut = list[bool]()

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"more"

    async def stuck(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(HANG_S)

    async def receive() -> Any:
        await asyncio.sleep(HANG_S)

    scope = {"type": "http", "asgi": {"spec_version": "2.3"}, "state": {"cut": lambda: cut.append(True)}}
    asyncio.run(drive_streams.EventStreamResponse(pieces())(scope, receive, stuck))
    assert cut == [True]


def test_guesses_of_a_token_are_slowed_and_refused_while_the_right_one_counts(ours: Ours) -> None:
    with ours.http() as http, ours.http("wrong") as guesser:
        found = [guesser.get("/info").status_code for _ in range(7)]
        assert found[0] == 401 and found[-1] == 429, found
        assert http.get("/info").status_code == 200
