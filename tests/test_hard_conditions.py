"""Path safety, huge and binary files, a full disk, a damaged store: one clear line each, nothing lost."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from commands import execute

from interlock.engine import Options, resume_sync, run_sync
from interlock.engine.store import Store


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def options(work: Path, **changes: Any) -> Options:
    base = {
        "home": work.parent / "home",
        "user_home": work.parent / "user",
        "workspace": work,
        "approval_mode": "yolo",
        "env": {"PATH": os.environ["PATH"]},
    }
    return Options(**{**base, **changes})


def use(work: Path, name: str, **args: Any) -> dict[str, Any]:
    """One call through the `tools` workflow, with everything allowed."""
    outcome = run_sync("tools", {"calls": [{"id": "c", "name": name, "args": args}]}, options=options(work))
    assert outcome.status == "done", outcome.error
    (response,) = outcome.output["responses"]
    return response


def outside(work: Path) -> Path:
    secret = work.parent / "outside"
    secret.mkdir(exist_ok=True)
    (secret / "secret.txt").write_text("top secret")
    return secret


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "{outside}/secret.txt",
        "link/secret.txt",
        "link-to-file",
        "sub/../../outside/secret.txt",
        "/etc/passwd",
        "/proc/self/environ",
        ".git/config",
        "sub/.GIT/config",
        ".env",
        "sub/.env",
        "~/.ssh/id_rsa",
        "a\x00b",
    ],
)
def test_a_path_that_leads_out_or_to_secrets_is_refused(work: Path, path: str) -> None:
    secret = outside(work)
    (work / "sub").mkdir()
    for folder in (work / ".git", work / "sub" / ".GIT"):
        folder.mkdir()
        (folder / "config").write_text("top secret")
    for file in (work / ".env", work / "sub" / ".env"):
        file.write_text("KEY=top secret")
    (work / "link").symlink_to(secret)
    (work / "link-to-file").symlink_to(secret / "secret.txt")
    before = {p: p.read_bytes() for p in work.parent.rglob("*") if p.is_file() and "home" not in p.parts}
    named = path.format(outside=secret)
    read = use(work, "read_file", file_path=named)
    written = use(work, "write_file", file_path=named, content="overwritten")
    replaced = use(work, "replace", file_path=named, old_string="top", new_string="not")
    for response in (read, written, replaced):
        assert response["status"] == "error"
        assert "top secret" not in json.dumps(response)
    after = {p: p.read_bytes() for p in before}
    assert after == before


def test_a_10_mb_output_is_kept_whole_and_named(work: Path) -> None:
    response = use(work, "run_shell_command", command="head -c 10000000 /dev/zero | tr '\\0' x; echo the-end")
    assert response["status"] == "success"
    assert len(response["content"]) < 50_000
    assert "the-end" in response["content"]
    (full,) = (work.parent / "home" / "outputs").glob("*.txt")
    assert str(full) in response["content"]
    assert full.stat().st_size == 10_000_008


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


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda file: file.write_bytes(b"not a database, " * 100), "damaged"),
        (lambda file: _version(file, 99), "newer Interlock"),
    ],
)
def test_a_spoilt_store_is_one_line_and_left_as_it_is(work: Path, spoil: Any, says: str) -> None:
    store = Store(work.parent / "home")
    store.open()
    spoil(store.path)
    bytes_before = store.path.read_bytes()
    (work / "s.yaml").write_text("- text: hi\n")
    for command in (["runs"], ["approvals"], ["-m", "script:s.yaml", "-p", "x"], ["resume", "latest"]):
        done = execute(work, *command, env={"INTERLOCK_HOME": str(store.home)})
        assert done.returncode == 1, (command, done)
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert store.path.read_bytes() == bytes_before


def _version(file: Path, number: int) -> None:
    conn = sqlite3.connect(file)
    conn.execute(f"pragma user_version={number}")
    conn.execute("pragma wal_checkpoint(truncate)")
    conn.close()


def test_a_full_disk_stops_the_run_and_loses_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own page limit simulates a full disk: the error is the same."""
    (work / "notes.txt").write_text("a line\n" * 500)
    # Vary the arguments: five equal calls are a loop.
    calls = [{"name": "read_file", "args": {"file_path": "notes.txt", "limit": 400 + i}} for i in range(20)]
    replies = [{"tool_calls": [call]} for call in calls]
    (work / "s.json").write_text(json.dumps([*replies, {"text": "done"}]))
    chosen = options(work, model=f"script:{work / 's.json'}")
    connect = Store._connect  # pyright: ignore[reportPrivateUsage]

    def small(self: Store, *args: Any) -> sqlite3.Connection:
        conn = connect(self, *args)
        conn.execute("pragma max_page_count = 60")
        return conn

    monkeypatch.setattr(Store, "_connect", small)
    outcome = run_sync("main", {"prompt": "go"}, options=chosen)
    assert outcome.exit_code == 1
    assert outcome.error is not None
    assert "No space left" in outcome.error["message"]
    monkeypatch.setattr(Store, "_connect", connect)
    again = resume_sync(outcome.run, options=chosen)
    assert (again.status, again.output["response"]) == ("done", "done")
    answers = [m for m in again.output["history"] if m["role"] == "tool"]
    assert len(answers) == 20


def test_a_state_directory_that_cannot_be_made_is_one_line(work: Path) -> None:
    (work.parent / "file").write_text("")
    (work / "s.yaml").write_text("- text: hi\n")
    home = str(work.parent / "file" / "state")
    done = execute(work, "-m", "script:s.yaml", "-p", "x", env={"INTERLOCK_HOME": home})
    assert done.returncode == 1
    assert "INTERLOCK_HOME" in done.stderr
    assert len(done.stderr.splitlines()) == 1
