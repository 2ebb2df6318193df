"""conftest: a run that changed files with tools and shell commands, and the command line for it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import Done, Run
from scripted import says, tools

from interlock.engine import Options, Outcome, run_sync


def shell(line: str) -> dict[str, Any]:
    return says("run_shell_command", command=line)


def write(path: str, content: str) -> dict[str, Any]:
    return says("write_file", file_path=path, content=content)


MAKES = shell("mkdir d; echo 2 > d/b; chmod 600 d/b; ln -s ../a.txt d/l")
REPLIES: list[dict[str, Any]] = [
    tools(*write("a.txt", "one\n")["tool_calls"], *MAKES["tool_calls"]),
    says("read_file", file_path="a.txt"),
    shell("rm a.txt; mv d/b c; echo more >> own"),
    {"text": "done"},
]


class Desk:
    """One home, one workspace."""

    def __init__(self, folder: Path, home: Path, cli: Run) -> None:
        self.folder, self.home, self.cli = folder, home / "interlock", cli
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)

    def options(self, replies: list[dict[str, Any]], **more: Any) -> Options:
        script = self.folder / "script.json"
        script.write_text(json.dumps(replies))
        given = {"approval_mode": "yolo", "model": f"script:{script}", "workspace": self.work, **more}
        return Options(home=self.home, env={"PATH": "/usr/bin:/bin"}, **given)

    def run(self, replies: list[dict[str, Any]] = REPLIES, **more: Any) -> Outcome:
        return run_sync("main", {"prompt": "Do it."}, options=self.options(replies, **more))

    def clear(self) -> None:
        """Remove all that is in the workspace."""
        for path in self.work.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def __call__(self, *arguments: str) -> Done:
        return self.cli(*arguments)


@pytest.fixture
def desk(tmp_path: Path, home: Path, run: Run) -> Desk:
    return Desk(tmp_path, home, run)
