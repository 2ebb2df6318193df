"""Resuming a run: in another process, at the same moment, after a crash, after Ctrl-C, after a time-out."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import places
import pytest
from folders import put
from patience import until
from scripted import shell, tools
from stores.make import options as old_options
from stores.renamed.make import RUNS as RENAMED
from stores.renamed.make import options as renamed_options
from warm import Warm

from interlock.engine import Decision, Outcome, resume_sync, run_sync
from interlock.engine.driver.decisions import record_decisions
from interlock.engine.driver.drive import Drive
from interlock.engine.read import find_run, list_waiting_requests
from interlock.engine.rebuild import rebuild_run_statuses_from_checkpoints
from interlock.engine.store import Store, select_rows
from interlock.engine.store.retention import remove_run_and_report_refused_paths
from interlock.graphs import PIPELINES, load_pipeline
from interlock.graphs.graph import Graph
from interlock.services.files.blobs import inflate_if_deflated
from interlock.state.calls import parse_call_outcome
from interlock.state.errors import UserError

STORES = Path(__file__).parent.parent / "stores"


class Place(places.Place):
    """A place with a script; its runs are driven in this process or by the command line."""

    def __init__(self, folder: Path, replies: list[dict[str, Any]]) -> None:
        super().__init__(folder)
        self.home, self.script = folder / "home", folder / "script.json"
        put(self.script, replies)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "INTERLOCK_HOME": str(self.home)}
        self.model = f"script:{self.script}"
        self.given = self.options(model=self.model)

    def start(self, *arguments: str) -> Warm:
        with (self.folder / "stderr").open("a") as stderr:
            streams = {"stdout": subprocess.PIPE, "stderr": stderr.fileno()}
            return Warm(arguments, cwd=self.work, env=self.env, **streams)

    @property
    def told(self) -> str:
        """What the processes wrote to stderr."""
        file = self.folder / "stderr"
        return file.read_text() if file.exists() else ""

    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text().split() if file.exists() else []


def parked(folder: Path, command: str = "echo ran >> ../log") -> tuple[Place, str]:
    place = Place(folder, [tools(shell(command)), {"text": "done"}])
    outcome = run_sync("main", {"prompt": "go"}, options=place.given)
    assert outcome.status == "waiting"
    return place, outcome.run


def test_a_decision_given_while_the_driver_is_closing_is_taken_up_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path / "p", [tools(shell("echo ran >> ../log")), {"text": "done"}])
    close = Drive.close

    async def slowly(drive: Drive) -> None:
        if list_waiting_requests(place.home, drive.lease.run):
            record_decisions(drive.store, drive.lease.run, [Decision("all", "proceed_once")])
        await close(drive)

    monkeypatch.setattr(Drive, "close", slowly)
    outcome = run_sync("main", {"prompt": "go"}, options=place.given)
    assert (outcome.status, place.log()) == ("done", ["ran"])


def test_a_prompt_for_a_run_that_waits_comes_after_its_answer_and_is_never_lost_unseen(
    tmp_path: Path,
) -> None:
    replies = [tools(shell("echo ran >> ../log")), {"text": "done"}, {"text": "two", "expect": "more"}]
    place = Place(tmp_path / "p", replies)
    run = run_sync("main", {"prompt": "go"}, options=place.given).run
    outcome = resume_sync(run, prompt="and more", options=place.given)
    assert (outcome.status, "Your prompt wasn't sent" in " ".join(outcome.warnings)) == ("waiting", True)
    yes = [Decision("all", "proceed_once")]
    outcome = resume_sync(run, decisions=yes, prompt="and more", options=place.given)
    assert (outcome.output["response"], outcome.warnings, place.log()) == ("two", [], ["ran"])


def test_a_decision_typed_twice_doesnt_decide_what_was_never_shown(tmp_path: Path) -> None:
    """A number names one request for ever, also in the run that carries a plan out."""
    seen: list[int] = []

    def typed(place: Place, run: str, *decisions: str) -> str:
        before = len(place.told)
        seen.append(place.start("resume", run, *decisions).ends()[0])
        return place.told[before:]

    echo = [tools(shell(f"echo {n} >> ../log")) for n in (1, 2)]
    place = Place(tmp_path / "p", [*echo, {"text": "done"}])
    run = run_sync("main", {"prompt": "go"}, options=place.given).run
    assert "--approve 2" in typed(place, run, "--approve", "1")
    told = typed(place, run, "--approve", "1")
    assert "Request 1 (run_shell_command) was approved at" in told and "What waits: 2" in told
    assert (place.log(), seen) == (["1"], [75, 2])
    hand_in = [{"name": "write_file", "args": {"file_path": "plan.md", "content": "- [ ] b"}}]
    hand_in += [{"name": "exit_plan_mode", "args": {"plan_filename": "plan.md"}}]
    place = Place(tmp_path / "q", [tools(call) for call in hand_in] + echo)
    run_sync("plan", {"prompt": "go"}, options=place.given)
    assert "--approve 2" in typed(place, "latest", "--approve", "1")
    assert "Request 1 (exit_plan_mode) was approved" in typed(place, "latest", "--approve", "1")
    assert place.log() == []


def test_a_user_without_a_name_may_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number."""
    place, run = parked(tmp_path / "p")
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert resume_sync(run, decisions=[Decision("all", "proceed_once")], options=place.given).status == "done"
    assert place.log() == ["ran"]


