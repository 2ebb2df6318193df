"""Runs of a store in a file that this machine's worker drives: left, followed, decided, stopped, limited, scheduled."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import Run, run
from folders import put
from patience import until
from scripted import says, shell, tools

from interlock.engine.store import Store, resolve_state_directory
from interlock.engine.store.leases import read_lease
from interlock.engine.store.worker_file import find_worker

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
