"""Programs that work through the API of a server that is killed again and again: no run may be hurt, no event lost."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
from api_lab import Ours
from patience import HANG_S, until

CHANNELS = ["values", "updates", "messages", "tools", "custom", "lifecycle", "input", "tasks"]


class Seen(NamedTuple):
    """One event as a program read it."""

    id: str
    event: str
    data: Any


class Program:
    """Takes one thread after the other through a run, an interrupt and its answer; comes back whenever the server does.

    `protocol`: by the second event protocol, whose cursor is in the body.
    """

    def __init__(self, url: str, token: str, folder: Path, protocol: bool) -> None:
        self.heard = 0
        """Answers and events so far."""
        self._http = httpx.Client(base_url=url, headers={"x-api-key": token}, timeout=HANG_S)
        self._folder, self._protocol = folder, protocol
        self.threads, self.cuts = 0, 0
        self.ends = threading.Event()
        self.error: BaseException | None = None

    def work(self) -> None:
        try:
            while not self.ends.is_set():
                self._thread()
                self.threads += 1
        except BaseException as error:
            self.error = error
        finally:
            self._http.close()

    def _thread(self) -> None:
        thread, effects = str(uuid4()), self._folder / str(uuid4())
        self._asked("POST", "/threads", {"thread_id": thread, "if_exists": "do_nothing"})
        first = self._started(thread, {"input": {"topic": str(effects)}})
        seen = self._followed(thread, first)
        found = self._asked("GET", f"/threads/{thread}")
        while found["status"] == "busy":  # by the second protocol a program hears of an interrupt before that
            found = self._asked("GET", f"/threads/{thread}")
        assert found["status"] == "interrupted", found
        second = self._started(thread, {"command": {"resume": "Yes."}}, known=1)
        again = self._followed(thread, second, seen)
        assert effects.read_text() == "one two three four ", "each node took effect once, in order"
        found = self._asked("GET", f"/threads/{thread}")
        assert (found["status"], found["values"]["log"]) == (
            "idle",
            ["one", "two", "review", "three", "four"],
        ), found
        if self._protocol:
            whole = self._whole(lambda: self._events(thread, {"channels": CHANNELS}))
            assert again == whole, "everything once, in order"
            return
        for run, was in ((first, seen), (second, again)):
            assert [int(one.id) for one in was] == [*range(len(was))]
            whole = self._whole(lambda run=run: self._run_events(thread, run, "-1"))
            assert was == whole, "everything once, in order"

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, of whichever server gives one first: for what may be asked twice."""
        while True:
            try:
                answer = self._http.request(method, path, json=body)
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            assert answer.is_success, (path, answer.text)
            self.heard += 1
            return answer.json()

    def _started(self, thread: str, body: Any, known: int = 0) -> str:
        """A run, begun once: a program looks whether its request came through before it asks again."""
        given = {"assistant_id": "steady", "stream_mode": ["values", "updates", "tasks"], **body}
        path, sent = f"/threads/{thread}/runs", {**given, "stream_resumable": True}
        if self._protocol:
            answered = "command" in body
            ask = self._asked("GET", f"/threads/{thread}/state")["interrupts"][0]["id"] if answered else ""
            params = {"interrupt_id": ask, "response": "Yes."} if answered else given
            method = "input.respond" if answered else "run.start"
            path, sent = f"/threads/{thread}/commands", {"id": 1, "method": method, "params": params}
        while True:
            try:
                answer = self._http.post(path, json=sent)
                assert answer.is_success and answer.json().get("type") != "error", answer.text
            except httpx.TransportError:
                time.sleep(0.05)
            runs = self._asked("GET", f"/threads/{thread}/runs")
            if len(runs) > known:
                assert len(runs) == known + 1, runs
                return runs[0]["run_id"]

    def _followed(self, thread: str, run: str, before: list[Seen] | None = None) -> list[Seen]:
        """All events of a run; by the second protocol those of earlier ones, too."""
        found = [*(before or ())] if self._protocol else []
        last = found[-1].id if found else "-1"
        while True:
            more = {"channels": CHANNELS, **({"since": int(last)} if found else {})}
            try:
                for one in (
                    self._events(thread, more, bool(before))
                    if self._protocol
                    else self._run_events(thread, run, last)
                ):
                    found.append(one)
                    last = one.id
                    self.heard += 1
            except httpx.TransportError:
                self.cuts += 1
                time.sleep(0.05)
                continue
            return found

    def _whole(self, read: Callable[[], Iterator[Seen]]) -> list[Seen]:
        """A stream from its first event, read in one go."""
        while True:
            try:
                return [*read()]
            except httpx.TransportError:
                time.sleep(0.05)

    def _run_events(self, thread: str, run: str, last: str) -> Iterator[Seen]:
        path, headers = f"/threads/{thread}/runs/{run}/stream", {"last-event-id": last}
        with self._http.stream("GET", path, headers=headers) as answer:
            assert answer.is_success, answer.read()
            yield from _read(answer)

    def _events(self, thread: str, body: Any, resumed: bool = True) -> Iterator[Seen]:
        """Until the thread's run stops for an answer, or has ended."""
        with self._http.stream("POST", f"/threads/{thread}/stream/events", json=body) as answer:
            assert answer.is_success, answer.read()
            for one in _read(answer):
                yield one
                about = one.data["params"]
                if one.event == "lifecycle" and not about["namespace"]:
                    stage = about["data"]["event"]
                    assert stage in ("running", "interrupted", "completed"), about
                    if stage == "completed" or (stage == "interrupted" and not resumed):
                        return


def _read(answer: httpx.Response) -> Iterator[Seen]:
    id = event = ""
    data: Any = None
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            id = value
        elif name == "event":
            event = value
        elif name == "data":
            data = json.loads(value)
            data.get("params", data).pop("timestamp", None)
        elif not line and data is not None:
            yield Seen(id, event, data)
            data = None


def killed(ours: Ours, kills: int, folder: Path, seed: int = 1, programs: int = 5) -> list[Program]:
    """Kill the server at random moments while programs work; returns these, when they have ended.

    A moment is a number of answers and events, so that a busy machine moves none of them.
    """
    chance = random.Random(seed)
    folder.mkdir(exist_ok=True)
    working = [Program(ours.url, ours.token, folder, number % 2 == 1) for number in range(programs)]
    tasks = [threading.Thread(target=one.work, daemon=True) for one in working]
    for task in tasks:
        task.start()
    for _ in range(kills):
        enough = sum(one.heard for one in working) + chance.randrange(40)
        until(
            lambda enough=enough: (
                sum(one.heard for one in working) >= enough or any(one.error for one in working)
            ),
            "an answer of the server",
        )
        time.sleep(chance.uniform(0, 0.05))
        if any(one.error for one in working):
            break
        port = ours.port
        ours.kill()
        ours.serve(port)
    for one in working:
        one.ends.set()
    until(lambda: not any(task.is_alive() for task in tasks), "the end of the programs' work")
    return working
