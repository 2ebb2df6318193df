"""Runs of a store in a file that this machine's worker drives: left, followed, decided, stopped, limited, scheduled."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from commands import Run, run
from folders import put, tree
from patience import until
from scripted import says, shell, tools

from interlock.engine.client.fleet import take_up_due_work
from interlock.engine.store import Store, resolve_state_directory
from interlock.engine.store.leases import read_lease
from interlock.engine.store.wakes import Wakes
from interlock.engine.store.worker_file import find_worker
from interlock.services.process.identity import process_start_time

__all__ = ["run"]

pytestmark = pytest.mark.sqlite
SCRIPT = [
    says("write_file", file_path="made.txt", content="made\n"),
    tools(shell("echo $IN_SHELL >> count.txt")),
    {"text": "Made it."},
]


@pytest.fixture
def state(home: Path) -> Iterator[Path]:
    """The state directory, whose worker ends with the test."""
    home = resolve_state_directory()
    yield home
    while worker := find_worker(home):
        if worker.pid:
            os.kill(worker.pid, signal.SIGKILL)
        time.sleep(0.05)


def leave(run: Run, script: Path, *flags: str) -> str:
    left = run("run", "main", "--detach", "-y", "-m", f"script:{script}", *flags, "do it")
    assert left.code == 0, left.err
    return left.out.strip()


def worker_pid(state: Path) -> int:
    until(lambda: (worker := find_worker(state)) and worker.pid)
    found = find_worker(state)
    assert found
    return found.pid


def wakes(state: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(state / "interlock.db")) as conn:
        return conn.execute("select key, kind, queue, begun is not null from wakes").fetchall()


def test_a_run_is_left_to_a_worker_that_comes_by_itself(
    run: Run, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IN_SHELL", "from my shell")
    name = leave(run, put(tmp_path / "script.json", SCRIPT))
    waited = run("wait", name)
    assert (waited.code, waited.out.split()) == (0, [name, "done"])
    assert Path("made.txt").read_text() == "made\n"
    assert Path("count.txt").read_text() == "from my shell\n"
    assert "1 worker" in run("fleet").out
    until(lambda: wakes(state) == [])


def test_what_was_under_way_goes_on_after_everything_was_killed(
    run: Run, state: Path, tmp_path: Path
) -> None:
    script = [tools(shell("touch begun; sleep 0.3; echo once >> count.txt")), {"text": "Made it."}]
    name = leave(run, put(tmp_path / "script.json", script))
    until(lambda: read_owner(state, name))
    os.kill(worker_pid(state), signal.SIGKILL)
    until(lambda: find_worker(state) is None)
    assert [row[:2] for row in wakes(state)] == [(name, "run")], "it is still to be done"
    told = run("wait", name)
    assert "so one was started" in told.err
    assert told.code in (0, 75), told.out + told.err
    if told.code == 75:  # killed inside the command: its outcome is asked
        assert run("resume", name, "--approve", "all", "--detach").code == 0
        assert run("wait", name).code == 0


def read_owner(state: Path, name: str) -> int:
    with closing(Store(state).connect()) as conn:
        lease = read_lease(conn, name)
    return lease.owner.pid if lease and lease.held else 0


ASKS = [tools(shell("echo once >> count.txt")), {"text": "Made it."}]


def test_a_limit_holds_runs_back_in_the_order_of_their_priority(
    run: Run, state: Path, tmp_path: Path
) -> None:
    assert run("limits", "user=*", "--runs", "1").code == 0
    order = [
        tools(shell("echo $NAME >> ../order.txt; until [ -e ../go ]; do sleep 0.05; done")),
        {"text": "Made it."},
    ]
    script, left = put(tmp_path / "script.json", order), list[str]()
    for name, priority in (("first", "0"), ("late", "-1"), ("soon", "1")):
        (tmp_path / name).mkdir()
        os.environ["NAME"] = name
        left.append(leave(run, script, "-C", str(tmp_path / name), "--priority", priority))
    del os.environ["NAME"]
    (tmp_path / "go").touch()
    assert run("wait", *left).code == 0
    order_of_starts = (tmp_path / "order.txt").read_text().split()
    assert {*order_of_starts} == {"first", "late", "soon"} and order_of_starts[-1] == "late"
    assert "1" in run("limits").out
    until(lambda: wakes(state) == [])


def test_a_run_waits_for_a_decision_without_a_row_and_is_cancelled_by_another_command(
    run: Run, state: Path, tmp_path: Path
) -> None:
    script = put(tmp_path / "script.json", ASKS)
    left = run("run", "main", "--detach", "-m", f"script:{script}", "do it").out.strip()
    assert run("wait", left).code == 75
    until(lambda: wakes(state) == [])
    assert run("resume", left, "--approve", "all", "--detach").code == 0
    assert run("wait", left).code == 0
    long = put(tmp_path / "long.json", [tools(shell("sleep 60")), {"text": "Made it."}])
    name = leave(run, long)
    until(lambda: read_owner(state, name))
    assert "asked to stop" in run("cancel", name).err
    assert run("wait", name).code == 130
    assert "interrupted" in run("runs").out


def test_a_schedule_that_was_due_while_no_worker_ran_starts_one_run(
    run: Run, state: Path, tmp_path: Path
) -> None:
    script = put(tmp_path / "script.json", [{"text": "Made it."}])
    added = run("schedule", "add", "@daily", "main", "--name", "n", "-y", "-m", f"script:{script}", "do it")
    assert added.code == 0 and "interlock worker --install" in added.err
    os.kill(worker_pid(state), signal.SIGKILL)
    until(lambda: find_worker(state) is None)
    with closing(sqlite3.connect(state / "interlock.db")) as conn, conn:  # three days pass
        conn.execute("update wakes set due = due - 3 * 86400, args = json_set(args, '$.due', 86400)")
    assert "no worker runs" in run("schedule", "list").err
    assert run("worker", "--idle-exit", "1s").code == 0
    rows = run("runs", "--json").json
    assert [row["title"] for row in rows] == ["do it"]
    assert [row[:2] for row in wakes(state)] == [("schedule:n", "schedule")]
    assert run("schedule", "remove", "n").code == 0 and wakes(state) == []


def test_a_key_of_a_shell_is_never_stored_and_is_waited_for_after_a_restart(
    run: Run, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "only-in-this-shell-42")
    with Store(state).create_or_migrate().write_transaction():
        pass
    left = run("run", "main", "--detach", "-y", "-m", "gemini-2.5-pro", "--timeout", "1h", "do it")
    name = left.out.strip()
    os.kill(worker_pid(state), signal.SIGKILL)
    until(lambda: find_worker(state) is None)
    assert b"only-in-this-shell-42" not in b"".join(
        file.read_bytes() for file in state.rglob("*") if file.is_file()
    )
    monkeypatch.delenv("GEMINI_API_KEY")
    assert run("worker", "--idle-exit", "1s").code == 0
    (row,) = run("runs", "--json").json
    assert (row["run"], row["status"], row["error"]["type"]) == (name, "queued", "key")
    assert "interlock auth set" in row["error"]["message"]


def test_a_death_of_the_machine_counts_for_no_run(state: Path) -> None:
    store = Store(state).create_or_migrate()
    with store.write_transaction() as conn:
        jobs = conn.jobs
        assert isinstance(jobs, Wakes)
        jobs.enqueue_job_unless_waiting("run", "r", "q", {"run": "r"})
        seen = list[int]()
        for is_down in (True, False, False):
            taken = jobs.take_first_due_job()
            assert taken and jobs.take_first_due_job() is None
            seen.append(taken.attempts)
            if is_down:
                jobs.forget_deaths()
            jobs.requeue_or_end_running_job(taken.job, "r")
    assert seen == [0, 0, 1]


def test_a_run_in_a_clone_leaves_a_patch(run: Run, state: Path, home: Path, tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a.txt": "one\n"})
    own = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(("git", *own, *words), cwd=source, check=True)
    script = put(tmp_path / "script.json", [SCRIPT[0], {"text": "Made it."}])
    trusting = {"localRepositories": [str(tmp_path)], "trustedRepositories": ["*"], "sandbox": "untrusted"}
    given = {"model": {"name": f"script:{script}"}, "fleet": trusting}
    put(Path(os.environ["HOME"]) / ".interlock" / "settings.json", given)
    left = run("run", "main", "--detach", "-y", "--repo", f"file://{source}@main", "make it")
    assert left.code == 0, left.err
    name = left.out.strip()
    waited = run("wait", name)
    assert waited.code == 0, waited.out + waited.err
    assert "+made" in run("export", name, "--format", "patch").out
    assert run("runs", "rm", name).code == 0
    assert run("export", name, "--format", "patch").code == 2


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(12))
def test_no_run_is_lost_or_doubled_by_kills_of_the_worker_and_its_processes(
    run: Run, state: Path, tmp_path: Path, seed: int
) -> None:
    """Killed when the store has so many steps more; after every other kill the machine has another boot id."""
    chance = random.Random(seed)
    script = put(
        tmp_path / "script.json", [SCRIPT[0], tools(shell("echo once >> count.txt")), {"text": "Done."}]
    )
    folders = {leave_in(run, tmp_path / name, script): tmp_path / name for name in ("a", "b", "c")}
    for kill in range(chance.randint(2, 4)):
        wanted = count_steps(state) + chance.randint(0, 12)
        until(lambda wanted=wanted: count_steps(state) >= wanted or not wakes(state))
        victims = [read_owner(state, name) for name in folders] if chance.random() < 0.5 else []
        for pid in [one for one in victims if one] or [worker_pid_or_none(state)]:
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: not process_start_time(pid))
        if not find_worker(state) and kill % 2:
            file = state / "worker"
            pid, _, *rest = json.loads(file.read_text())
            file.write_text(json.dumps([pid, "before the restart", *rest]))
        take_up_due_work(state, os.environ)
    asked = 0
    while (waited := run("wait", *folders)).code == 75:
        for request in run("approvals", "--json").json:
            name, asked = request["run"], asked + 1
            happened = (folders[name] / "count.txt").exists()
            answer = "skip" if happened else "redo"
            told = run("resume", name, "--answer", f"all={answer}", "--detach")
            assert told.code == 0, told.err
    assert waited.code == 0, waited.out + waited.err
    for folder in folders.values():
        assert (folder / "made.txt").read_text() == "made\n"
        assert (folder / "count.txt").read_text() == "once\n", f"{asked} asked"
    until(lambda: wakes(state) == [])


def leave_in(run: Run, folder: Path, script: Path) -> str:
    folder.mkdir()
    return leave(run, script, "-C", str(folder))


def worker_pid_or_none(state: Path) -> int:
    found = find_worker(state)
    return found.pid if found else 0


def count_steps(state: Path) -> int:
    with closing(sqlite3.connect(state / "interlock.db")) as conn:
        return conn.execute("select count(*) from step_rows").fetchone()[0]