def test_a_run_removed_while_it_is_taken_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, run = parked(tmp_path / "p")
    monkeypatch.setattr(
        "interlock.engine.driver.runner.record_decisions",
        lambda *_, **__: remove_run_and_report_refused_paths(place.home, run),
    )
    with pytest.raises(UserError, match="was removed meanwhile"):
        resume_sync(run, options=place.given)
    assert place.log() == []


def test_two_processes_that_resume_at_once_do_it_once(tmp_path: Path) -> None:
    place, run = parked(tmp_path / "p", "sleep 1; echo ran >> ../log")
    both = [place.start("resume", run, "--approve", "all") for _ in range(2)]
    results = [process.ends() for process in both]
    told = place.told
    assert place.log() == ["ran"], told
    assert (0, "done\n") in results, told
    if results.count((0, "done\n")) == 1:
        assert re.search(
            "already|drives|is done|is running, and no request of it waits|was interrupted, and no request",
            told,
        ), told


@pytest.mark.parametrize(("first", "then"), [("proceed_once", "reject"), ("reject", "proceed_once")])
def test_an_accepted_decision_survives_a_crash_right_after_it_and_is_never_taken_back(
    tmp_path: Path, first: str, then: str
) -> None:
    place, run = parked(tmp_path / "p")
    store = Store(place.home)
    (request,) = [asked.id for asked in list_waiting_requests(place.home)]
    record_decisions(store, run, [Decision(request, first)])
    with pytest.raises(UserError, match="already answered"):
        record_decisions(store, run, [Decision(request, then)])
    # The process that accepted it is gone; another resumes without being told again.
    outcome = resume_sync(run, options=place.given)
    assert (outcome.exit_code, place.log()) == ((0, ["ran"]) if first == "proceed_once" else (56, []))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("how", "code"),
    [
        (signal.SIGKILL, -9),
        (signal.SIGINT, 130),
        (signal.SIGTERM, 130),
        (signal.SIGHUP, 130),
        (None, 124),  # --timeout
    ],
)
def test_whatever_ends_a_driver_in_a_command_its_outcome_is_asked(
    tmp_path: Path, how: signal.Signals | None, code: int
) -> None:
    place = Place(tmp_path / "p", [tools(shell("echo began >> ../log; sleep 60")), {"text": "done"}])
    limit = () if how else ("--timeout", "9")
    process = place.start("-y", "-m", place.model, "-p", "go", "-o", "stream-json", *limit)
    until(lambda: place.log() == ["began"])
    if how:
        process.send_signal(how)
    ended, output = process.ends()
    assert ended == code, place.told
    events = [event for event in map(json.loads, output.splitlines()) if "node" not in event["type"]]
    last = [(event["type"], event.get("status")) for event in events[-3:]]
    if code == 130:
        assert last == [("tool_result", "cancelled"), ("cancelled", None), ("result", "error")]
    elif code == 124:
        assert last[1:] == [("tool_result", "cancelled"), ("result", "error")]
    assert find_run(place.home, "latest", place.work).status == "interrupted"
    assert place.start("resume", "latest", "--approve", "all").ends()[0] == 2
    told = place.told
    assert "was interrupted" in told and "Resume it with: interlock resume " in told
    outcome = resume_sync("latest", options=place.given)
    assert [p["kind"] for p in outcome.pending] == ["outcome"]
    asked = outcome.pending[0]["id"]
    with pytest.raises(UserError, match="'skip' with the choice 'reject'; got 'proceed_once'"):
        resume_sync("latest", decisions=[Decision(asked, "proceed_once", text="skip")], options=place.given)
    outcome = resume_sync("latest", decisions=[Decision(asked, "reject", text="skip")], options=place.given)
    assert (outcome.status, place.log()) == ("done", ["began"])


