"""`kill -9` of `interlock serve` under programs' runs."""

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from api_kills import killed
from api_lab import Ours
from folders import put
from patience import until

from interlock.cli.warm.fork_client import FORKER, Child
from interlock.engine.client import Options, api_rows
from interlock.web.drive_process import DriveDiedError, DriveJob, start_drive_process


@pytest.fixture
def ours(tmp_path: Path) -> Generator[Ours]:
    found = Ours(tmp_path / "work")
    yield found
    found.close()


def _kill_drive(ours: Ours, drive: str) -> None:
    """Kill a drive's process as soon as it has one."""
    home = Path(ours.env["INTERLOCK_HOME"])

    def process() -> list[Any]:
        found = api_rows.find_api_row(home, "drive", drive)
        return found.body.get("process") or [] if found else []

    until(process, "the drive's process")
    with suppress(ProcessLookupError):
        os.kill(process()[2], signal.SIGKILL)


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", ["the drive", "the server and the drive", "thrice", "an answer's drive"])
def test_a_drive_whose_process_is_killed_goes_on_and_its_thread_is_usable(ours: Ours, how: str) -> None:
    effects = ours.folder / "effects"
    with ours.http() as http:
        thread = http.post("/threads", json={}).json()["thread_id"]

        def started(**given: Any) -> str:
            asked = {"assistant_id": "steady", "stream_resumable": True, **given}
            return http.post(f"/threads/{thread}/runs", json=asked).json()["run_id"]

        first = started(input={"topic": str(effects)})
        if how != "an answer's drive":
            _kill_drive(ours, first)
        if how == "the server and the drive":
            port = ours.port
            ours.kill()
            _kill_drive(ours, first)
            ours.serve(port)
            http.headers["x-api-key"] = ours.token
        for _ in range(2 if how == "thrice" else 0):
            _kill_drive(ours, first)
        until(lambda: http.get(f"/threads/{thread}").json()["status"] != "busy", "the end of the drive")
        assert http.get(f"/threads/{thread}").json()["status"] == "interrupted"
        assert http.get(f"/threads/{thread}/runs/{first}").json()["status"] == "success"
        second = started(command={"resume": "Yes."})
        if how == "an answer's drive":
            _kill_drive(ours, second)
        until(lambda: http.get(f"/threads/{thread}").json()["status"] != "busy", "the end")
        found = http.get(f"/threads/{thread}").json()
        assert (found["status"], found["values"]["log"]) == (
            "idle",
            ["one", "two", "review", "three", "four"],
        )
        assert [*dict.fromkeys(effects.read_text().split())] == ["one", "two", "three", "four"]


def test_a_drive_killed_before_it_gets_its_work_is_reported_as_dead(tmp_path: Path) -> None:
    def kill(child: Child) -> None:
        child.send_signal(signal.SIGKILL)
        child.wait()

    try:
        with pytest.raises(DriveDiedError, match="died before it began"):
            asyncio.run(start_drive_process(DriveJob(Options(home=tmp_path), "r-1"), kill))
    finally:
        FORKER.stop_server()


DEADLY = """
import os, signal
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    text: str

def work(state):
    if state["text"] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return {}

graph = StateGraph(State).add_node(work).add_edge(START, "work").compile()
"""


def test_a_drive_that_kills_its_process_each_time_ends_and_its_thread_takes_another_input(
    tmp_path: Path,
) -> None:
    graphs = tmp_path / "graphs"
    put(graphs / "agent.py", DEADLY)
    put(graphs / "langgraph.json", {"dependencies": ["."], "graphs": {"deadly": "./agent.py:graph"}})
    ours = Ours(tmp_path / "served", graphs=graphs)
    try:
        with ours.http() as http:
            thread = http.post("/threads", json={}).json()["thread_id"]
            asked = {"assistant_id": "deadly", "input": {"text": "dies"}}
            ended = http.post(f"/threads/{thread}/runs/wait", json=asked).json()
            assert "was killed" in ended["__error__"]["message"]
            assert http.get(f"/threads/{thread}").json()["status"] == "error"
            asked = {"assistant_id": "deadly", "input": {"text": "lives"}}
            assert http.post(f"/threads/{thread}/runs/wait", json=asked).json() == {"text": "lives"}
            assert http.get(f"/threads/{thread}").json()["status"] == "idle"
    finally:
        ours.close()


@pytest.mark.sweep
def test_a_server_killed_at_any_moment_hurts_no_run_and_readers_get_everything_once(tmp_path: Path) -> None:
    ours = Ours(tmp_path / "work")
    try:
        for program in killed(ours, 3, tmp_path / "effects", programs=2):
            if program.error:
                raise program.error
            assert program.threads
    finally:
        ours.close()
