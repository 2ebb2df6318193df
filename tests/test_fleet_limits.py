"""Limits over all workers, priorities and turns: what waits for what, without a process, and goes on by itself."""

import os
import pwd
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from commands import Run, run
from folders import put
from patience import until
from scripted import shell, tools
from test_fleet import Worker, fleet

from interlock.engine.store import Store, resolve_state_directory
from interlock.engine.store.connection import Connection
from interlock.engine.store.queue import enqueue_run_if_worker_driven, requeue_abandoned_run
from interlock.engine.store.rate_limits import admit_or_requeue_job

__all__ = ["fleet", "run"]


@contextmanager
def writing() -> Generator[Connection]:
    with closing(Store(resolve_state_directory()).connect()) as conn, conn.transaction():
        yield conn


def begin(fleet: Run, tmp_path: Path, user: str, *flags: str) -> str:
    script = put(tmp_path / "script.json", [tools(shell("true")), {"text": "Done."}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interlock.engine.store.approvals.current_account_name", lambda: user)
        begun = fleet("run", "main", "--detach", "-y", "-m", f"script:{script}", *flags, "do it")
    assert begun.code == 0, begun.err
    return begun.out.strip()


def fetched() -> tuple[int, str] | None:
    """The next job that a worker of this host is given: its number and run."""
    with writing() as conn:
        sql = "select id, lock from procrastinate_fetch_job_v2(array[$1]::varchar[], null)"
        job, name = conn.execute(sql, (f"host:{os.uname().nodename}",)).fetchone()
    return (job, name) if job else None


def test_users_take_turns_and_higher_priorities_come_first(fleet: Run, tmp_path: Path) -> None:
    first = [begin(fleet, tmp_path, "anna") for _ in range(4)]
    assert (one := fetched()) and one[1] == first[0]
    bobs = [begin(fleet, tmp_path, "bob") for _ in range(2)]
    urgent = begin(fleet, tmp_path, "anna", "--priority", "5")
    shown = [(job["run"], job["user"], job["priority"]) for job in fleet("fleet", "--json").json["jobs"]]
    assert shown[1] == (urgent, "anna", 5)
    with writing() as conn:  # its worker died with it, and came back to end its job
        conn.execute_raw("delete from procrastinate_jobs where lock = $1", (first[3],))
        conn.execute_raw("insert into step_rows values ($1, 1, '', 0, '', 0, '[]')", (first[3],))
        assert enqueue_run_if_worker_driven(conn, first[3])
    order = [job[1] for _ in range(6) if (job := fetched())]
    assert order == [urgent, first[3], first[1], bobs[0], first[2], bobs[1]], "what has begun goes first"


def test_a_job_that_a_worker_left_behind_when_it_had_put_its_run_back_holds_nobody_up(
    fleet: Run, tmp_path: Path
) -> None:
    names = [begin(fleet, tmp_path, "anna") for _ in range(2)]
    assert [job[1] for _ in names if (job := fetched())] == names, "by workers that died"
    with writing() as conn:
        assert enqueue_run_if_worker_driven(conn, names[0])
    assert fetched() is None
    with writing() as conn:
        for abandoned in conn.jobs.list_possibly_abandoned_runs(12.0):
            requeue_abandoned_run(conn, abandoned)
    assert [job[1] for _ in names if (job := fetched())] == names


def test_a_run_over_the_limit_of_its_user_waits_without_a_process_until_another_ends(
    fleet: Run, tmp_path: Path
) -> None:
    from interlock.engine.store.rate_limits import admit_or_requeue_job, end_job_admission

    assert fleet("limits", "user=*", "--runs", "1").code == 0
    names = [begin(fleet, tmp_path, user) for user in ("anna", "anna", "bob")]
    jobs = {name: job for _ in names if (found := fetched()) for job, name in [found]}

    def admitted(name: str) -> str:
        with writing() as conn:
            return admit_or_requeue_job(conn, jobs[name], name, 0, "")

    def ended(name: str) -> None:
        with writing() as conn:
            conn.execute("select procrastinate_finish_job_v1($1, 'succeeded', true)", (jobs[name],))

    assert (admitted(names[0]), admitted(names[2])) == ("", "")
    assert "limit of user 'anna' leaves no room: 1 run at once" in admitted(names[1])
    ended(names[1])  # as the worker does it, which is free for others
    assert fetched() is None
    assert f"{names[1]}  queued: limit of user anna" in fleet("runs").out
    assert "limit of user anna" in fleet("fleet").out
    assert "The limit of user 'anna' leaves no room: 1 run at once." in fleet("show", names[1]).out
    with writing() as conn:
        end_job_admission(conn, jobs[names[2]])
    assert fetched() is None, "it waits for one of its own user"
    with writing() as conn:
        end_job_admission(conn, jobs[names[0]])
    assert (next_ := fetched()) and next_[1] == names[1]
    assert "limit" not in fleet("runs").out


FIGURES = {
    "requests": ("3", "3 of 3 requests a minute"),
    "tokens": ("350", "300 of 350 tokens a minute"),
    "usd_per_day": ("0.5", "0.6000 of 0.5 US dollars a day"),
    "usd_per_month": ("0.6", "0.6000 of 0.6 US dollars a month"),
}


def test_each_figure_is_counted_over_all_runs_by_the_databases_clock(
    fleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.engine.store.rate_limits import add_limit_use, find_request_wait, list_applicable_limits

    monkeypatch.setattr("interlock.state.clock._ahead", 0.0)  # afterwards, too
    monkeypatch.setattr(time, "time", lambda: 0.0)
    for number, (figure, (most, said)) in enumerate(FIGURES.items()):
        user = f"anna{number}"
        assert fleet("limits", f"user={user}", f"--{figure.replace('_', '-')}", most).code == 0
        with writing() as conn:
            limits = list_applicable_limits(conn, {"user": user, "workflow": "main", "model": "m"})
            for _ in range(3):
                assert find_request_wait(conn, limits, 50) is None
                add_limit_use(conn, limits, 1, 100, 0.2)
            assert (wait := find_request_wait(conn, limits, 100)) and said in wait.why
            assert wait.seconds and 0 < wait.seconds <= 31 * 86400
            assert not list_applicable_limits(conn, {"user": "bob", "workflow": "main", "model": "m"})
            conn.execute_raw("update limit_use set since = since - 100 * 86400")  # the period is over
            conn.execute_raw("update limit_seconds set since = since - 100")
            assert find_request_wait(conn, limits, 100) is None
        assert fleet("limits", f"user={user}", "--json").json[0]["used"] == {figure: 0}


def test_a_minute_is_any_60_seconds_and_a_limit_counts_from_when_it_is_set(fleet: Run) -> None:
    from interlock.engine.store.rate_limits import add_limit_use, find_request_wait, list_applicable_limits

    names = {"user": "anna", "workflow": "main"}

    def use(requests: int, seconds_ago: int) -> None:
        with writing() as conn:
            add_limit_use(conn, list_applicable_limits(conn, names), requests, 0, 0.0)
            conn.execute_raw(
                "update limit_seconds set since = since - $1 where since > extract(epoch from now()) - 5",
                (seconds_ago,),
            )

    def waits() -> float | None:
        with writing() as conn:
            wait = find_request_wait(conn, list_applicable_limits(conn, names))
        return wait.seconds if wait else None

    assert fleet("limits", "user=*", "--requests", "10").code == 0
    use(6, 50)
    use(3, 20)
    assert waits() is None
    use(2, 10)
    left = waits()
    assert left and 5 < left <= 11, "the six of 50 seconds ago leave room for more once they are over"
    assert fleet("limits", "user=*", "--requests", "11").code == 0
    assert waits(), "a changed limit goes on counting"
    assert fleet("limits", "user=*", "--requests", "12").code == 0
    assert waits() is None
    assert fleet("limits", "user=anna", "--requests", "1").code == 0
    assert waits() is None, "her own limit counts from now on"
    use(1, 30)
    assert waits()
    assert fleet("limits", "user=anna", "--remove").code == 0
    assert fleet("limits", "user=anna", "--requests", "1").code == 0
    assert waits() is None


def test_a_run_that_meets_the_limit_of_a_model_goes_on_once_it_has_room(fleet: Run, tmp_path: Path) -> None:
    assert fleet("limits", "model=*", "--requests", "1").code == 0
    with Worker():
        name = begin(fleet, tmp_path, "anna")
        until(lambda: fleet("fleet", "--json").json["jobs"][0]["waits"].startswith("model script:"))
        until(lambda: not fleet("fleet", "--json").json["jobs"][0]["doing"])
        (row,) = fleet("runs", "--json").json
        assert (row["status"], row["error"]["type"]) == ("queued", "limit")
        assert "1 of 1 requests a minute. The run continues by itself." in row["error"]["message"]
        assert fleet("limits", "model=*", "--requests", "100").code == 0
        assert fleet("wait", name).code == 0
    assert fleet("runs", "--json").json[0]["error"] is None
    with writing() as conn:
        used = "select tokens from limit_use where kind = 'model' and period = 'day'"
        spent = "select sum(input_tokens + output_tokens) from model_calls"
        assert conn.execute(used).fetchone() == conn.execute(spent).fetchone(), "estimates are settled"


def test_a_run_that_its_budget_or_a_missing_price_stops_waits_for_whoever_resumes_it(
    fleet: Run, tmp_path: Path
) -> None:
    with Worker():
        poor = begin(fleet, tmp_path, "anna", "--max-tokens", "100")
        assert fleet("wait", poor).code == 57
        assert fleet("resume", poor, "--max-tokens", "100000").code == 0
        assert fleet("wait", poor).code == 0
        assert fleet("limits", "workflow=main", "--usd-per-day", "1").code == 0
        name = begin(fleet, tmp_path, "anna")
        assert fleet("wait", name).code == 57
        assert "needs the price of 'script:" in fleet("show", name).out


REFUSED = (
    (("user=anna", "--runs", "0"), "--runs: '0' isn't a whole number of 1 or more"),
    (("user=anna", "--usd-per-day", "0"), "--usd-per-day: '0' isn't a number of 0.01 or more"),
    (("anna", "--runs", "1"), "'anna': expected user=NAME, workflow=NAME or model=NAME"),
    (("--runs", "1"), "Name the limit"),
    (("model=m", "--runs", "1"), "--runs is for a user or a workflow"),
    (("workflow=mian", "--runs", "1"), "No workflow 'mian'. Did you mean 'main'?"),
    (("user=anna", "--remove"), "No limit of user 'anna'"),
)


def test_a_limit_that_cannot_be_set_is_refused_in_one_line(fleet: Run) -> None:
    for words, said in REFUSED:
        refused = fleet("limits", *words)
        assert refused.code != 0 and said in refused.err and refused.err.count("\n") == 1, refused
    assert fleet("limits", "--json").json == []
    for words, said in (
        (("--priority", "1", "-p", "x"), "--priority is for runs that workers drive. Add --detach."),
        (("run", "main", "--detach", "--priority", "500", "x"), "isn't a whole number of -100 to 100"),
    ):
        refused = fleet(*words)
        assert (refused.code, said in refused.err) == (2, True), refused


def test_a_limit_counts_runs_that_were_begun_before_it_was_set(fleet: Run, tmp_path: Path) -> None:
    names = [begin(fleet, tmp_path, "anna") for _ in range(2)]
    job, run_name = fetched() or (0, "")
    with writing() as conn:
        assert not admit_or_requeue_job(conn, job, run_name, 0, "")
    assert fleet("limits", "user=*", "--runs", "1").code == 0
    job, run_name = fetched() or (0, "")
    with writing() as conn:
        assert "1 run at once" in admit_or_requeue_job(conn, job, run_name, 0, ""), names


def test_users_are_those_who_signed_in_whatever_their_environment_says(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "mallory")
    script = put(tmp_path / "script.json", [{"text": "Done."}])
    assert fleet("run", "main", "--detach", "-m", f"script:{script}", "do it").code == 0
    (job,) = fleet("fleet", "--json").json["jobs"]
    assert job["user"] == pwd.getpwuid(os.getuid()).pw_name