def test_a_finished_run_tells_its_end_again(tmp_path: Path) -> None:
    """The process may have been killed between the last checkpoint and showing the answer."""
    place = Place(tmp_path / "p", [{"text": "the answer"}])
    run_sync("main", {"prompt": "go"}, options=place.given)
    assert place.start("resume", "latest").ends() == (0, "the answer\n")


def test_the_model_hears_which_background_processes_ended(tmp_path: Path) -> None:
    server = {"name": "run_shell_command", "args": {"command": "sleep 600", "is_background": True}}
    place = Place(tmp_path / "p", [tools(server), tools(shell("echo ran >> ../log")), {"text": "done"}])
    outcome = run_sync("main", {"prompt": "go"}, options=place.given)
    for _ in range(2):  # one process starts it, the next runs the other command
        decisions = [Decision(p["id"], "proceed_once") for p in outcome.pending]
        outcome = resume_sync(outcome.run, decisions=decisions, options=place.given)
    assert (outcome.status, place.log()) == ("done", ["ran"])
    told = [
        body
        for (row,) in select_rows(place.home, "select body from chain")
        if b"sleep 600" in (body := inflate_if_deflated(row)) and b'"context"' in body
    ]
    assert len(told) == 1


@pytest.mark.sqlite
@pytest.mark.parametrize("store", sorted(STORES.glob("*.tar.xz")), ids=lambda file: file.name.split(".")[0])
def test_runs_of_an_earlier_version_are_gone_on_with(tmp_path: Path, store: Path) -> None:
    """One that waits, one killed during a batch's command, one that is done (`tests/stores/make.py`)."""
    with tarfile.open(store) as files:
        # `filter=` came with Python 3.11.4; earlier versions' default is fine for an archive of ours.
        files.extraction_filter = lambda member, _path: member
        files.extractall(tmp_path)
    with sqlite3.connect(
        tmp_path / "home" / "interlock.db"
    ) as conn:  # the workspace has moved; requests name files in it
        ((old,),) = conn.execute("select workspace from runs where run = 'parked'")
        conn.execute(
            "update approvals set request = replace(request, ?, ?)", (old, str(tmp_path / "work" / "parked"))
        )
    conn.close()

    def go_on(run: str, **how: Any) -> Outcome:
        return resume_sync(run, options=old_options(tmp_path, run), **how)

    assert [r.fields["number"] for r in list_waiting_requests(tmp_path / "home", "parked")] != [0]
    parked = go_on("parked", decisions=[Decision("all", "proceed_once")])
    asked = go_on("killed")
    (request,) = asked.pending
    assert (asked.status, request["kind"]) == ("waiting", "outcome")
    killed = go_on("killed", decisions=[Decision(request["id"], "proceed_once", text="redo")])
    done = go_on("done", prompt="Once more.")
    told = [(run.status, run.output["response"]) for run in (parked, killed, done)]
    assert told == [("done", "Parked is done."), ("done", "Killed is done."), ("done", "Third.")]
    for run in ("parked", "killed"):
        work = tmp_path / "work" / run
        assert ((work / "a.txt").read_text(), (work / "log").read_text()) == ("uno\ntwo\n", "first\nsecond\n")
    prompts = [m["content"] for m in done.output["history"] if m["role"] == "user"]
    assert prompts == ["Do it.", "And again.", "Once more."]
    assert rebuild_run_statuses_from_checkpoints(tmp_path / "home") == []


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [
        ("ready 1", {"word": "ready", "attempt": 1, "approval": "", "by_hook": False}),
        (
            "ready 2 r.0.2:approval:1",
            {"word": "ready", "attempt": 2, "approval": "r.0.2:approval:1", "by_hook": False},
        ),
        ("changed 2", {"word": "ready", "attempt": 2, "approval": "", "by_hook": True}),
        ("answered 1", {"word": "answered", "attempt": 1, "record": ""}),
        ("stop 1 abc", {"word": "stop", "attempt": 1, "record": "abc"}),
        ({"word": "done", "attempt": 3}, {"word": "done", "attempt": 3}),
    ],
)
def test_what_an_earlier_version_wrote_of_a_call_in_one_string_is_read(stored: Any, outcome: Any) -> None:
    assert parse_call_outcome(stored) == outcome


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_the_rest_of_a_wait_for_a_model_goes_on_after_a_kill_or_a_stop(
    tmp_path: Path, how: signal.Signals, code: int
) -> None:
    busy = {"error": {"status": 503, "retry_after": 1.5}}
    again = {"error": {"status": 429, "retry_after": 0, "message": "slow down"}}
    place = Place(tmp_path / "p", [busy, again, {"text": ""}, {"text": "done"}])
    process = place.start("-m", place.model, "-p", "go", "-o", "stream-json")
    assert process.stdout is not None
    told = next(event for event in map(json.loads, process.stdout) if event["type"] == "retry")
    assert told["delay_s"] == 1.5
    time.sleep(0.5)
    process.send_signal(how)
    assert process.ends()[0] == code
    assert find_run(place.home, "latest", place.work).end_reason == ("died" if code == -9 else "cancelled")
    events = list[Any]()
    options = replace(place.given, overrides={"model": {"streamRetryDelay": 0}})
    outcome = resume_sync("latest", options=options, renderers=[events.append])
    assert (outcome.status, outcome.output["response"]) == ("done", "done")
    retries = [event for event in events if event.type == "retry"]
    assert 0 <= retries[0].delay_s <= 1, "what is left of the wait, not all of it"
    # The attempt before the kill isn't made, nor counted, again.
    assert [event.attempt for event in retries] == [2, 3, 2]
    lines = place.start("history", "latest", "--all").ends()[1].splitlines()
    tries = [line for line in lines if " call_model " in line or " wait_retry " in line]
    assert [line.split()[1] for line in tries] == ["call_model", "wait_retry"] * 3 + ["call_model"]
    for line, words in zip(
        tries[1::2], ("2 after 503", "3 after 0 s 429 slow down", "2 after 0 s empty"), strict=True
    ):
        assert "again: attempt" in line and [w for w in words.split() if w not in line] == [], line


