"""commands: runs a command line in this process or another, and returns its result."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
import warm

from interlock.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Run(Protocol):
    def __call__(self, *arguments: str, stdin: str = "") -> Done: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call `main(…)` in `tmp_path/work`, without a terminal. A file may extend it: `def run(run, …)`."""
    workspace, given = tmp_path / "work", tmp_path / "stdin"
    workspace.mkdir(exist_ok=True)
    monkeypatch.chdir(workspace)

    def call(*arguments: str, stdin: str = "") -> Done:
        given.write_text(stdin)
        with given.open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            code = main(arguments)
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return call


ENTRY = (sys.executable, "-P", "-c", "import sys; from interlock.cli.main import main; sys.exit(main())")
Ended = subprocess.CompletedProcess[str]


def execute(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Ended:
    """Run in a separate process without a terminal."""
    return warm.run(arguments, cwd=folder, env={**os.environ, **(env or {})})


def python(program: str, folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """What a program prints that an interpreter of its own runs in a folder, with the environment of nobody."""
    own = {"HOME": str(folder), "INTERLOCK_HOME": str(folder / "state"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-P", "-c", program, *arguments]
    ended = subprocess.run(command, cwd=folder, env={**own, **(env or {})}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def one_call(tool: str, **args: Any) -> list[str]:
    """The command line of a batch with one call."""
    call = {"id": "1", "name": tool, "args": args}
    return ["run", "tools", "--input", json.dumps({"calls": [call], "protocol": "native"})]


def response(ended: Ended) -> dict[str, Any]:
    """That call's response."""
    assert ended.stdout, ended.stderr
    return json.loads(ended.stdout)["responses"][0]
