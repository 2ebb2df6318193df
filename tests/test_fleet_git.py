"""Runs on git repositories: cloned by workers, taken over with their files, delivered."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Run, run
from patience import until
from test_fleet import Worker, fleet

__all__ = ["fleet", "run"]

MAKE = "echo made > made.txt; chmod 750 made.txt; ln -s made.txt link; mkdir -p deep/empty; rm old.txt; touch x.o"
Begin = Callable[..., str]
CALL: dict[str, Any] = {"name": "run_shell_command"}
SCRIPT = [
    {"tool_calls": [{**CALL, "args": {"command": MAKE}}]},
    {"tool_calls": [{**CALL, "args": {"command": 'echo once >> "$COUNT"; sleep 0.3'}}]},
    {"tool_calls": [{**CALL, "args": {"command": "echo more >> made.txt; ls -A"}}]},
    {"text": "Made it."},
]


def git(*arguments: str, at: Path) -> str:
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    done = subprocess.run(("git", *own, *arguments), cwd=at, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with a tracked, an ignored and an old file."""
    work = tmp_path / "source"
    work.mkdir()
    git("init", "-q", "-b", "main", at=work)
    (work / ".gitignore").write_text("*.o\n")
    (work / "old.txt").write_text("old\n")
    (work / "a.txt").write_text("one\n")
    git("add", ".", at=work)
    git("commit", "-qm", "first", at=work)
    git("clone", "-q", "--bare", str(work), str(tmp_path / "origin.git"), at=tmp_path)
    return tmp_path / "origin.git"


@pytest.fixture
def settings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker's own settings: a scripted model, and the folder that runs may clone from."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COUNT", str(tmp_path / "count.txt"))
    (script := tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    file = home / ".interlock" / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    model = {"name": f"script:{script}"}
    file.write_text(json.dumps({"model": model, "fleet": {"localRepositories": [str(tmp_path)]}}))
    return file


@pytest.fixture
def begin(fleet: Run, settings: Path, origin: Path) -> Begin:
    def start(*flags: str) -> str:
        done = fleet("run", "main", "--detach", "--repo", f"file://{origin}@main", "-y", *flags, "make it")
        assert done.code == 0, done.err
        return done.out.strip()

    return start


def test_a_host_that_takes_over_has_the_same_files_and_no_effect_is_doubled(
    fleet: Run, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, count = begin(), tmp_path / "count.txt"
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    first = Worker("--workspaces", str(one))
    until(count.exists)
    was = _tree(one / name)
    first.end(signal.SIGKILL)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-state"))
    second = Worker("--workspaces", str(two))
    try:
        assert fleet("wait", name).code == 75
        assert _tree(two / name) == {path: was[path] for path in was if path != "x.o"}
        (request,) = fleet("approvals", "--json").json
        assert request["kind"] == "outcome"
        fleet("resume", name, "--answer", f"{request['number']}=skip")
        assert fleet("wait", name).code == 0
    finally:
        assert second.end() == 0
    assert count.read_text() == "once\n"
    assert fleet("show", name, "--verify").code == 0
    assert "moved to another host" in fleet("export", name, "--format", "markdown").out


def _tree(folder: Path) -> dict[str, object]:
    """Path → mode, and bytes or target, of what isn't git's own."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if ".git" not in path.relative_to(folder).parts:
            what = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
            found[str(path.relative_to(folder))] = (path.lstat().st_mode, what)
    return found
