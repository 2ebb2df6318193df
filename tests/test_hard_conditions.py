"""Binary and odd files, a damaged store, a state directory that cannot be made: one clear line each."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import Run, execute
from scripted import call

from interlock.engine import Options, run_sync
from interlock.engine.store import Store, explain_store_errors
from interlock.state.errors import StoreError


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    return folder


def use(work: Path, name: str, **args: Any) -> dict[str, Any]:
    """One call through the `tools` workflow, with everything allowed."""
    home = {"home": work.parent / "home", "user_home": work.parent / "user"}
    options = Options(**home, workspace=work, approval_mode="yolo", env={"PATH": os.environ["PATH"]})
    outcome = run_sync("tools", {"calls": [{"id": "c", "name": name, "args": args}]}, options=options)
    assert outcome.status == "done", outcome.error
    (response,) = outcome.output["responses"]
    return response


def test_binary_and_odd_files_get_a_sentence_each(work: Path) -> None:
    (work / "bin").write_bytes(bytes(range(256)) * 10)
    (work / "empty").write_bytes(b"")
    (work / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (work / "ünïcödé 文.txt").write_text("héllo", encoding="utf-8")
    assert "binary" in use(work, "read_file", file_path="bin")["content"].lower()
    assert use(work, "read_file", file_path="empty")["status"] == "success"
    assert "héllo" in use(work, "read_file", file_path="ünïcödé 文.txt")["content"]
    use(work, "replace", file_path="crlf.txt", old_string="one\ntwo", new_string="1\n2")
    assert (work / "crlf.txt").read_bytes() == b"1\r\n2\r\n"
    missing = use(work, "read_file", file_path="nowhere.txt")
    assert (missing["status"], "nowhere.txt" in missing["content"]) == ("error", True)
    raw = os.fsdecode(b"caf\xe9")
    (work / raw).mkdir()
    (work / "link").symlink_to(raw)
    assert use(work, "write_file", file_path="link/new.txt", content="x")["status"] == "success"
    assert (work / raw / "new.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda file: file.write_bytes(b"not a database, " * 100), "damaged"),
        (lambda file: _version(file, 99), "newer Interlock"),
    ],
)
def test_a_spoilt_store_is_one_line_and_left_as_it_is(work: Path, spoil: Any, says: str) -> None:
    store = Store(work.parent / "home")
    store.create_or_migrate()
    spoil(store.path)
    bytes_before = store.path.read_bytes()
    (work / "s.yaml").write_text("- text: hi\n")
    for command in (["runs"], ["approvals"], ["-m", "script:s.yaml", "-p", "x"], ["resume", "latest"]):
        done = execute(work, *command, env={"INTERLOCK_HOME": str(store.home)})
        assert done.returncode == 1, (command, done)
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert store.path.read_bytes() == bytes_before


def test_a_store_that_a_newer_program_changes_while_it_is_open_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_or_migrate()
    with closing(store.connect()) as conn:
        _version(store.path, 99)
        with pytest.raises(StoreError, match="newer Interlock"), explain_store_errors(store.path):
            conn.execute("select * from a_table_that_is_gone")


def _version(file: Path, number: int) -> None:
    conn = sqlite3.connect(file)
    conn.execute(f"pragma user_version={number}")
    conn.execute("pragma wal_checkpoint(truncate)")
    conn.close()


def test_a_state_directory_that_cannot_be_made_is_one_line(work: Path) -> None:
    (work.parent / "file").write_text("")
    (work / "s.yaml").write_text("- text: hi\n")
    home = str(work.parent / "file" / "state")
    done = execute(work, "-m", "script:s.yaml", "-p", "x", env={"INTERLOCK_HOME": home})
    assert done.returncode == 1
    assert "INTERLOCK_HOME" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_state_directory_of_another_user_is_one_line(
    work: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lstat(path: Path) -> None:  # tests run as root, too, whom nothing is closed to
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "lstat", lstat)
    (work / "s.yaml").write_text("- text: hi\n")
    for command in (["runs"], ["-m", "script:s.yaml", "-p", "x"]):
        done = run(*command)
        assert (done.code, "can't read the state directory" in done.err.lower()) == (1, True), done


def test_a_state_directory_inside_the_workspace_is_no_part_of_it(
    work: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the workspace is the home directory: an undone store would be the end of it."""
    monkeypatch.setenv("INTERLOCK_HOME", str(work / ".local/state"))
    calls = [
        call("write_file", file_path="a.txt", content="written"),
        call("read_file", file_path=".local/state/interlock.db"),
        call("list_directory", dir_path=".local"),
        call("glob", pattern="**/*"),
        call("grep_search", pattern="written"),
    ]
    given = json.dumps({"calls": [{"id": str(n), **one} for n, one in enumerate(calls)]})
    done = run("run", "tools", "--input", given, "-y").json["responses"]
    assert [one["status"] for one in done] == ["success", "error", "success", "success", "success"], done
    assert not [one for one in done[2:] if "state" in one["content"]], done
    assert run("undo", "latest").out == "D a.txt\n"
    assert "is Interlock's state directory" in run("run", "context", "x", "-C", ".local/state").err
