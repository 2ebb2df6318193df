"""What the commands and the page say of runs in PostgreSQL, and what the API starts there."""

import hashlib
import json
from collections.abc import Generator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from api_lab import Ours
from commands import Run, run
from folders import put
from patience import until
from scripted import shell, tools
from test_fleet import Worker, fleet, worker
from test_fleet_limits import begin, writing

__all__ = ["fleet", "run", "worker"]


@pytest.fixture
def ours(fleet: Run, tmp_path: Path) -> Generator[Ours]:
    """A server on the fleet's store."""
    found = Ours(tmp_path / "served", "-y")
    yield found
    found.close()


def test_a_queued_run_says_that_no_worker_is_alive_and_how_to_start_one(
    fleet: Run, tmp_path: Path, ours: Ours
) -> None:
    begin(fleet, tmp_path, "anna")
    name = begin(fleet, tmp_path, "anna", "--queue", "repairs")
    with ours.http() as page:

        def told() -> dict[str, str]:
            return {
                "show": fleet("show", name).out,
                "show --json": fleet("show", name, "--json").json["no_worker"],
                "its page": page.get(f"/api/runs/{name}").json()["no_worker"],
                "wait": fleet("wait", name, "--timeout", "1s").err,
                "runs": fleet("runs").err,
                "all runs": page.get("/api/runs").json()["no_worker"],
            }

        for door, text in told().items():
            line = next(line for line in text.splitlines() if "no worker is alive" in line)
            both = door in ("runs", "all runs")
            who = "2 queued runs wait, the first for " if both else "A queued run has waited for "
            how = "interlock worker" if both else "interlock worker --queue repairs"
            assert who in line and line.endswith(f", and no worker is alive. Start one: {how}"), (door, line)
        with writing() as conn:
            conn.execute_raw(
                "insert into procrastinate_workers default values"
            )  # it has just given a sign of life
        assert not [text for text in told().values() if "no worker" in text]


def _sent(page: httpx.Client, graph: str, given: object, **more: object) -> tuple[str, str]:
    """Thread and run of what a program starts."""
    made = page.post("/runs", json={"assistant_id": graph, "input": given, "on_completion": "keep", **more})
    assert made.status_code == 200, made.text
    return made.json()["thread_id"], made.json()["run_id"]


def _status(page: httpx.Client, one: tuple[str, str]) -> str:
    return page.get(f"/threads/{one[0]}/runs/{one[1]}").json()["status"]


def _driven_elsewhere() -> int:
    """The job of a run of the user `ci` that a worker drives."""
    args = '{"run": "another", "user": "ci", "workflow": "main", "admitted": 1}'
    with writing() as conn:
        sql = (
            "insert into procrastinate_jobs (queue_name, task_name, lock, status, args) "
            "values ($1, $2, $3, 'doing', $4) returning id"
        )
        return conn.execute_raw(sql, ("q", "interlock.drive", "another", args)).fetchone()[0]


def test_what_programs_start_waits_for_the_limits_of_its_user_by_priority(fleet: Run, ours: Ours) -> None:
    from interlock.engine.store.rate_limits import end_job_admission

    assert fleet("limits", "user=ci", "--runs", "1").code == 0
    token = ours.tokens("new", "ci", "--role", "drive")
    job = _driven_elsewhere()

    def queues() -> list[str]:
        return [job["queue"] for job in fleet("fleet", "--json").json["jobs"] if not job["doing"]]

    with ours.http(token) as page, ours.http() as others:
        late, early = (_sent(page, "talk", {"messages": "hi"}, metadata={"priority": n}) for n in (0, 5))
        free = _sent(others, "talk", {"messages": "hi"})
        until(lambda: queues() == ["held:user ci"] * 2, "both to be held")
        until(lambda: _status(page, free) == "success", "the run of another user to end")
        assert [_status(page, one) for one in (late, early)] == ["pending", "pending"]
        refused = page.post(
            "/runs", json={"assistant_id": "talk", "input": {}, "metadata": {"priority": "high"}}
        )
        assert (refused.status_code, "whole number" in refused.json()["detail"]) == (422, True)
        with writing() as conn:
            end_job_admission(conn, job)
        until(lambda: _status(page, late) != "pending", "its turn")
        assert _status(page, early) == "success", (
            "the higher priority comes first, and ends before the other begins"
        )
        until(lambda: _status(page, late) == "success", "the last to end")
        until(lambda: not fleet("fleet", "--json").json["queued"], "their turns to be given back")


