"""Faults under a run: store, disk, supervisor, odd files. Each gives one clear line, never "a bug"."""

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from commands import Done, Run
from folders import put, tree
from scripted import says, tools

from interlock.engine.store import Store
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import NewRun, insert_run
from interlock.engine.store.sqlite import Sqlite
from interlock.services.context.agents import load_agents
from interlock.services.context.definition_files import Folders
from interlock.services.transcript import ChainTranscript
from interlock.state.messages import Message

REPLIES: list[dict[str, Any]] = [
    says("read_file", file_path="a.txt"),
    says("run_shell_command", command="echo x > made.txt"),
    {"text": "x" * 9000},
    {"text": "Again."},
]
COMMANDS = (
    ("runs",),
    ("approvals",),
    ("show", "latest", "--calls"),
    ("history", "latest"),
    ("resume", "latest", "--approve", "1", "--output-format", "stream-json"),
    ("doctor", "--store"),
)


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    """Runs a command, which must end with one clear line, and an event stream with its result."""
    tree(tmp_path, {"script.json": REPLIES, "work/a.txt": "a\n"})

    def call(*arguments: str, stdin: str = "") -> Done:
        done = run(*arguments, stdin=stdin)
        assert "a bug" not in done.err + done.out and "Traceback" not in done.err, (arguments, done.err)
        if "stream-json" in arguments:
            assert done.events[-1]["type"] == "result", (arguments, done.out)
        return done

    return call


def started(run: Run, tmp_path: Path, *flags: str) -> Done:
    return run("run", "main", "go", "--model", f"script:{tmp_path / 'script.json'}", *flags)


@pytest.fixture
def home(home: Path) -> Path:
    return home / "interlock"


def damaged(run: Run, home: Path, change: str) -> None:
    """Run one statement in a copy of the store, then every command."""
    whole = home.with_name("whole")
    if not whole.exists():
        shutil.copytree(home, whole)
    shutil.rmtree(home)
    shutil.copytree(whole, home)
    conn = sqlite3.connect(home / "interlock.db", isolation_level=None)
    conn.execute(change)
    conn.close()
    told = [run(*command) for command in COMMANDS]
    place = str(home / "interlock.db")  # in a folder that pytest names after the test
    odd = [d for d in told if "damaged" in d.err.replace("damaged_row", "") and place not in d.err]
    assert odd == [], change
    assert told[-1].code == 1 and "rows" in told[-1].out, (change, told[-1])


JSON = {
    "runs": ("options", "input"),
    "chain": ("body",),
    "journal": ("result",),
    "decisions": ("body",),
    "approvals": ("id", "request"),
    "checkpoints": ("checkpoint", "type"),
    "writes": ("value", "type"),
}
OTHERS = {
    "runs": "created = 'x', updated = 'x', workspace = x'ff'",
    "journal": "done_at = 'x', intent_at = 'x', args = '{'",
    "step_rows": "started = 'x', nodes = '['",
    "lease": "beat = 'x', epoch = 'x'",
    "model_calls": "at = 'x', model = x'ff'",
}


def test_a_damaged_row_is_one_line_in_every_command(run: Run, tmp_path: Path, home: Path) -> None:
    assert started(run, tmp_path).code == 75
    for table, columns in JSON.items():
        for column in columns:
            damaged(run, home, f"update {table} set {column} = '['")
    for table, change in OTHERS.items():
        damaged(run, home, f"update {table} set {change}")


