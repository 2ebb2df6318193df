"""Runs in PostgreSQL that a worker drives: started and decided elsewhere, taken over after a kill, stopped."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import warm
from commands import Run, run
from databases import fresh_database
from patience import HANG_S, until

__all__ = ["run"]

SCRIPT = [
    {"tool_calls": [{"name": "write_file", "args": {"file_path": "made.txt", "content": "made\n"}}]},
    {"tool_calls": [{"name": "run_shell_command", "args": {"command": "echo once >> count.txt; sleep 0.2"}}]},
    {"text": "Made it."},
]


@pytest.fixture
def fleet(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands on an empty database with a queue."""
    monkeypatch.setenv("INTERLOCK_STORE", fresh_database())
    assert run("fleet", "init").code == 0
    return run


def test_an_administrator_sets_up_the_database_and_gives_two_roles(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import psycopg

    address = fresh_database()
    monkeypatch.delenv("INTERLOCK_STORE", raising=False)
    printed = run("fleet", "init", "--print").out
    with psycopg.connect(address, autocommit=True) as conn:
        conn.execute(printed.encode())
        for name in ("worker", "viewer"):
            conn.execute(
                f"drop role if exists a_{name}; create role a_{name} login in role interlock_{name}".encode()
            )
    as_worker, as_viewer = (address.replace("postgres@", f"a_{name}@") for name in ("worker", "viewer"))
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "Done."}]))
    monkeypatch.setenv("INTERLOCK_STORE", as_worker)
    assert run("-p", "do it", "-m", f"script:{script}").code == 0
    assert run("audit", "verify").code == 0
    assert run("run", "main", "--detach", "-m", f"script:{script}", "do it").code == 0
    monkeypatch.setenv("INTERLOCK_STORE", as_viewer)
    assert "queued" in run("runs").out and "1 queued" in run("fleet").out
    refused = run("-p", "do it", "-m", f"script:{script}")
    assert refused.code != 0 and "Missing rights" in refused.err and "fleet init --print" in refused.err


def test_print_is_refused_without_init(run: Run) -> None:
    refused = run("fleet", "--print")
    assert refused.code == 2 and "interlock fleet init --print" in refused.err


class Worker:
    def __init__(self) -> None:
        self.process = warm.Warm(["worker"], cwd=Path.cwd(), env=os.environ, stderr=subprocess.PIPE)
        self.line("Worker for host:")

    def line(self, wanted: str) -> str:
        """The next line that holds these words."""
        assert self.process.stderr
        return next(line for line in self.process.stderr if wanted in line)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stderr
        self.process.stderr.read()
        self.process.stderr.close()
        return self.process.wait()


@pytest.fixture
def worker(fleet: Run) -> Iterator[Worker]:
    made = Worker()
    yield made
    if made.process.poll() is None:
        made.end(signal.SIGKILL)


def _begin(fleet: Run, tmp_path: Path, *flags: str) -> str:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    begun = fleet("run", "main", "--detach", "-m", f"script:{script}", *flags, "make it")
    assert begun.code == 0, begun.err
    return begun.out.strip()


def _status(fleet: Run, name: str) -> str:
    return next(row["status"] for row in fleet("runs", "--all", "--json").json if row["run"] == name)


def test_a_worker_drives_a_run_that_is_decided_from_any_terminal(
    fleet: Run, worker: Worker, tmp_path: Path
) -> None:
    name = _begin(fleet, tmp_path)
    assert fleet("wait", name).code == 75, "it parks, and holds no process"
    until(lambda: fleet("fleet", "--json").json["jobs"] == [])
    assert fleet("resume", name, "--approve", "all", "--always").code == 0
    assert fleet("wait", name).code == 75
    assert not (tmp_path / "work" / "count.txt").exists()
    fleet("resume", name, "--approve", "all")
    told = fleet("logs", name, "-f")
    assert (told.code, told.out.splitlines()[-1]) == (0, "Made it.")
    assert (tmp_path / "work" / "made.txt").read_text() == "made\n"
    assert (tmp_path / "work" / "count.txt").read_text() == "once\n"
    assert fleet("audit", "verify").code == 0
    assert fleet("show", name, "--verify").code == 0
    assert fleet("replay", name).code == 0


def test_a_run_of_a_worker_that_was_killed_is_taken_over_and_what_the_kill_hid_is_asked(
    fleet: Run, worker: Worker, tmp_path: Path
) -> None:
    name, count = _begin(fleet, tmp_path, "-y", "--skip-trust"), tmp_path / "work" / "count.txt"
    until(count.exists)
    worker.end(signal.SIGKILL)
    second = Worker()
    try:
        assert fleet("wait", name).code == 75
        (request,) = fleet("approvals", "--json").json
        assert request["kind"] == "outcome"
        fleet("resume", name, "--answer", f"{request['number']}=skip")
        assert fleet("wait", name).code == 0
    finally:
        assert second.end() == 0
    assert count.read_text() == "once\n"


def test_a_run_that_no_worker_drives_waits_and_is_taken_back(fleet: Run, tmp_path: Path) -> None:
    name = _begin(fleet, tmp_path)
    assert _status(fleet, name) == "queued"
    (job,) = fleet("fleet", "--json").json["jobs"]
    assert (job["run"], job["queue"], job["doing"]) == (name, f"host:{os.uname().nodename}", False)
    assert fleet("cancel", name).code == 0
    assert fleet("fleet", "--json").json["jobs"] == []
    fleet("resume", name)
    assert len(fleet("fleet", "--json").json["jobs"]) == 1, "whoever resumes it hands it to the workers again"