@pytest.mark.sqlite
@pytest.mark.parametrize("run", sorted(RENAMED))
def test_a_run_whose_next_node_has_another_name_by_now_goes_on(tmp_path: Path, run: str) -> None:
    (store,) = (STORES / "renamed").glob("*.tar.xz")
    with tarfile.open(store) as files:
        files.extraction_filter = lambda member, _path: member
        files.extractall(tmp_path)
    workflow, _, _ = RENAMED[run]
    outcome = resume_sync(run, options=renamed_options(tmp_path))
    told = {
        "main": lambda: outcome.output["response"] == "I see.",
        "tools": lambda: [r["content"] for r in outcome.output["responses"]] == ["one"],
        "compress": lambda: outcome.output["status"] == "truncated",
    }
    assert (outcome.error, told[workflow]()) == (None, True)
    assert rebuild_run_statuses_from_checkpoints(tmp_path / "home") == []


def test_each_renamed_node_has_a_stored_run() -> None:
    renamed = {old for name in PIPELINES for old in renamed_in(load_pipeline(name).build_uncompiled_graph())}
    assert renamed == {*RENAMED}


def renamed_in(graph: Graph) -> set[str]:
    """Old names of a graph and those inside it."""
    inside = (part.graph for part in graph.subgraphs.values())
    return {*graph.renamed}.union(*map(renamed_in, inside))