@pytest.mark.parametrize("change", ["rm {0}", "rm {0}-wal", "cp {0} {0}2; mv {0}2 {0}", "mv {1} {1}2"])
def test_a_store_that_is_deleted_or_replaced_is_noticed_by_the_run(
    run: Run, tmp_path: Path, home: Path, change: str
) -> None:
    put(
        tmp_path / "change.sh", change.format(home / "interlock.db", home)
    )  # a line that names the store asks
    call = {"name": "run_shell_command", "args": {"command": f"sh {tmp_path / 'change.sh'}"}}
    put(tmp_path / "script.json", [tools(call), {"text": "done"}])
    done = started(run, tmp_path, "--yolo", "--output-format", "stream-json")
    error = done.events[-1]["error"]
    assert (done.code, error["type"]) == (1, "store")
    assert "deleted or replaced" in error["message"] and str(home / "interlock.db") in error["message"]


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(
    run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Sqlite.connect
    stages: set[str] = set()
    for pages in range(54, 124, 10):

        def limited(*args: Any, most: int = pages, **named: Any) -> Connection:
            conn = connect(*args, **named)
            conn.execute(f"pragma max_page_count = {most}")
            return conn

        shutil.rmtree(home, ignore_errors=True)
        monkeypatch.setattr(Sqlite, "connect", limited)
        done = started(run, tmp_path, "--yolo", "--output-format", "stream-json")
        monkeypatch.setattr(Sqlite, "connect", connect)
        stages.add(f"{done.code} after {len(done.events)} events")
        if done.code:
            error = done.events[-1]["error"]
            assert error["type"] == "store" and "No space left" in error["message"], done
            assert str(home / "interlock.db") in error["message"]
        if done.code and len(done.events) > 2:
            resumed = run("resume", "latest", "--yolo")
            assert resumed.code == 75 or resumed.out.strip() in ("x" * 9000, "Again."), (
                "an outcome may be asked"
            )
    assert len(stages) > 2, stages


def test_files_that_find_no_room_are_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/outputs/x.json")

    monkeypatch.setattr("interlock.services.files.blobs.store_content", full)
    put(tmp_path / "script.json", REPLIES[2:])
    done = started(run, tmp_path, "--output-format", "stream-json")
    assert "No space left to write '/state/outputs/x.json'" in done.events[-1]["error"]["message"]


def test_a_plan_that_was_handed_over_and_not_begun_is_no_damage(run: Run, home: Path) -> None:
    store = Store(home)
    store.create_or_migrate()
    conn = store.connect()
    record = ChainTranscript(SqlChain(conn), store.outputs, "next").append(
        "", [Message(role="user", content="Do it.")]
    )
    insert_run(conn, NewRun("next", "main", "/work", "do it", {}, {"prompt": record, "head": ""}))
    assert run("doctor", "--store").code == 0
    conn.execute_raw("delete from chain where id = $1", (record,))
    assert "is missing" in run("doctor", "--store").out
    conn.close()


def test_a_command_whose_supervisor_was_killed_is_asked_about(run: Run, tmp_path: Path) -> None:
    call = {"name": "run_shell_command", "args": {"command": "echo x >> ../effects; kill -9 $PPID; sleep 60"}}
    put(tmp_path / "script.json", [tools(call), {"text": "done"}])
    done = started(run, tmp_path, "--yolo", "--output-format", "stream-json")
    assert (done.code, done.events[-1]["pending_approvals"][0]["kind"]) == (75, "outcome")
    assert (tmp_path / "effects").read_text() == "x\n"


@pytest.mark.parametrize(
    "front",
    [
        "a: " + "[" * 5000 + "]" * 5000,
        "a: " + "{b: " * 900 + "1" + "}" * 900,
        "max_turns: " + "9" * 5000,
        "max_turns: 0x" + "f" * 50_000,
        "max_time_minutes: 1.0e+400",
        "a: 2024-99-99",
        "? [a]\n: b",
        "input_schema: [&a [x, x], &b [*a, *a]]",
    ],
)
def test_an_odd_agent_file_is_one_line(front: str, tmp_path: Path) -> None:
    folder = tmp_path / ".interlock" / "agents"
    put(folder / "odd.md", f"---\ndescription: odd\n{front}\n---\nDo it.\n")
    found = load_agents(Folders(tmp_path / "nowhere", tmp_path, trusted=False))
    told = [*found.list_warnings(), *found.list_notes()]
    assert all("odd.md" in line and "\n" not in line and len(line) < 1000 for line in told) and len(told) < 2
    assert ("odd" in found.by_name) == (not found.list_warnings())