_TAMPERED = {
    "update approvals set answered_by = 'somebody else'": "a row of 'approvals' was changed, run",
    "update approvals set answered_at = answered_at - 60": "a row of 'approvals' was changed, run",
    "update decisions set body = replace(body, 'ask', 'deny')": "a row of 'decisions' was changed, run",
    "delete from journal": "a row of 'journal' was removed, run",
    "insert into decisions select run, message, 99, task, attempt, body, at from decisions limit 1": "inserted, run",
    "update runs set workspace = '/'": "a row of 'runs' was changed, run",
    "update audit set body = null where seq = 5": "record 5 (",
    "delete from audit where seq = 5": "records 5 to 5 were removed",
    "update audit set seq = -seq where seq in (4, 5); update audit set seq = 9 + seq where seq < 0": "record 4 (",
    "delete from audit where seq > 5": "the chain's end was cut off",
}


def test_each_kind_of_change_is_found_in_postgresql(fleet: Run, tmp_path: Path) -> None:
    import psycopg

    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    assert fleet("-p", "make it", "-m", f"script:{script}").code == 75
    while (done := fleet("resume", "latest", "--approve", "all")).code == 75:
        pass
    assert done.code == 0 == fleet("audit", "verify").code
    with psycopg.connect(os.environ["INTERLOCK_STORE"], autocommit=True) as conn:
        tables = ("runs", "approvals", "decisions", "journal", "audit")
        for table in tables:
            conn.execute(f"create table kept_{table} as select * from {table}".encode())
        for change, said in _TAMPERED.items():
            conn.execute(change.encode())
            found = fleet("audit", "verify")
            assert (found.code, said in found.out) == (1, True), (change, found)
            for table in tables:
                conn.execute(f"truncate {table}; insert into {table} select * from kept_{table}".encode())
    assert fleet("audit", "verify").code == 0


@pytest.mark.parametrize(
    ("url", "said", "code"),
    [
        ("mysql://me:secret@db/runs", "names 'mysql://me@db/runs'; expected postgresql://", 52),
        (
            "postgresql://me:secret@127.0.0.1:1/runs",
            "Can't reach the store 'postgresql://me@127.0.0.1:1/runs'",
            1,
        ),
        ("", "Workers drive runs that are in PostgreSQL, and this store is a file.", 2),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line_without_the_password(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: str, code: int
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("INTERLOCK_STORE", url)
    told = run("fleet")
    assert (told.code, said in told.err, "secret" in told.err) == (code, True, False), told.err
    assert told.err.count("\n") == 1


def test_a_run_that_is_copied_to_a_server_driven_on_there_and_copied_back_replays(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, server = tmp_path / "script.json", fresh_database()
    script.write_text(json.dumps(SCRIPT))
    assert run("-m", f"script:{script}", "-p", "make it").code == 75
    (name,) = [row["run"] for row in run("runs", "--json").json]
    own = os.environ["INTERLOCK_HOME"]
    assert run("store", "copy", name, "--to", server).code == 0
    assert "is in the other store already" in run("store", "copy", name, "--to", server).err
    run("runs", "rm", name)
    monkeypatch.setenv("INTERLOCK_STORE", server)
    assert run("resume", name, "--approve", "all").code == 75
    assert run("resume", name, "--approve", "all").code == 0
    there = run("replay", name).out
    assert run("store", "copy", name, "--to", own).code == 0
    monkeypatch.setenv("INTERLOCK_STORE", "")
    for check in (("show", name, "--verify"), ("audit", "verify"), ("doctor", "--store")):
        assert run(*check).code == 0, check
    assert _hashes(run("replay", name).out) == _hashes(there)
    assert run("undo", name).code == 0
    assert not (tmp_path / "work" / "made.txt").exists()


def _hashes(replayed: str) -> list[str]:
    return [line.split()[1] for line in replayed.splitlines() if line.split()[0].lstrip("-").isdigit()]


@pytest.mark.sweep
def test_what_is_decided_on_the_page_is_saved_with_the_job_of_a_worker(
    fleet: Run, worker: Worker, home: Path, tmp_path: Path
) -> None:
    name = _begin(fleet, tmp_path)
    assert fleet("wait", name).code == 75
    worker.end()
    words = ["serve", "--port", "0"]
    server = warm.Warm(words, cwd=Path.cwd(), env=os.environ, stdout=subprocess.PIPE)
    try:
        _decide_queue_stop(server, fleet, name, home)
    finally:
        server.kill()
        server.ends()
    second = Worker()
    try:
        assert fleet("wait", name).code == 75, "it goes on to its next request"
    finally:
        assert second.end() == 0


def _decide_queue_stop(server: warm.Warm, fleet: Run, name: str, home: Path) -> None:
    assert server.stdout
    address, _, token = server.stdout.readline().split()[-1].partition("/#token=")
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=HANG_S) as page:
        (request,) = page.get("/api/requests").json()
        given = {"decisions": [{"id": request["id"], "choice": "proceed_once"}]}
        assert page.post(f"/api/runs/{name}/decide", json=given).json() == {"decided": 1}
        assert page.get(f"/api/runs/{name}").json()["status"] == "queued", "nothing drives it here"
        assert [job["doing"] for job in fleet("fleet", "--json").json["jobs"]] == [False]
        assert not [*home.rglob("live/*")], "no process of the page drives it"
        assert page.post(f"/api/runs/{name}/stop", json={}).status_code == 200
        assert fleet("fleet", "--json").json["jobs"] == [], "a job that waits is taken back"
        assert page.post(f"/api/runs/{name}/prompt", json={}).status_code == 200
        assert [job["doing"] for job in fleet("fleet", "--json").json["jobs"]] == [False]
