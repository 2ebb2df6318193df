"""Rows that a submitter or a worker of the fleet forges: they choose no file of another host, and confer nothing."""

import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from commands import Run, run
from databases import fresh_database
from folders import put
from patience import until
from scripted import call, tools
from test_fleet import Worker, on_another_host, served_page
from test_fleet_git import Begin, begin, git, origin, settings

from interlock.engine.store import resolve_state_directory

__all__ = ["begin", "origin", "run", "settings"]

Act = Callable[..., Any]


@pytest.fixture
def fleet(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands on a database that an administrator set up."""
    address = fresh_database()
    with psycopg.connect(address, autocommit=True) as conn:
        conn.execute(run("fleet", "init", "--print").out.encode())
    monkeypatch.setenv("INTERLOCK_STORE", address)
    return run


@contextmanager
def _signed_in(role: str) -> Generator["psycopg.Connection[Any]"]:
    """A connection of somebody who has a role in the database."""
    address, name = os.environ["INTERLOCK_STORE"], f"forger_{uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as conn:
        conn.execute(f"create role {name} login in role interlock_{role}".encode())
    with psycopg.connect(address.replace("postgres@", f"{name}@"), autocommit=True) as conn:
        yield conn


def _acting(role: str) -> Iterator[Act]:
    with _signed_in(role) as conn:

        def act(sql: str, *given: object) -> Any:
            return conn.execute(sql.encode(), given)

        yield act


@pytest.fixture
def parked(fleet: Run, tmp_path: Path) -> str:
    """A run whose edit waits for a person."""
    edit = call("write_file", file_path="a.txt", content="a")
    script = put(tmp_path / "script.json", [tools(edit), {"text": "Done."}])
    assert fleet("-p", "do it", "-m", f"script:{script}").code == 75
    return fleet("runs", "--json").json[0]["run"]


@pytest.fixture
def submitter(fleet: Run) -> Iterator[Act]:
    yield from _acting("submitter")


@pytest.fixture
def worker_role(fleet: Run) -> Iterator[Act]:
    yield from _acting("worker")


def _copied(act: Act, name: str, forged: str) -> None:
    """Forge a run: a copy of another one under another id, and its job."""
    changed = json.dumps({"run": forged})
    act("insert into runs select (jsonb_populate_record(r, %s)).* from runs r where run = %s", changed, name)
    act(
        "insert into procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args) select queue_name, "
        "task_name, %s, %s, jsonb_set(args, '{run}', to_jsonb(%s::text)) from procrastinate_jobs where lock = %s",
        *(forged, forged, forged, name),
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["../precious", "{tmp_path}/precious", ".mirrors", ".."])
def test_a_runs_id_that_is_a_path_touches_nothing_of_the_worker(
    fleet: Run, begin: Begin, submitter: Act, tmp_path: Path, name: str
) -> None:
    kept = [tmp_path / "precious" / "notes.txt", tmp_path / "clones" / ".mirrors" / "x" / "HEAD"]
    for file in kept:
        put(file, "kept")
    real, forged = begin(), name.format(tmp_path=tmp_path)
    _copied(submitter, real, forged)
    with Worker("--workspaces", str(tmp_path / "clones")) as working:
        working.line(forged)
        assert fleet("wait", real).code == 0
        until(lambda: fleet("show", forged, "--json").json["status"] == "failed", "the refusal")
    assert "can't be a run_id" in fleet("show", forged).out
    assert [file.read_text() for file in kept] == ["kept", "kept"]


def test_a_run_takes_no_folder_of_the_worker_for_its_clone(
    fleet: Run, begin: Begin, submitter: Act, tmp_path: Path, home: Path
) -> None:
    real, clones = begin(), tmp_path / "clones"
    place = {"at": f"{os.uname().nodename}:{clones}", "commit": "x"}
    sql = "update runs set workspace = %s, options = jsonb_set(options::jsonb, '{repository}', "
    sql += "(options::jsonb->'repository') || %s::jsonb)::text where run = %s"
    submitter(sql, str(home), json.dumps(place), real)
    with Worker("--workspaces", str(clones)):
        fleet("wait", real)
    assert not (home / "made.txt").exists()


def test_a_runs_model_reads_no_file_of_the_worker(
    fleet: Run, begin: Begin, submitter: Act, tmp_path: Path, home: Path
) -> None:
    private = put(home / "notes.yaml", [{"text": "Only for the worker's owner."}])
    real = begin()
    named = str(tmp_path / "script.json")  # as the settings of the submitter's host and the worker's name it
    sql = "update runs set input = replace(input, %s, %s), options = replace(options, %s, %s) where run = %s"
    submitter(sql, named, str(private), named, str(private), real)
    with Worker("--workspaces", str(tmp_path / "clones")):
        fleet("wait", real)
    told = fleet("export", real, "--format", "json").out

    assert "worker's owner" not in told
    assert "a file of this worker that its own settings don't name" in fleet("show", real).out


@pytest.mark.parametrize("address", ["{home}/private", "../private", "FILE://{home}/private"])
def test_a_run_clones_no_repository_of_the_worker_that_its_settings_dont_allow(
    fleet: Run, begin: Begin, submitter: Act, tmp_path: Path, home: Path, address: str
) -> None:
    put(home / "private" / "secret.txt", "secret")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "first")):
        git(*words, at=home / "private")
    real, clones = begin(), tmp_path / "clones"
    sql = "update runs set options = jsonb_set(options::jsonb, '{repository,url}', to_jsonb(%s::text))::text"
    submitter(f"{sql} where run = %s", address.format(home=home), real)
    with Worker("--workspaces", str(clones)):
        assert fleet("wait", real).code != 0
    assert "names a repository that can't be used" in fleet("show", real).out
    assert not [*clones.rglob("secret.txt")]


def test_who_removes_a_run_removes_no_file_that_others_named(
    fleet: Run, submitter: Act, tmp_path: Path
) -> None:
    script = put(tmp_path / "script.json", [{"text": "Done."}])
    assert fleet("-p", "do it", "-m", f"script:{script}").code == 0
    name = fleet("runs", "--json").json[0]["run"]
    precious = put(resolve_state_directory() / "precious.txt", "kept")
    os.utime(precious, (0, 0))
    submitter("insert into named_files values ('../precious.txt', %s)", name)
    told = fleet("runs", "rm", name)
    assert precious.read_text() == "kept"
    assert "isn't a name below" in told.err, told
    assert (told.code, fleet("runs", "--json").json) == (0, []), "the run is gone"


def test_a_run_whose_id_is_a_path_can_be_removed(
    fleet: Run, submitter: Act, parked: str, tmp_path: Path
) -> None:
    kept = put(resolve_state_directory().parent / "precious" / "notes.txt", "kept")
    _copied(submitter, parked, "../../precious")
    told = fleet("runs", "rm", "../../precious")
    assert (told.code, kept.read_text()) == (0, "kept"), told
    assert "isn't a name below" in told.err, told
    assert [row["run"] for row in fleet("runs", "--json").json] == [parked]


def test_a_plan_that_a_worker_forged_is_written_nowhere_else(
    fleet: Run, worker_role: Act, parked: str, tmp_path: Path
) -> None:
    worker_role(
        "insert into blobs values (%s, 0, 'forged', %s, '', 0)", f"plans/{parked}/../../../forged.txt", parked
    )
    told = fleet("resume", parked, "--approve", "all")
    assert not [*tmp_path.rglob("forged.txt")], told
    assert "isn't a name below" in told.err, told


GRAPH = """
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

open({mark!r}, "w").close()
State = TypedDict("State", {{"text": str}}, total=False)
graph = StateGraph(State).add_node("tell", lambda state: {{}}).add_edge(START, "tell").compile()
"""


def _looked_at(client: httpx.Client, name: str) -> Iterator[tuple[str, str]]:
    for way in ("diagram", "path", "prompt", "export?format=json", "state"):
        yield way, client.get(f"/api/runs/{name}/{way}").text
    yield "replay", client.post(f"/api/runs/{name}/replay", json={}).text
    yield "search", client.post("/threads/search", json={"limit": 100}).text


def test_a_look_at_a_run_runs_no_file_that_somebody_else_named(
    submitter: Act, parked: str, tmp_path: Path
) -> None:
    mark, file = tmp_path / "ran", put(tmp_path / "shared" / "evil.py", "")
    file.write_text(GRAPH.format(mark=str(mark)))
    source = {"file": str(file), "graph": "graph", "sha256": ""}
    listed = {**source, "listing": str(tmp_path / "work" / "langgraph.json")}
    for kept in (None, source, listed):
        sql = "update runs set workflow = %s, options = jsonb_set(options::jsonb, '{source}', %s)::text where run = %s"
        submitter(sql, "x" if kept else f"{file}:graph", json.dumps(kept), parked)
        with served_page() as client:
            assert client.get("/api/me").json()["role"] == "drive"
            for way, told in _looked_at(client, parked):
                assert not mark.exists(), (way, told)


def test_a_request_shows_no_file_of_the_servers_host_that_its_row_names(
    submitter: Act, parked: str, home: Path
) -> None:
    put(home / "letters" / "a.txt", "dear")
    submitter("update runs set workspace = %s where run = %s", str(home / "letters"), parked)
    with served_page() as client:
        (request,) = client.get("/api/requests", params={"run": parked}).json()
        told = client.get(f"/api/requests/{request['id']}/file")
    assert (told.status_code, "dear" in told.text) == (422, False), told.text


def _hooks(mark: Path) -> str:
    """Settings of flags with a hook that writes a file."""
    hook = {"type": "command", "command": f"touch {mark}"}
    return json.dumps({"hooks": {event: [{"hooks": [hook]}] for event in ("SessionStart", "BeforeTool")}})


def _decided(client: httpx.Client, name: str) -> httpx.Response:
    """Approve what a run waits for, on the page."""
    (request,) = client.get("/api/requests", params={"run": name}).json()
    given = {"decisions": [{"id": request["id"], "choice": "proceed_once"}]}
    return client.post(f"/api/runs/{name}/decide", json=given)


SET = "update runs set {} where run = %s"
OPTION = "options = jsonb_set(options::jsonb, %s, %s::jsonb)::text"
ELSEWHERE = "wasn't begun on this host, or was changed elsewhere since"
REFUSED = "so it isn't driven from here"


@pytest.mark.sample(2)
@pytest.mark.parametrize("forged", ["hooks", "workspace", "mode of the next prompt", "rules", "workflow"])
def test_the_page_drives_no_run_whose_definition_somebody_else_changed(
    submitter: Act, parked: str, fleet: Run, tmp_path: Path, forged: str
) -> None:
    mark, evil = tmp_path / "ran", put(tmp_path / "shared" / "evil.py", "")
    evil.write_text(GRAPH.format(mark=str(mark)))
    changes: dict[str, tuple[str, ...]] = {
        "hooks": (OPTION, "{overrides}", _hooks(mark)),
        "workspace": ("workspace = %s", str(evil.parent)),
        "mode of the next prompt": (OPTION, "{next_asked}", '{"approval_mode": "yolo"}'),
        "rules": (OPTION, "{rights,files}", json.dumps([["evil.toml", 4, "", ""]])),
        "workflow": ("workflow = %s", f"{evil}:graph"),
    }
    what, *given = changes[forged]
    ((options, workspace, workflow),) = submitter(
        "select options, workspace, workflow from runs where run = %s", parked
    ).fetchall()
    with served_page() as client:
        submitter(SET.format(what), *given, parked)
        told = _decided(client, parked)
        assert (told.status_code, REFUSED in told.json()["detail"]) == (422, True), told.text
        assert f"interlock resume {parked}" in told.json()["detail"]
        told = client.post(f"/api/runs/{parked}/prompt", json={"prompt": "more"})
        assert (told.status_code, REFUSED in told.text) == (422, True), told.text
        assert not mark.exists() and not [*tmp_path.rglob("a.txt")]
        submitter(
            SET.format("options = %s, workspace = %s, workflow = %s"), options, workspace, workflow, parked
        )
        assert _decided(client, parked).status_code == 200, "the run is unharmed"
        until(lambda: fleet("show", parked, "--json").json["status"] == "done", "its end")
    assert (tmp_path / "work" / "a.txt").read_text() == "a"


def test_a_program_drives_no_run_whose_definition_somebody_else_changed(
    submitter: Act, parked: str, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    submitter(SET.format(OPTION), "{overrides}", _hooks(mark), parked)
    with served_page() as client:
        (thread,) = [one["thread_id"] for one in client.post("/threads/search", json={}).json()]
        given = {"assistant_id": "main", "input": {"prompt": "more"}}
        told = client.post(f"/threads/{thread}/runs/wait", json=given)
        assert REFUSED in told.text, told.text
        resumed = {"assistant_id": "main", "command": {"resume": "proceed_once"}}
        told = client.post(f"/threads/{thread}/runs/wait", json=resumed)
        assert REFUSED in told.text, told.text
        assert len(client.get("/api/requests", params={"run": parked}).json()) == 1, "it wasn't answered"
    assert not mark.exists()


def test_the_page_drives_a_run_of_its_host_also_after_new_rules_and_a_restart(
    fleet: Run, tmp_path: Path, home: Path
) -> None:
    edits = [tools(call("write_file", file_path=f"{name}.txt", content="x")) for name in "abc"]
    script = put(tmp_path / "script.json", [*edits, {"text": "Done."}, {"text": "Done again."}])
    assert fleet("-p", "do it", "-m", f"script:{script}").code == 75
    name = fleet("runs", "--json").json[0]["run"]

    def waits(status: str, file: str) -> bool:
        there = (tmp_path / "work" / file).exists()
        return there and fleet("show", name, "--json").json["status"] == status

    with served_page() as client:
        assert _decided(client, name).status_code == 200
        until(lambda: waits("waiting", "a.txt"), "its second edit")
    rule = '[[rule]]\ntoolName = "glob"\ndecision = "deny"\npriority = 100\n'
    put(home / ".interlock" / "policies" / "more.toml", rule)
    assert fleet("resume", name, "--new-rules").code == 75
    with served_page() as client:
        assert _decided(client, name).status_code == 200
        until(lambda: waits("waiting", "b.txt"), "its third edit")
        assert _decided(client, name).status_code == 200
        until(lambda: waits("done", "c.txt"), "its end")
        told = client.post(f"/api/runs/{name}/prompt", json={"prompt": "more"})
        assert told.status_code == 200, told.text


def test_a_run_of_another_host_is_driven_by_whoever_types_it_here_and_then_by_the_page(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = [tools(call("write_file", file_path=f"{name}.txt", content="x")) for name in "ab"]
    script = put(tmp_path / "script.json", [*edits, {"text": "Done."}])
    assert fleet("-p", "do it", "-m", f"script:{script}").code == 75
    name = fleet("runs", "--json").json[0]["run"]
    on_another_host(monkeypatch, tmp_path, "b")
    with served_page() as client:
        told = _decided(client, name)
        assert (told.status_code, REFUSED in told.text) == (422, True), told.text
        assert client.get(f"/api/runs/{name}/state").status_code == 200, "it is shown as before"
    done = fleet("resume", name, "--approve", "all")
    assert done.code == 75 and ELSEWHERE in " ".join(done.err.split()), done
    assert f"last driven on '{os.uname().nodename}'" in " ".join(done.err.split()), done.err
    with served_page() as client:
        told = _decided(client, name)
        assert told.status_code == 200, told.text
        until(lambda: fleet("show", name, "--json").json["status"] == "done", "its end")
    assert (tmp_path / "work" / "b.txt").exists()


def test_the_page_changes_no_files_of_a_folder_that_somebody_else_named(
    fleet: Run, submitter: Act, parked: str, home: Path, tmp_path: Path
) -> None:
    assert fleet("resume", parked, "--approve", "all").code == 0
    letter = put(home / "letters" / "a.txt", "a")
    place = json.dumps({"url": "https://example.com/x.git", "ref": "", "at": f"{os.uname().nodename}:x"})
    for change, *given in (("workspace = %s", str(letter.parent)), (OPTION, "{repository}", place)):
        submitter(SET.format(change), *given, parked)
        with served_page() as client:
            for act, body in (
                ("undo", {}),
                ("rewind", {"step": 0, "sure": True}),
                ("fork", {"step": 0, "in_place": True}),
            ):
                told = client.post(f"/api/runs/{parked}/{act}", json=body)
                assert (told.status_code, "so its files aren't changed" in told.text) == (422, True), (
                    told.text
                )
    assert letter.read_text() == "a" and [*letter.parent.iterdir()] == [letter]


@pytest.mark.sweep
def test_the_page_sends_a_prompt_to_a_run_of_its_host_that_a_worker_of_another_one_drove(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = [tools(call("write_file", file_path=f"{name}.txt", content="x")) for name in "ab"]
    script = put(tmp_path / "script.json", [edits[0], {"text": "Done."}, edits[1], {"text": "Done again."}])
    begun = fleet("run", "main", "--detach", "--queue", "q", "-y", "-m", f"script:{script}", "do it")
    name = begun.out.strip()
    with monkeypatch.context() as there:
        on_another_host(there, tmp_path, "b")
        with Worker("--queue", "q"):
            assert fleet("wait", name).code == 0
    with served_page() as client:
        told = client.post(f"/api/runs/{name}/prompt", json={"prompt": "more"})
        assert told.status_code == 200, told.text
        until((tmp_path / "work" / "b.txt").exists)


def test_who_types_a_run_of_others_runs_its_programs_only_in_a_trusted_folder(
    fleet: Run, submitter: Act, parked: str, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    submitter(SET.format(OPTION), "{overrides}", _hooks(mark), parked)
    told = fleet("resume", parked, "--approve", "all")
    assert (told.code, mark.exists()) == (55, False), told
    assert "hooks for BeforeTool" in told.err and "--skip-trust" in told.err
    assert fleet("resume", parked, "--approve", "all", "--skip-trust").code == 0
    fleet("resume", parked, "-p", "more")
    assert mark.exists(), "a person decided that"


def test_a_run_that_a_forged_one_started_is_not_driven_either(
    fleet: Run, submitter: Act, parked: str
) -> None:
    submitter(SET.format(OPTION), "{overrides}", _hooks(Path("ran")), parked)
    fork = fleet("fork", parked, "--at", "2", "--json").json["run"]
    with served_page() as client:
        told = client.post(f"/api/runs/{fork}/prompt", json={"prompt": "more"})
        assert (told.status_code, REFUSED in told.text) == (422, True), told.text


ROLES = {
    "submitter": ("runs", "approvals", "audit", "lease", "chain", "named_files", "schedules"),
    "viewer": (),
}


@pytest.mark.parametrize("role", ["submitter", "viewer"])
def test_a_role_writes_no_table_but_those_that_are_granted(fleet: Run, role: str) -> None:
    with _signed_in(role) as conn:
        sql = "select tablename::text from pg_tables where schemaname = 'public'"
        tables = [table for (table,) in conn.execute(sql) if not table.startswith("procrastinate_")]
        rights = "has_table_privilege(%(table)s, 'insert') or has_table_privilege(%(table)s, 'update') or "
        may = f"select {rights} has_table_privilege(%(table)s, 'delete, truncate')"
        written = {one for one in tables if conn.execute(may.encode(), {"table": one}).fetchone() == (True,)}
        for refused in (
            "create table mine (x int)",
            "set role postgres",
            "set session_replication_role = replica",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(refused.encode())
    assert written == {*ROLES[role]}


def test_what_was_forged_is_named_by_the_audit(fleet: Run, submitter: Act, parked: str) -> None:
    assert fleet("audit", "verify").code == 0
    answer = json.dumps({"choice": "proceed_always_and_save", "by": "anna", "at": 0})
    forgeries = {
        "approvals": (
            "update approvals set answer = %s, answered_by = 'anna' where run = %s",
            answer,
            parked,
        ),
        "runs": ("update runs set input = '{}' where run = %s", parked),
        "audit": ("update audit set kind = 'answer' where run = %s and kind = 'request'", parked),
        "a replayed record": (
            "insert into audit select seq + 1000, at, kind, run, tbl, key, body, hash, mac from audit limit 1",
        ),
    }
    for what, (sql, *given) in forgeries.items():
        submitter(sql, *given)
        told = fleet("audit", "verify")
        assert told.code != 0 and (told.out + told.err), what