@pytest.mark.sweep
def test_a_program_s_run_over_a_limit_of_requests_goes_on_by_itself_once_there_is_room(
    fleet: Run, ours: Ours
) -> None:
    assert fleet("limits", "workflow=main", "--requests", "1").code == 0
    with ours.http() as page:
        one = _sent(page, "main", {"messages": "Fix calc.py"}, stream_resumable=True)
        until(lambda: page.get("/api/runs").json()["runs"], "its row")
        run = page.get("/api/runs").json()["runs"][0]["run"]
        until(lambda: "leaves no room: 1 of 1 requests a minute" in fleet("show", run).out, "the limit")
        until(lambda: _status(page, one) == "pending", "its end")
        assert fleet("limits", "workflow=main", "--requests", "100").code == 0
        until(lambda: _status(page, one) == "success", "the run to go on")
        said = page.get(f"/threads/{one[0]}/state").json()["values"]["messages"]
        assert [m["content"] for m in said if m["type"] == "ai"] == ["I fix it.", "Fixed."]
        text = page.get(f"/threads/{one[0]}/runs/{one[1]}/stream", headers={"last-event-id": "-1"}).text
        assert text.count("event: metadata") == 1 and "Fixed." in text


@pytest.mark.sweep
def test_a_program_s_run_that_waits_or_works_is_cancelled_from_a_terminal(fleet: Run, ours: Ours) -> None:
    with ours.http() as page:
        one = _sent(page, "slow", {"topic": "1000"})
        until(lambda: _status(page, one) == "running", "the run to be driven")
        until(lambda: page.get("/api/runs").json()["runs"], "its row")
        run = page.get("/api/runs").json()["runs"][0]["run"]
        assert "was asked to stop" in fleet("cancel", run).err
        until(lambda: _status(page, one) not in ("pending", "running"), "the end")


@pytest.fixture
def talked(fleet: Run, ours: Ours) -> Generator[tuple[httpx.Client, str]]:
    """The page, as `ci` uses it, and a run of theirs that is done and can be prompted."""
    put(ours.folder.parent / "script.json", [{"text": f"Answer {n}."} for n in range(9)])
    with ours.http(ours.tokens("new", "ci", "--role", "drive")) as page:
        one = _sent(page, "main", {"messages": "Hello"})
        until(lambda: _status(page, one) == "success", "its first answer")
        until(lambda: not fleet("fleet", "--json").json["jobs"], "its turn to be given back")
        yield page, page.get("/api/runs").json()["runs"][0]["run"]


def test_rows_that_whoever_starts_runs_may_write_open_no_page_and_let_no_server_drive(
    fleet: Run, ours: Ours
) -> None:
    with ours.http() as page:
        one = _sent(page, "ask", {"topic": "tea"})
        until(lambda: _status(page, one) == "success", "its question")
        run = page.get("/api/runs").json()["runs"][0]["run"]
        real = page.get(f"/threads/{one[0]}/runs/{one[1]}").json()
    nobody = ["gone", "gone", 1, "1"]
    kwargs = {
        **real["kwargs"],
        "graph_id": "talk",
        "input": {"messages": "x"},
        "checkpoint": {},
        "protocol": False,
    }
    drive = {**real, "status": "pending", "server": nobody, "by": "", "submitted": None, "kwargs": kwargs}
    token = {"role": "drive", "sha256": hashlib.sha256(b"forged").hexdigest(), "revoked": False}
    prompt = {"status": "pending", "prompt": "Do it", "workflow": "ask", "submitted": None, "server": nobody}
    forged = [("token", "me", "", token), ("drive", str(uuid4()), one[0], drive), ("prompt", run, "", prompt)]
    with writing() as conn:
        for kind, name, thread, body in forged:
            values = (kind, name, thread, run, json.dumps(body), 9e9)
            conn.execute_raw("insert into served values ($1, $2, $3, $4, $5, $6)", values)
    ours.kill()
    ours.serve()
    with ours.http("forged") as thief, ours.http() as page:
        assert thief.get("/api/runs").status_code == 401
        assert [made["run_id"] for made in page.get(f"/threads/{one[0]}/runs").json()] == [one[1]]
        late = _sent(page, "talk", {"messages": "hi"})  # what was left behind would go first
        until(lambda: _status(page, late) == "success", "a run that somebody asked for")
        there = {row["run"]: row["status"] for row in page.get("/api/runs").json()["runs"]}
        assert there[run] == "waiting" and len(there) == 2, "nothing else was driven"


