"""Runs in PostgreSQL that a worker drives: started and decided elsewhere, taken over after a kill, stopped."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import warm
import yaml
from commands import Run, run
from databases import fresh_database
from folders import put
from patience import HANG_S, until
from scripted import says, shell, tools

from interlock.cli.catalog import build_parser
from interlock.engine.audit import public_key_and_signature
from interlock.engine.store import Store, audit, resolve_state_directory
from interlock.engine.store.audit import VARIABLE, load_or_create_audit_key
from interlock.engine.store.leases import read_lease, revoke_lease
from interlock.engine.store.queue import enqueue_run, enqueue_run_if_worker_driven, withdraw_run_from_workers
from interlock.engine.store.runs import set_run_error

__all__ = ["run"]

SCRIPT = [
    says("write_file", file_path="made.txt", content="made\n"),
    tools(shell("echo once >> count.txt; sleep 0.2")),
    {"text": "Made it."},
]


@pytest.fixture
def fleet(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands on an empty database with a queue."""
    monkeypatch.setenv("INTERLOCK_STORE", fresh_database())
    assert run("fleet", "init").code == 0
    return run


def test_an_administrator_sets_up_the_database_and_gives_three_roles(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import psycopg

    address = fresh_database()
    monkeypatch.delenv("INTERLOCK_STORE", raising=False)
    printed = run("fleet", "init", "--print").out
    with psycopg.connect(address, autocommit=True) as conn:
        conn.execute(printed.encode())
        for name in ("worker", "submitter", "viewer"):
            conn.execute(
                f"drop role if exists a_{name}; create role a_{name} login in role interlock_{name}".encode()
            )
    names = ("worker", "submitter", "viewer")
    as_worker, as_submitter, as_viewer = (address.replace("postgres@", f"a_{name}@") for name in names)
    script = put(tmp_path / "script.json", [{"text": "Done."}])
    monkeypatch.setenv("INTERLOCK_STORE", as_worker)
    assert run("-p", "do it", "-m", f"script:{script}").code == 0
    assert run("-p", "once more", "-m", f"script:{script}").code == 0
    assert run("runs", "rm", "latest").code == 0, "a run is removed with all its rows"
    assert run("audit", "verify").code == 0
    for who in (as_worker, as_submitter):
        with psycopg.connect(who) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("insert into served values ('token', 'me', '', '', '{}', 0)")
    monkeypatch.setenv("INTERLOCK_STORE", as_submitter)
    assert run("run", "main", "--detach", "-m", f"script:{script}", "do it").code == 0
    assert run("run", "main", "--detach", "-m", f"script:{script}", "not this").code == 0
    assert run("cancel", "latest").code == 0
    assert "Missing rights" in run("limits", "user=*", "--runs", "9").err
    monkeypatch.setenv("INTERLOCK_STORE", as_viewer)
    assert "queued" in run("runs").out and "1 queued" in run("fleet").out
    refused = run("-p", "do it", "-m", f"script:{script}")
    assert refused.code != 0 and "Missing rights" in refused.err and "fleet init --print" in refused.err
    with served_page() as page:
        _look_only(page, "Role 'a_viewer' of the store's database may only look.")


@contextmanager
def served_page(*flags: str) -> Generator[httpx.Client]:
    """The page of a server, signed in."""
    server = warm.Warm(
        ["serve", "--port", "0", *flags], cwd=Path.cwd(), env=os.environ, stdout=subprocess.PIPE
    )
    assert server.stdout
    address, _, token = server.stdout.readline().split()[-1].partition("/#token=")
    headers = {"Authorization": f"Bearer {token}"}
    try:
        with httpx.Client(base_url=address, headers=headers, timeout=HANG_S) as client:
            yield client
    finally:
        server.kill()
        server.ends()


def _look_only(page: httpx.Client, why: str) -> None:
    """Everything can be seen; whatever would change something is refused, with the reason."""
    assert page.get("/api/me").json() == {"name": "", "role": "view", "why": why}
    names = [row["run"] for row in page.get("/api/runs").json()["runs"]]
    looks = ["", "/calls", "/steps", "/state"]
    seen = [
        "/api/requests",
        "/api/workflows",
        "/api/stats",
        *(f"/api/runs/{names[-1]}{look}" for look in looks),
    ]
    assert {path: page.get(path).status_code for path in seen} == dict.fromkeys(seen, 200)
    assert len(page.post("/threads/search", json={}).json()) == len(names)
    acts = [f"/api/runs/{names[0]}/{act}" for act in ("decide", "prompt", "stop", "fork", "rewind", "undo")]
    replay, swap = f"/api/runs/{names[0]}/replay", {"swap": f"finish={__file__}:run"}
    for path in ("/api/runs", *acts, "/threads", "/runs/wait", "/store/items", replay):
        method, given = "PUT" if path == "/store/items" else "POST", swap if path == replay else {}
        told = page.request(method, path, json=given)
        assert (told.status_code, why in told.json()["detail"]) == (403, True), (path, told.text)


def test_what_needs_the_queue_says_how_to_set_it_up(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INTERLOCK_STORE", fresh_database())
    script = put(tmp_path / "script.json", [{"text": "Done."}])
    begun = ("main", "do it", "-m", f"script:{script}")
    looking = (("fleet",), ("limits",), ("schedule", "list"))
    changing = (("limits", "user=*", "--runs", "1"), ("schedule", "add", "@daily", *begun))
    for command in (
        *looking,
        *changing,
        ("run", *begun, "--detach"),
        *looking,
    ):
        refused = run(*command)
        assert (
            refused.code and "The store has no queue yet. Set it up with: interlock fleet init" in refused.err
        ), command


HASTY = Path(__file__).with_name("hasty_worker.py")


class Worker:
    """Ends well with its block. `program`: one that is a worker in its own way."""

    def __init__(self, *flags: str, program: Path | None = None) -> None:
        words = flags if program else ("worker", *flags)
        self.process = warm.Warm(
            words, cwd=Path.cwd(), env=os.environ, stderr=subprocess.PIPE, program=program
        )
        self.line("Worker for host:")

    def line(self, wanted: str) -> str:
        """The next line that holds these words."""
        assert self.process.stderr
        return next(line for line in self.process.stderr if wanted in line)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.end() == 0

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
    script = put(tmp_path / "script.json", SCRIPT)
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
    until(lambda: fleet("fleet", "--json").json["jobs"] == [])
    with Store(resolve_state_directory()).write_transaction() as conn:
        enqueue_run(conn, name, "nobody's")  # as while its worker delivers what it changed
    assert f"Run {name} is done: there is nothing to stop." in fleet("cancel", name).err
    assert [job["run"] for job in fleet("fleet", "--json").json["jobs"]] == [name], "it is delivered"
    assert (tmp_path / "work" / "made.txt").read_text() == "made\n"
    assert (tmp_path / "work" / "count.txt").read_text() == "once\n"
    assert fleet("audit", "verify").code == 0
    assert fleet("show", name, "--verify").code == 0
    assert fleet("replay", name).code == 0
    (tmp_path / "script.json").write_text("[]")
    failing = fleet("run", "main", "--detach", "-m", f"script:{tmp_path}/script.json", "go").out.strip()
    assert fleet("wait", failing).code, "it isn't driven for ever"


def test_a_run_of_a_worker_that_was_killed_is_taken_over_and_what_the_kill_hid_is_asked(
    fleet: Run, worker: Worker, tmp_path: Path
) -> None:
    name, count = _begin(fleet, tmp_path, "-y", "--skip-trust"), tmp_path / "work" / "count.txt"
    until(count.exists)
    worker.end(signal.SIGKILL)
    with Worker(program=HASTY):
        assert fleet("wait", name).code == 75
        is_told(fleet, name)
    assert count.read_text() == "once\n"


def test_a_worker_that_another_one_counted_out_begins_again(
    fleet: Run, worker: Worker, tmp_path: Path
) -> None:
    import psycopg

    with psycopg.connect(os.environ["INTERLOCK_STORE"], autocommit=True) as conn:
        # As another worker's start does after a long silence.
        until(lambda: conn.execute("delete from procrastinate_workers").rowcount == 1)
        name = _begin(fleet, tmp_path)
        worker.line("It begins again.")
        assert fleet("wait", name).code == 75
        until(lambda: fleet("fleet", "--json").json["jobs"] == [])
        told = fleet("cancel", name)
        assert told.code == 0 and f"Run {name} is cancelled." in told.err
        until(lambda: fleet("wait", name).code == 130)
        until(lambda: fleet("fleet", "--json").json["jobs"] == [])
        assert worker.end() == 0
        assert conn.execute("select from procrastinate_workers").rowcount == 0, "it signed off"


def is_told(fleet: Run, name: str) -> None:
    """The one request is what became of a command: it is told that nothing did, and the run ends."""
    (request,) = fleet("approvals", "--json").json
    assert request["kind"] == "outcome"
    fleet("resume", name, "--answer", f"{request['number']}=skip")
    assert fleet("wait", name).code == 0


def test_a_run_that_no_worker_drives_waits_and_is_taken_back(fleet: Run, tmp_path: Path) -> None:
    from contextlib import closing

    name = _begin(fleet, tmp_path)
    assert _status(fleet, name) == "queued"
    (job,) = fleet("fleet", "--json").json["jobs"]
    assert (job["run"], job["queue"], job["doing"]) == (name, f"host:{os.uname().nodename}", False)
    waited = fleet("wait", name, "--timeout", "1s")
    lonely, late = waited.err.splitlines()
    assert "no worker is alive" in lonely
    assert (waited.code, late) == (124, f"Not finished after 1 s: {name}.")
    assert fleet("cancel", name).code == 0
    assert fleet("fleet", "--json").json["jobs"] == []
    assert _status(fleet, name) == "interrupted"
    assert fleet("wait", name).code == 130
    with closing(Store(resolve_state_directory()).connect()) as conn:
        assert conn.jobs.list_possibly_abandoned_runs(12) == [], "no worker puts it back"
    fleet("resume", name)
    assert _status(fleet, name) == "queued"
    assert len(fleet("fleet", "--json").json["jobs"]) == 1, "whoever resumes it hands it to the workers again"


def test_whoever_waits_for_a_run_or_follows_it_outlasts_an_outage(fleet: Run, tmp_path: Path) -> None:
    import psycopg

    name, sockets = _begin(fleet, tmp_path), tmp_path / "sockets"
    with psycopg.connect(os.environ["INTERLOCK_STORE"], autocommit=True) as conn:
        (folder,) = conn.execute("show unix_socket_directories").fetchone() or ("",)
        sockets.symlink_to(folder)
        of = conn.info
        store = f"postgresql://{of.user}@/{of.dbname}?host={sockets}&port={of.port}"
        env = {**os.environ, "INTERLOCK_STORE": store}
        given: Any = {"cwd": Path.cwd(), "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        both = [warm.Warm(words, **given) for words in (["wait", name], ["logs", name, "-f"])]
        lines = [one.stderr or () for one in both]
        assert all("no worker is alive" in next(iter(said)) for said in lines)
        sockets.unlink()
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and datname = current_database()"
        )
        assert all("Waiting for it" in next(iter(said)) for said in lines)
        sockets.symlink_to(folder)
    assert fleet("cancel", name).code == 0
    assert [one.wait(HANG_S) for one in both] == [130, 130]
    for one in both:
        assert one.stdout and one.stderr
        one.stdout.close()
        one.stderr.close()


@pytest.mark.parametrize(
    ("url", "said", "code"),
    [
        ("mysql://me:secret@db/runs", "names 'mysql://me@db/runs'; expected postgresql://", 52),
        (
            "postgresql://me:secret@127.0.0.1:1/runs",
            "Can't reach the store 'postgresql://me@127.0.0.1:1/runs'",
            1,
        ),
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


def test_what_a_server_refuses_is_one_line_that_says_what_to_do(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from interlock.fleet import postgres

    address = fresh_database()
    monkeypatch.setenv("INTERLOCK_STORE", address)
    assert run("fleet", "init").code == 0

    def told(words: str, wanted: str, at: str = address) -> None:
        monkeypatch.setenv("INTERLOCK_STORE", at)
        said = run(*words.split())
        *before, line = said.err.splitlines()
        assert said.code in (1, 52) and wanted in line, said.err
        assert not before or words == "worker", said.err

    with psycopg.connect(address, autocommit=True) as conn:
        conn.execute("drop role if exists a_full; create role a_full login connection limit 0")
        told("runs", "takes no more connections", address.replace("postgres@", "a_full@"))
        told("runs", "Can't sign in", address.replace("postgres@", "nobody@"))
        told("runs", "Can't sign in", f"{address}_missing")
        conn.execute("insert into store_version values (999, 1)")
        for words in ("approvals", "fleet init", "worker", "serve --port 0"):
            told(words, "was written by a newer Interlock (version 999")
        conn.execute("delete from store_version where version = 999")
        monkeypatch.setattr(postgres, "_OLDEST", 990000)
        told("runs", "expected 14 or newer")


def test_a_server_that_is_full_is_waited_for_and_is_no_wrong_sign_in(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from interlock.fleet import postgres_sessions as sessions

    monkeypatch.setenv("INTERLOCK_STORE", fresh_database())
    assert run("fleet", "init").code == 0
    connect, full = psycopg.connect, "connection failed: FATAL:  sorry, too many clients already"
    tries = list[int]()

    def crowded(*given: Any, **named: Any) -> Any:
        tries.append(len(tries))
        if len(tries) % 3:
            raise psycopg.OperationalError(full)
        return connect(*given, **named)

    monkeypatch.setattr(psycopg, "connect", crowded)
    monkeypatch.setattr(sessions, "_KEPT_S", 0.0)
    monkeypatch.setattr(sessions, "_AGAIN_S", 0.0)
    assert run("runs").code == 0 and len(tries) >= 3
    monkeypatch.setattr(sessions, "_FULL_S", 0.0)
    told = run("runs")
    assert told.code == 1 and "takes no more connections" in told.err, "and a worker takes that for a wait"


def test_idle_workers_and_drives_hold_two_connections_each_and_are_counted(
    fleet: Run, worker: Worker, tmp_path: Path
) -> None:
    import psycopg

    of_others = (
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    with psycopg.connect(os.environ["INTERLOCK_STORE"], autocommit=True) as conn:

        def held() -> int:
            return (conn.execute(of_others).fetchone() or (0,))[0]

        until(lambda: held() == 2, "an idle worker with two connections")
        script = put(tmp_path / "script.json", [tools(shell("touch begun; sleep 600"))])
        begun = fleet("run", "main", "--detach", "-y", "--skip-trust", "-m", f"script:{script}", "go")
        until((tmp_path / "work" / "begun").exists)
        until(lambda: held() == 4, "a drive with two connections")
        facts = fleet("fleet", "--json").json
        assert 4 <= facts["connections"] <= facts["max_connections"]
        assert re.search(r"\d+ of \d+ connections", fleet("fleet").out)
        assert re.search(r"connections +\d+ of \d+ are open", fleet("doctor").out)
        fleet("cancel", begun.out.strip())


def test_the_fleet_lists_fifty_jobs_and_says_how_many_more_there_are(fleet: Run, tmp_path: Path) -> None:
    _begin(fleet, tmp_path)
    with Store(resolve_state_directory()).write_transaction() as conn:
        conn.execute_raw(
            "insert into procrastinate_jobs (queue_name, task_name, lock, queueing_lock) "
            "select 'q', 'interlock.drive', 'run' || n, 'run' || n from generate_series(1, 59) n"
        )
    lines = fleet("fleet").out.splitlines()
    assert len([line for line in lines if "queued" in line.split()[1:6]]) == 50
    assert lines[-1] == "10 more. See all with: interlock fleet --json"


def test_a_worker_of_an_older_version_takes_no_more_runs_and_ends(
    fleet: Run, worker: Worker, tmp_path: Path
) -> None:
    import psycopg

    script = put(tmp_path / "script.json", [tools(shell("touch begun; sleep 600"))])
    begun = fleet("run", "main", "--detach", "-y", "--skip-trust", "-m", f"script:{script}", "go").out.strip()
    until((tmp_path / "work" / "begun").exists)
    waiting = _begin(fleet, tmp_path)
    with psycopg.connect(os.environ["INTERLOCK_STORE"], autocommit=True) as conn:
        conn.execute("insert into store_version values (999, 1)")
        worker.line("A newer Interlock has upgraded the store: this worker takes no more runs, and ends.")
        worker.line(f"{begun}: put back")
        assert worker.process.wait() == 0
        assert worker.process.stderr
        worker.process.stderr.close()
        conn.execute("delete from store_version where version = 999")
    assert {job["run"]: job["doing"] for job in fleet("fleet", "--json").json["jobs"]} == {
        begun: False,
        waiting: False,
    }


def test_files_that_are_typed_for_a_worker_are_those_of_the_folder_where_they_are_typed(
    fleet: Run, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "elsewhere" / "script.json", [{"text": "Done."}])
    monkeypatch.chdir(tmp_path / "elsewhere")
    name = fleet("run", "main", "--detach", "-C", str(tmp_path / "work"), "-m", "script:script.json", "go")
    assert fleet("wait", name.out.strip()).code == 0


def test_audit_records_bear_the_databases_time(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    name, true = _begin(fleet, tmp_path), time.time
    monkeypatch.setattr("interlock.fleet.postgres_sessions._KEPT_S", 0.0)
    monkeypatch.setattr("interlock.state.clock._ahead", 0.0)
    monkeypatch.setattr(time, "time", lambda: true() + 3600)
    with Store(
        resolve_state_directory()
    ).write_transaction() as conn:  # a door that doesn't look which version the store has
        set_run_error(conn, name, {"type": "cancelled", "message": ""})
        revoke_lease(conn, name)
        conn.update("approvals", {"superseded": 1}, {"superseded": 0})
        conn.update("runs", {"status": "cancelled"}, {"run": name})
    with psycopg.connect(os.environ["INTERLOCK_STORE"]) as conn:
        late = "select max(at) - extract(epoch from now()) < 60 from audit"
        assert conn.execute(late).fetchone() == (True,)


def test_an_address_may_name_a_primary_and_its_standby(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = fresh_database().replace("127.0.0.1", "127.0.0.1:1,127.0.0.1") + "?target_session_attrs=read-write"
    monkeypatch.setenv("INTERLOCK_STORE", both)
    assert run("fleet", "init").code == 0
    assert run("runs").code == 0, "a connection that only reads is let in, too"


def test_an_intent_is_synced_though_the_server_says_otherwise(fleet: Run, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(os.environ["INTERLOCK_STORE"], autocommit=True) as conn:
        (name,) = conn.execute("select current_database()").fetchone() or ("",)
        conn.execute(f"alter database {name} set synchronous_commit = off".encode())
        conn.execute("create table seen (setting text)")
        conn.execute(
            "create function note_setting() returns trigger language plpgsql as $$ begin "
            "insert into seen values (current_setting('synchronous_commit')); return new; end $$; "
            "create trigger noted after insert on journal for each row when (new.state = 'intent') "
            "execute function note_setting()"
        )
        put(tmp_path / "script.json", SCRIPT)
        assert fleet("-y", "--skip-trust", "-p", "go", "-m", f"script:{tmp_path}/script.json").code == 0
        assert conn.execute("select setting from seen").fetchall() == [("on",)] * 2


def test_a_run_that_is_copied_to_a_server_driven_on_by_a_worker_and_copied_back_replays(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, server = put(tmp_path / "script.json", SCRIPT), fresh_database()
    assert run("-m", f"script:{script}", "-p", "make it").code == 75
    (name,) = [row["run"] for row in run("runs", "--json").json]
    here, own = _hashes(run("replay", name).out), os.environ["INTERLOCK_HOME"]
    assert run("store", "copy", name, "--to", server).code == 0
    assert "is in the other store already" in run("store", "copy", name, "--to", server).err
    run("runs", "rm", name)
    monkeypatch.setenv("INTERLOCK_STORE", server)
    assert run("fleet", "init").code == 0
    refused = run("resume", name, "-p", "more", "--detach")
    assert refused.code == 2 and "a worker takes no prompt" in refused.err
    with Worker():
        assert run("resume", name, "--approve", "all", "--detach").code == 0
        assert run("wait", name).code == 75
        assert run("resume", name, "--approve", "all").code == 0
        assert run("wait", name).code == 0
    there = _hashes(run("replay", name).out)
    assert run("store", "copy", name, "--to", own).code == 0
    monkeypatch.setenv("INTERLOCK_STORE", "")
    for check in (("show", name, "--verify"), ("audit", "verify"), ("doctor", "--store")):
        assert run(*check).code == 0, check
    assert here and there[: len(here)] == here
    assert _hashes(run("replay", name).out) == there
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
    with served_page() as page:
        _decide_queue_stop(page, fleet, name, home)
    with Worker():
        assert fleet("wait", name).code == 75, "it goes on to its next request"


def _decide_queue_stop(page: httpx.Client, fleet: Run, name: str, home: Path) -> None:
    (request,) = page.get("/api/requests").json()
    given = {"decisions": [{"id": request["id"], "choice": "proceed_once"}]}
    with ThreadPoolExecutor(4) as people:
        asked = [people.submit(page.post, f"/api/runs/{name}/decide", json=given) for _ in range(4)]
        told = [one.result() for one in asked]
    counts = [one.json().get("decided") for one in told if one.status_code == 200]
    assert counts == [1], [one.text for one in told]
    late = [one.text for one in told if one.status_code != 200]
    known = ("was already answered (proceed_once by", "was decided elsewhere")
    assert len(late) == 3 and all(any(part in text for part in known) for text in late), late
    assert page.get(f"/api/runs/{name}").json()["status"] == "queued", "nothing drives it here"
    assert [job["doing"] for job in fleet("fleet", "--json").json["jobs"]] == [False]
    assert not [*home.rglob("live/*")], "no process of the page drives it"
    assert page.post(f"/api/runs/{name}/stop", json={}).status_code == 200
    assert fleet("fleet", "--json").json["jobs"] == [], "a job that waits is taken back"
    assert page.post(f"/api/runs/{name}/prompt", json={}).status_code == 200
    assert [job["doing"] for job in fleet("fleet", "--json").json["jobs"]] == [False]


@pytest.mark.sweep
def test_what_is_started_on_the_page_of_a_server_s_store_waits_for_a_worker_and_can_be_stopped(
    fleet: Run, tmp_path: Path
) -> None:
    fleet("limits", "user=ci", "--runs", "1")
    put(tmp_path / "script.json", [{"text": "Done."}, tools(shell("touch begun; sleep 60"))])
    with served_page("-y", "--skip-trust", "-m", f"script:{tmp_path}/script.json") as page:
        given = {"workflow": "main", "input": {"prompt": "go"}}
        refused = page.post("/api/runs", json={**given, "priority": 101})
        assert (refused.status_code, "from -100 to 100" in refused.text) == (422, True)
        by_program = {
            "Authorization": f"Bearer {fleet('serve', 'token', 'new', 'ci', '--role', 'drive').out.strip()}"
        }
        name = page.post("/api/runs", json={**given, "priority": 5}, headers=by_program).json()["run"]
        (job,) = fleet("fleet", "--json").json["jobs"]
        assert [job[key] for key in ("run", "user", "priority", "doing")] == [name, "ci", 5, False]
        with Worker():
            assert fleet("wait", name).code == 0
        # A prompt is driven by the server. What is stopped there isn't taken up by a worker.
        assert page.post(f"/api/runs/{name}/prompt", json={"prompt": "more"}).status_code == 200
        until((tmp_path / "work" / "begun").exists)
        assert page.post(f"/api/runs/{name}/stop", json={}).status_code == 200
        until(lambda: _status(fleet, name) == "interrupted")


POISON = """
import os, signal
from interlock.workflow import END, START, Graph, Input, Output, State, Workflow, node

class Given(Input):
    pass

class Made(Output):
    status: str

class Known(State, total=False):
    status: str

@node(writes=("status",))
async def burst(state: Known) -> Known:
    with open("tries.txt", "a") as file:
        file.write("try\\n")
    os.kill(os.getpid(), signal.SIGKILL)
    return {"status": "done"}

def build() -> Graph:
    g = Graph("poison", Known)
    g.nodes(burst)
    g.edge(START, "burst", END)
    return g

WORKFLOW = Workflow("poison", build, Given, Made)
"""


@pytest.mark.sweep
def test_a_run_that_kills_its_process_three_times_is_given_up_with_the_reason(
    fleet: Run, worker: Worker, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    put(work / ".interlock" / "workflows" / "poison.py", POISON)
    assert fleet("trust", "--yes").code == 0
    name = fleet("run", "poison", "--detach").out.strip()
    assert fleet("wait", name).code != 0
    (row,) = [row for row in fleet("runs", "--all", "--json").json if row["run"] == name]
    assert row["status"] == "failed"
    assert "died 3 times without getting further; its process died (SIGKILL)" in row["error"]["message"]
    assert (work / "tries.txt").read_text() == "try\n" * 3


def _this_is_host(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on this process counts as one of another host; workers that were started stay on theirs."""
    monkeypatch.setattr("interlock.services.process.identity.host_and_pid_namespace", lambda: name)


@pytest.mark.sweep
def test_a_run_that_was_given_up_or_cancelled_is_over_on_every_other_host(
    fleet: Run, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was killed before it gave the lease back, and nobody here can see whether it lives."""
    work = tmp_path / "work"
    put(work / ".interlock" / "workflows" / "poison.py", POISON)
    assert fleet("trust", "--yes").code == 0
    _this_is_host(monkeypatch, "elsewhere")
    given_up = fleet("run", "poison", "--detach").out.strip()
    assert fleet("wait", given_up, "--timeout", f"{HANG_S:g}s").code not in (0, 124)
    assert _status(fleet, given_up) == "failed"
    assert "is failed" in fleet("logs", given_up, "-f").err
    script = put(tmp_path / "script.json", [tools(shell("touch begun; sleep 60"))])
    begun = fleet("run", "main", "--detach", "-y", "--skip-trust", "-m", f"script:{script}", "go")
    cancelled = begun.out.strip()
    until((work / "begun").exists)
    (job,) = fleet("fleet", "--json").json["jobs"]
    pid = int(job["driver"].rpartition(":")[2])
    os.kill(pid, signal.SIGSTOP)
    assert "asked to stop" in fleet("cancel", cancelled).err
    worker.line(f"{cancelled}: driven by process")
    os.kill(pid, signal.SIGKILL)
    assert fleet("wait", cancelled, "--timeout", f"{HANG_S:g}s").code not in (0, 124)
    assert "is interrupted" in fleet("logs", cancelled, "-f").err
    with Store(
        resolve_state_directory()
    ).write_transaction() as conn:  # as its owner left it, by an earlier version
        conn.update("lease", {"held": 1}, {"run": given_up})
    assert _status(fleet, given_up) == "failed", "the row's end decides"
    assert fleet("resume", given_up, "--detach").code == 0
    assert _status(fleet, given_up) in ("queued", "running"), (
        "who waits for it now doesn't see its earlier end"
    )
    assert fleet("wait", given_up, "--timeout", f"{HANG_S:g}s").code not in (0, 124)


def test_a_run_that_is_cancelled_stops_at_its_next_commit(fleet: Run, worker: Worker, tmp_path: Path) -> None:
    slow = "touch begun; sleep 60; touch over"
    script = put(tmp_path / "script.json", [tools(shell(slow)), {"text": "Done."}])
    begun = fleet("run", "main", "--detach", "-y", "--skip-trust", "-m", f"script:{script}", "go")
    name = begun.out.strip()
    until((tmp_path / "work" / "begun").exists)
    fleet("cancel", name)
    worker.line(f"{name}: stopped on request")
    with Store(resolve_state_directory()).write_transaction() as conn:
        row = read_lease(conn, name)
    assert row and not row.held and row.epoch == 2, (
        "its process gave it back: who started the run had the first"
    )
    assert _status(fleet, name) == "interrupted"
    until(lambda: fleet("fleet", "--json").json["jobs"] == [])


def test_a_run_whose_host_died_while_it_was_being_cancelled_is_stopped_by_another_worker(
    fleet: Run, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = put(tmp_path / "script.json", [tools(shell("touch begun; trap '' INT; sleep 60"))])
    begun = fleet("run", "main", "--detach", "-y", "--skip-trust", "-m", f"script:{script}", "go")
    name = begun.out.strip()
    until((tmp_path / "work" / "begun").exists)
    worker.process.send_signal(signal.SIGSTOP)
    assert "asked to stop" in fleet("cancel", name).err
    worker.end(signal.SIGKILL)
    _this_is_host(monkeypatch, "elsewhere")
    with Worker(program=HASTY):
        assert fleet("wait", name, "--timeout", f"{HANG_S:g}s").code not in (0, 124)
    assert _status(fleet, name) == "interrupted"


def test_a_run_that_is_resumed_elsewhere_keeps_its_queue_and_its_user(fleet: Run, tmp_path: Path) -> None:
    name = _begin(fleet, tmp_path, "--queue", "special")
    fleet("cancel", name)
    assert fleet("resume", name, "--detach").code == 0
    (job,) = fleet("fleet", "--json").json["jobs"]
    assert job["queue"] == "special"
    fleet("cancel", name)
    assert fleet("resume", name, "--detach", "--queue", "another").code == 0
    (job,) = fleet("fleet", "--json").json["jobs"]
    assert job["queue"] == "another", "unless it is told to move"


def test_a_host_whose_clock_is_wrong_counts_by_the_databases(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    true = time.time
    monkeypatch.setattr("interlock.fleet.postgres_sessions._KEPT_S", 0.0)  # each connection is new
    monkeypatch.setattr("interlock.state.clock._ahead", 0.0)  # afterwards, too
    for wrong_s in (3600, -3600):
        monkeypatch.setattr(time, "time", lambda by=wrong_s: true() + by)
        _begin(fleet, tmp_path)
    with psycopg.connect(os.environ["INTERLOCK_STORE"]) as conn:
        late = "select max(abs(updated - extract(epoch from now()))) < 60 from runs"
        assert conn.execute(late).fetchone() == (True,)
    assert all("just now" in line for line in fleet("runs").out.splitlines()[1:])


def test_a_job_is_put_back_on_the_databases_clock(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import closing
    from datetime import timedelta

    from procrastinate import utils

    name, now = _begin(fleet, tmp_path), utils.utcnow
    monkeypatch.setattr(utils, "utcnow", lambda: now() + timedelta(hours=1))
    with closing(Store(resolve_state_directory()).connect()) as conn, conn.transaction():
        withdraw_run_from_workers(conn, name)
        assert enqueue_run_if_worker_driven(conn, name, 2)
        query = (
            "select scheduled_at < now() + interval '1 minute' from procrastinate_jobs where status = 'todo'"
        )
        assert conn.execute(query).fetchall() == [(True,)]


LONG = " ".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(200))


def on_another_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """Another state directory and another home; the workspace is on a shared disk."""
    for variable, folder in (("INTERLOCK_HOME", "state"), ("HOME", "home")):
        (place := tmp_path / name / folder).mkdir(parents=True)
        monkeypatch.setenv(variable, str(place))


def test_another_host_needs_no_file_of_the_one_that_drove_a_run(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tools(shell("seq 1 100000; echo a > a.txt"), text=LONG)
    script = put(tmp_path / "script.json", [first, *SCRIPT[:1], {"text": LONG}])
    assert fleet("-y", "-m", f"script:{script}", "-p", LONG).code == 0
    (name,) = [row["run"] for row in fleet("runs", "--json").json]
    on_another_host(monkeypatch, tmp_path, "b")
    assert fleet("show", name, "--verify").code == 0
    assert fleet("show", name).code == 0
    assert fleet("replay", name).code == 0
    assert "made.txt" in fleet("diff", name, "--files").out
    assert fleet("export", name).code == 0
    (fork,) = (fleet("fork", name, "--at", "2", "--json").json["run"],)
    assert fleet("resume", fork, "-y").code == 0
    assert fleet("undo", name).code == 0
    assert not [*(tmp_path / "work").glob("*.txt")]
    on_another_host(monkeypatch, tmp_path, "c")
    assert fleet("store", "copy", name, "--to", os.environ["INTERLOCK_HOME"]).code == 0
    monkeypatch.setenv("INTERLOCK_STORE", "")
    assert fleet("show", name, "--verify").code == 0
    assert fleet("replay", name).code == 0


@pytest.mark.sweep
def test_another_host_compares_with_the_ignored_tests_that_a_run_began_with(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    for name, text in ((".git/x", ""), (".gitignore", "tests\n"), ("tests/run.sh", "exit 1\n")):
        put(work / name, text)
    # Twice: the first is answered with the file, which it hasn't read.
    easy = [says("write_file", file_path="tests/run.sh", content="true\n")] * 2
    script = put(tmp_path / "script.json", [*easy, {"text": "Done."}, {"text": "Done, too."}])
    words = ("-y", "-m", f"script:{script}", "-p", "x", "--check", "sh tests/run.sh")
    assert fleet(*words).code == 75
    on_another_host(monkeypatch, tmp_path, "b")
    refused = fleet("resume", "latest", "--reject", "1", "--reason", "no")
    assert refused.code == 55 and "check 'sh tests/run.sh'" in refused.err, (
        "the row's command, in a new folder"
    )
    done = fleet("resume", "latest", "--reject", "1", "--reason", "no", "--skip-trust")
    assert done.code == 75 and "with tests/run.sh as before" in " ".join(done.err.split()), done.err
    on_another_host(monkeypatch, tmp_path, "c")
    (name,) = [row["run"] for row in fleet("runs", "--json").json]
    assert fleet("store", "copy", name, "--to", os.environ["INTERLOCK_HOME"]).code == 0
    monkeypatch.setenv("INTERLOCK_STORE", "")
    put(tmp_path / "script.json", [*easy, *({"text": "Done."} for _ in range(3))])
    done = fleet("resume", name, "--reject", "2", "--reason", "no")
    assert done.code == 75 and "with tests/run.sh as before" in " ".join(done.err.split()), done.err


EXAMPLES = Path(__file__).parent.parent / "examples" / "fleet"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl isn't installed")
def test_compose_makes_one_audit_key_for_all_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]["key"]["command"]
    monkeypatch.setenv(VARIABLE, f"{tmp_path}/key")
    signed: set[tuple[str, str]] = set()
    for _ in range(2):
        subprocess.run(["sh", "-c", command.replace("$$", "$")], check=True)
        signed.add(public_key_and_signature(load_or_create_audit_key(tmp_path), b"head"))
        audit._read_or_create_key_file.cache_clear()
    assert len(signed) == 1


def test_the_set_ups_for_compose_systemd_and_kubernetes_start_commands_that_exist(tmp_path: Path) -> None:
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    pods = [*yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())]
    (container,) = pods[0]["spec"]["template"]["spec"]["containers"]
    units = {path.name: path.read_text() for path in EXAMPLES.glob("*.service")}
    started = [
        *(compose["services"][name]["command"] for name in ("tables", "worker", "page")),
        container["args"],
        container["readinessProbe"]["exec"]["command"][1:],
        *(re.findall("ExecStart=(.*)", text)[0].split()[1:] for text in units.values()),
    ]
    for command, *words in started:
        build_parser(command).parse_args(words)
    assert [pod["kind"] for pod in pods] == ["Deployment", "PodDisruptionBudget"]
    assert pods[1]["spec"]["selector"] == pods[0]["spec"]["selector"]
    for grace in (
        compose["services"]["worker"]["stop_grace_period"].rstrip("s"),
        pods[0]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"],
        re.findall(r"TimeoutStopSec=(\d+)", units["interlock-worker.service"])[0],
    ):
        assert int(grace) > 35, "a worker kills what doesn't stop within 30 s"
    if not (verify := shutil.which("systemd-analyze")):
        pytest.skip("systemd-analyze isn't installed")
    for name, text in units.items():
        (tmp_path / name).write_text(text.replace("/opt/interlock/bin/interlock", sys.executable))
        told = subprocess.run(
            [verify, "verify", tmp_path / name], capture_output=True, text=True, check=False
        )
        assert (told.returncode, told.stderr) == (0, ""), told
