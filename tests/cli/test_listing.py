"""What the fast commands read from the store."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.engine.read import (
    count_consecutive_root_nodes,
    find_run,
    list_runs,
    list_steps,
    list_waiting_requests,
)
from interlock.engine.read.calls import list_answered_requests, list_calls
from interlock.engine.store import resolve_state_directory
from interlock.services.process.identity import boot_id, current_process_identity, host_and_pid_namespace
from interlock.state.errors import UserError

Maker = Any  # the `StoreMaker` of tests/cli/conftest.py


@pytest.fixture
def place(home: Path) -> Path:
    return home / "interlock"


def test_reading_an_empty_file_finds_nothing(place: Path) -> None:
    place.mkdir()
    (place / "interlock.db").touch()
    assert list_runs(place) == []


def test_reading_never_writes(made: Maker, place: Path) -> None:
    made.run("aa11")
    from interlock.engine.store import open_reader

    with open_reader(place) as conn:
        assert conn is not None
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            conn.execute_raw("delete from runs")


def _ended_process() -> tuple[str, str, int, str]:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return (host_and_pid_namespace(), boot_id(), ended.pid, "1")


@pytest.mark.parametrize(
    ("stored", "owner", "held", "asks", "expected"),
    [
        ("open", "me", 1, False, "running"),
        ("done", "me", 1, False, "running"),
        ("open", "me", 0, False, "interrupted"),
        ("open", "dead", 1, False, "interrupted"),
        ("open", "dead", 1, True, "waiting"),
        ("open", "rebooted", 1, False, "interrupted"),
        ("open", "another's pid", 1, False, "interrupted"),
        ("open", "elsewhere", 1, False, "running"),
        ("open", None, 0, False, "interrupted"),
        ("waiting", None, 0, True, "waiting"),
        ("waiting", None, 0, False, "interrupted"),
        ("done", None, 0, False, "done"),
        ("failed", "dead", 1, False, "failed"),
        ("cancelled", None, 0, True, "cancelled"),
    ],
)
def test_status_follows_from_row_lease_and_requests(
    made: Maker, place: Path, stored: str, owner: str | None, held: int, asks: bool, expected: str
) -> None:
    made.run("aa11", status=stored)
    owners = {
        "me": tuple(current_process_identity()),
        "dead": _ended_process(),
        "rebooted": (host_and_pid_namespace(), "another-boot", os.getpid(), "1"),
        "another's pid": (host_and_pid_namespace(), boot_id(), os.getpid(), "12"),
        "elsewhere": ("elsewhere", "b", 1, "1"),
    }
    if owner:
        made.hold("aa11", owners[owner], held)
    if asks:
        made.edit("aa11")
    assert list_runs(place)[0].status == expected


def test_the_newest_of_a_status_are_found_behind_many_of_others(made: Maker, place: Path) -> None:
    for number in range(12):
        made.run(f"new{number:02}", updated=9000.0 + number)
        made.hold(f"new{number:02}", tuple(current_process_identity()), 1)
    for number in range(3):
        made.run(f"old{number}", updated=1000.0 + number)
        made.run(f"asks{number}", updated=500.0 + number)
        made.edit(f"asks{number}")
    made.run("task", updated=400.0)
    made.execute("update runs set parent = 'task', subtask_of = 'task' where run = 'old0'")
    assert [r.run for r in list_runs(place, "interrupted", limit=2)] == ["old2", "old1"]
    assert [r.run for r in list_runs(place, "waiting", limit=2)] == ["asks2", "asks1"]
    assert [r.run for r in list_runs(place, "waiting", limit=9)] == ["asks2", "asks1", "asks0", "task"]


@pytest.mark.parametrize(
    ("name", "found"), [("ab12", "ab12"), ("ab1", "ab12"), ("latest", "cd34"), ("c", "cd34")]
)
def test_a_run_is_found_by_id_prefix_or_latest(made: Maker, place: Path, name: str, found: str) -> None:
    made.run("ab12", updated=1.0)
    made.run("cd34", updated=2.0)
    assert find_run(place, name, Path("/work/app")).run == found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ab", "fits 2 runs: "),
        ("ab21", "Did you mean 'ab12'"),
        ("", "No run ''"),
        ("zzzz", "interlock runs --all"),
    ],
)
def test_a_run_that_is_not_found_gets_the_nearest(made: Maker, place: Path, name: str, expected: str) -> None:
    made.run("ab12")
    made.run("abcd")
    with pytest.raises(UserError, match=expected):
        find_run(place, name)


def test_only_unanswered_requests_of_open_runs_wait(made: Maker, place: Path) -> None:
    made.run("aa11")
    made.run("bb22", status="cancelled")
    first, second, third, fourth = (made.edit("aa11") for _ in range(4))
    made.edit("bb22")
    made.execute("update approvals set answer = '{}' where id = $1", first)
    made.execute("update approvals set superseded = 1 where id = $1", second)
    made.execute("update approvals set interrupt = null where id = $1", third)
    assert [r.id for r in list_waiting_requests(place)] == [fourth]
    assert list_waiting_requests(place, "bb22") == []


def test_the_longest_wait_comes_first_and_a_runs_requests_stay_together(made: Maker, place: Path) -> None:
    for run in ("late", "soon"):
        made.run(run)
    ids = [made.edit("late"), made.edit("soon"), made.shell("late")]
    made.execute("update approvals set asked_at = 50 where run = 'soon'")
    assert [r.id for r in list_waiting_requests(place)] == [ids[1], ids[0], ids[2]]


def test_steps_are_read_back_and_a_path_counts_repetitions(made: Maker, place: Path) -> None:
    made.run("aa11")
    kind = "insert into step_kinds values ($1, $2, '', 'main', $3, 'head,stop', 'ok')"
    row = "insert into step_rows values ('aa11', $1, $2, $3, 'c', 1.0, $4)"
    for seq, (namespace, node) in enumerate([("", "open"), ("turn:1", "ask"), ("", "turn"), ("", "turn")]):
        made.execute(kind, seq, namespace, node)
        made.execute(row, seq, f"t{seq}", seq, f"[[{seq},0,2000]]")
    taken = list_steps(place, "aa11")
    assert count_consecutive_root_nodes(taken) == [("open", 1), ("turn", 2)]
    assert (taken[0].step, taken[0].keys, taken[0].route) == (1, ("head", "stop"), "ok")


def test_a_call_has_the_arguments_that_it_got_and_its_errors_first_line(made: Maker, place: Path) -> None:
    made.run("aa11")
    error = {"type": "t", "message": "no such\nfolder"}
    result = json.dumps({"status": "error", "content": "x", "error": error, "meta": {"duration_ms": 7}})
    row = "'aa11', 'm1', 0, 1, 'glob', 'h', $1, 'done', null, $2, null, null, 1, null, 5.0"
    made.execute(f"insert into journal values ({row})", '{"pattern": "later"}', result)
    (call,) = list_calls(place, "aa11")
    assert (call.args, call.summary, call.status, call.ms) == ({"pattern": "later"}, "no such", "error", 7)


def test_an_answer_says_who_gave_it_and_when(made: Maker, place: Path) -> None:
    made.run("aa11")
    name, said = made.edit("aa11"), '{"choice": "reject", "feedback": "no"}'
    change = "update approvals set answer = $1, answered_by = 'ann', answered_at = 9.0 where id = $2"
    made.execute(change, said, name)
    asked = {"id": name, "kind": "approval", "tool_name": "replace"}
    given = {"choice": "reject", "feedback": "no", "text": None, "by": "ann", "at": 9.0}
    assert list(list_answered_requests(place, "aa11")) == [{**asked, **given}]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"INTERLOCK_HOME": "/a/b", "XDG_STATE_HOME": "/x"}, "/a/b"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/interlock"),
        ({"HOME": "/h"}, "/h/.local/state/interlock"),
    ],
)
def test_the_state_directory_follows_the_environment(env: dict[str, str], expected: str) -> None:
    assert resolve_state_directory(env) == Path(expected)
