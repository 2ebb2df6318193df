"""An index under kills, and used by several processes at once: real processes, SIGKILL and SIGSTOP."""

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import HANG_S, until
from warm import Warm

FILES = 450
"""Enough for several batches."""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for number in range(FILES):
        file = tmp_path / "work" / f"part{number % 7}" / f"module_{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        names = "\n".join(
            f"def answer_{number}_{k}(question):\n    return question.replied({number * k}, 'as before')\n"
            for k in range(4)
        )
        file.write_text(names)
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return tmp_path / "work"


def start(work: Path, home: Path, *arguments: str) -> Warm:
    env = {**os.environ, "INTERLOCK_HOME": str(home)}
    return Warm(arguments, cwd=work, env=env, stdout=subprocess.PIPE)


def ended(process: Warm) -> dict[str, Any]:
    code, out = process.ends()
    assert code == 0, out
    return json.loads(out)


def rows(home: Path, sql: str) -> list[Any]:
    found = list((home / "index").glob("*.db")) if home.exists() else []
    if not found:
        return []
    with closing(sqlite3.connect(found[0], timeout=HANG_S)) as conn:
        try:
            return conn.execute(sql).fetchall()
        except sqlite3.OperationalError:  # its tables don't exist yet
            return []


def stored(home: Path) -> dict[int, str]:
    return dict(rows(home, "select id, path from files"))


@contextmanager
def stopped_after(process: Warm, come: Callable[[], bool], sent: int) -> Generator[None]:
    try:
        until(lambda: come() or process.poll() is not None, "the first batch")
        assert process.poll() is None
        process.send_signal(sent)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def content(home: Path) -> list[Any]:
    sql = "select path, start, end, name, code from chunks join files on files.id = chunks.file"
    return sorted(rows(home, sql))


SEARCH = ("run", "search", "answer_123_3", "--limit", "3", "--json")


def test_a_killed_run_is_resumed_to_its_end(work: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    process = start(work, home, *SEARCH)
    with stopped_after(process, lambda: bool(stored(home)), signal.SIGKILL):
        process.ends()
    before = stored(home)
    assert len(before) < FILES, "it was killed on its way"
    resumed = ended(start(work, home, "resume", "latest", "-o", "json"))
    assert resumed["index"]["state"] == "indexed"
    assert "def answer_123_3" in resumed["results"][0]["code"]
    after = stored(home)
    assert (len(after), before.items() <= after.items()) == (FILES, True), "what was stored is kept"
    assert rows(home, "pragma integrity_check") == [("ok",)]
    undisturbed = tmp_path / "undisturbed"
    assert ended(start(work, undisturbed, *SEARCH))["results"] == resumed["results"]
    assert content(home) == content(undisturbed)


def test_two_processes_search_while_one_indexes(work: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    indexing = start(work, home, "run", "search", "--index", "only", "--json")
    with stopped_after(indexing, lambda: bool(stored(home)), signal.SIGSTOP):
        searching = [start(work, home, *SEARCH, "--index", "never") for _ in range(2)]
        for answer in map(ended, searching):
            assert (answer["index"]["state"], answer["index"]["added"]) == ("indexing", 0)
            assert answer["results"]
            assert len(stored(home)) < FILES
    assert ended(indexing)["index"] == {**ended(start(work, home, *SEARCH))["index"], "added": FILES}