def _prompt(page: httpx.Client, run: str, text: str) -> httpx.Response:
    return page.post(f"/api/runs/{run}/prompt", json={"prompt": text})


@pytest.mark.sweep
def test_a_prompt_on_the_page_waits_for_the_limits_of_its_user_also_for_the_next_server(
    fleet: Run, ours: Ours, talked: tuple[httpx.Client, str]
) -> None:
    from interlock.engine.store.rate_limits import end_job_admission

    page, run = talked
    assert fleet("limits", "user=ci", "--runs", "1").code == 0
    assert _prompt(page, run, "One").json() == {"run": run, "waits": ""}
    until(lambda: "Answer 1." in fleet("logs", run).out, "the answer to what had room")
    until(lambda: not fleet("fleet", "--json").json["jobs"], "its turn to be given back")
    job = _driven_elsewhere()
    assert "limit of user 'ci' leaves no room: 1 run at once" in _prompt(page, run, "Two").json()["waits"]
    assert "limit of user 'ci'" in page.get(f"/api/runs/{run}").json()["error"]["message"]
    (waiting,) = (one for one in fleet("fleet", "--json").json["jobs"] if not one["doing"])
    assert (waiting["run"], waiting["user"], waiting["waits"]) == (run, "ci", "user ci")
    refused = _prompt(page, run, "Three")
    assert (refused.status_code, "waits for its turn" in refused.json()["detail"]) == (409, True)
    ours.kill()
    ours.serve()
    with writing() as conn:
        end_job_admission(conn, job)
    until(lambda: "Answer 2." in fleet("logs", run).out, "the answer to what waited")
    until(lambda: not fleet("fleet", "--json").json["queued"], "its turn to be given back")
    assert fleet("runs", "--json").json[0]["error"] is None
    assert "Three" not in fleet("logs", run).out


@pytest.mark.sample(1)
@pytest.mark.parametrize("where", ["page", "terminal", "terminal, while no server is up"])
def test_a_prompt_that_waits_is_stopped(
    fleet: Run, ours: Ours, talked: tuple[httpx.Client, str], where: str
) -> None:
    page, run = talked
    assert fleet("limits", "user=ci", "--runs", "1").code == 0
    _driven_elsewhere()
    assert _prompt(page, run, "Wait").json()["waits"]
    if "no server" in where:
        ours.kill()
    stopped = page.post(f"/api/runs/{run}/stop").status_code if where == "page" else fleet("cancel", run).code
    if "no server" in where:
        ours.serve()
        page.base_url = ours.url
    assert stopped == (200 if where == "page" else 0)
    assert fleet("runs", "--json").json[0]["error"] is None
    assert fleet("limits", "user=ci", "--remove").code == 0
    assert _prompt(page, run, "Go").json()["waits"] == ""
    until(lambda: "Answer 1." in fleet("logs", run).out, "the answer to the second")
    assert "Wait" not in fleet("logs", run).out


@pytest.mark.sweep
def test_a_prompt_over_a_limit_of_requests_goes_on_by_itself_once_there_is_room(
    fleet: Run, ours: Ours, talked: tuple[httpx.Client, str]
) -> None:
    page, run = talked
    put(ours.folder.parent / "script.json", [{"text": "Answer 0."}, *TWO_REQUESTS])
    _is_stopped_and_goes_on(fleet, page, run)


@pytest.mark.sweep
def test_a_prompt_to_a_workers_run_that_meets_a_limit_of_requests_goes_on_by_itself(
    fleet: Run, tmp_path: Path, ours: Ours, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", ours.env["INTERLOCK_HOME"])  # it drives what was begun there
    run = begin(fleet, tmp_path, "ci", "--skip-trust")
    assert fleet("wait", run).code == 0
    put(tmp_path / "script.json", [{"text": "one"}, {"text": "two"}, *TWO_REQUESTS])
    with ours.http() as page:
        _is_stopped_and_goes_on(fleet, page, run)


TWO_REQUESTS = [tools(shell("true")), {"text": "Ran it."}]


def _is_stopped_and_goes_on(fleet: Run, page: httpx.Client, run: str) -> None:
    assert fleet("limits", "workflow=main", "--requests", "1").code == 0
    assert _prompt(page, run, "Run it").json()["waits"] == ""
    until(lambda: "leaves no room: 1 of 1 requests a minute" in fleet("show", run).out, "the limit")
    assert fleet("limits", "workflow=main", "--requests", "100").code == 0
    until(lambda: "Ran it." in fleet("logs", run).out, "the run to go on")
    assert fleet("logs", run).out.count("Run it") == 1
