"""conftest: a run that changed files with tools and shell commands, and the command line for it, on each database."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from commands import Done, Run
from databases import fresh_database

from interlock.engine import Options, Outcome, run_sync
from interlock.engine.store import state_home

REPLIES: list[dict[str, Any]] = [
    {
        "tool_calls": [
            {"name": "write_file", "args": {"file_path": "a.txt", "content": "one\n"}},
            {
                "name": "run_shell_command",
                "args": {"command": "mkdir d; echo 2 > d/b; chmod 600 d/b; ln -s ../a.txt d/l"},
            },
        ]
    },
    {"tool_calls": [{"name": "read_file", "args": {"file_path": "a.txt"}}]},
    {
        "tool_calls": [
            {"name": "run_shell_command", "args": {"command": "rm a.txt; mv d/b c; echo more >> own"}}
        ]
    },
    {"text": "done"},
]


def shell(line: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "run_shell_command", "args": {"command": line}}]}


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "write_file", "args": {"file_path": path, "content": content}}]}


class Desk:
    """One home, one workspace."""

    def __init__(self, folder: Path, home: Path, cli: Run) -> None:
        self.folder, self.home, self.cli = folder, home, cli
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)

    def options(self, replies: list[dict[str, Any]], **more: Any) -> Options:
        script = self.folder / "script.json"
        script.write_text(json.dumps(replies))
        given = {"approval_mode": "yolo", "model": f"script:{script}", "workspace": self.work, **more}
        return Options(home=self.home, env={"PATH": "/usr/bin:/bin"}, **given)

    def needs_file(self) -> None:
        """Skip a test that looks into SQLite's file."""
        if os.environ.get("INTERLOCK_STORE"):
            pytest.skip("it looks into the file")

    def run(self, replies: list[dict[str, Any]] = REPLIES, **more: Any) -> Outcome:
        return run_sync("main", {"prompt": "Do it."}, options=self.options(replies, **more))

    def __call__(self, *arguments: str) -> Done:
        return self.cli(*arguments)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.sweep)])
def desk(
    request: pytest.FixtureRequest, tmp_path: Path, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    if request.param == "postgresql":
        monkeypatch.setenv("INTERLOCK_STORE", fresh_database())
    return Desk(tmp_path, state_home(), run)
