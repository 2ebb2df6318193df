"""Directories and files are swapped for links while every file tool works on them: right after each check, and, in
sweeps, constantly by another process."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from escapes.desk import SECRET, Desk

from interlock.services.files.workspace import FolderWorkspace
from interlock.state.calls import ToolResult

SWAPPER = Path(__file__).parents[1] / "escapes" / "swapper.py"
NAMES = ("top", "a/b/c", "flat")
"""Directories that are swapped, that are below a swapped one, or that contain a swapped file."""


@pytest.fixture
def still(tmp_path: Path) -> Desk:
    """The same names inside and outside, so that following a link is always noticed."""
    made = tmp_path.resolve()
    for name in ("outside/only-outside", "outside/b/c", "outside/c"):
        (made / name).mkdir(parents=True)
    for name in ("outside/b/c/secret.txt", "outside/c/secret.txt", "outside/only-outside/x.txt"):
        (made / name).write_text(f"{SECRET}\n")
    desk = Desk(made)
    for name in NAMES:
        (desk.root / name).mkdir(parents=True)
        (desk.root / name / "secret.txt").write_text("inside\n")
    return desk


@pytest.fixture
def desk(still: Desk) -> Iterator[Desk]:
    argv = [sys.executable, "-I", "-S", str(SWAPPER), str(still.root), str(still.outside)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        yield still
        assert swapper.poll() is None, "it stopped swapping"
        swapper.kill()


def play(
    desk: Desk, rounds: int, calls: Callable[[int, str], Iterator[tuple[str, ToolResult]]]
) -> Counter[str]:
    """How often each tool succeeded. Nothing it returns is from outside, and outside nothing changes."""
    done: Counter[str] = Counter()
    for turn in range(rounds):
        for name in NAMES:
            for tool, result in calls(turn, name):
                assert SECRET not in result.content, tool
                assert "only-outside" not in result.content, tool
                done[tool] += result.status == "success"
    assert desk.snapshot() == desk.before
    return done


ROUNDS = 25


@pytest.mark.sweep
def test_no_write_leaves_the_workspace(desk: Desk) -> None:
    def calls(turn: int, name: str) -> Iterator[tuple[str, ToolResult]]:
        path = f"{name}/secret.txt"
        yield "write_file", desk.call("write_file", file_path=path, content=f"inside {turn}\n")
        yield "replace", desk.call("replace", file_path=path, old_string="inside", new_string="still inside")
        yield "new", desk.call("write_file", file_path=f"{name}/new/{turn}/x", content="new")

    done = play(desk, ROUNDS, calls)
    assert min(done[tool] for tool in ("write_file", "replace", "new")) > ROUNDS // 5, done


@pytest.mark.sweep
def test_no_read_leaves_the_workspace(desk: Desk) -> None:
    def calls(turn: int, name: str) -> Iterator[tuple[str, ToolResult]]:
        yield "read_file", desk.call("read_file", file_path=f"{name}/secret.txt")
        yield "missing", desk.call("read_file", file_path=f"{name}/only-outsid")
        yield "read_many_files", desk.call("read_many_files", include=[f"{name}/**", name])
        yield "list_directory", desk.call("list_directory", dir_path=name)
        yield "glob", desk.call("glob", pattern="**", dir_path="." if turn % 2 else name)

    done = play(desk, ROUNDS, calls)
    assert (
        min(done[tool] for tool in ("read_file", "read_many_files", "list_directory", "glob")) > ROUNDS // 5
    ), done


@pytest.mark.sweep
def test_no_search_leaves_the_workspace(desk: Desk) -> None:
    def calls(turn: int, name: str) -> Iterator[tuple[str, ToolResult]]:
        for only_names in (True, False):
            where = "." if turn % 2 else name
            found = desk.call("grep_search", pattern="outside|inside", dir_path=where, names_only=only_names)
            yield "grep_search", found

    assert play(desk, 4, calls)["grep_search"] > 10


class Hasty(FolderWorkspace):
    """Swaps a checked path for a link right after each check, and back right before the next."""

    def __init__(self, desk: Desk, swapped: str, target: str) -> None:
        super().__init__(desk.root)
        self._here, self._target = desk.root / swapped, desk.outside / target
        self._away = self._here.with_name("away")

    def resolve_readable(self, path: str) -> Path:
        return self._between(super().resolve_readable, path)

    def resolve_writable(self, path: str) -> Path:
        return self._between(super().resolve_writable, path)

    def _between(self, check: Callable[[str], Path], path: str) -> Path:
        if self._away.exists():
            self._here.unlink()
            self._away.rename(self._here)
        checked = check(path)
        self._here.rename(self._away)
        self._here.symlink_to(self._target)
        return checked


@pytest.mark.parametrize(("swapped", "to"), [("top", "."), ("a/b", "b"), ("flat/secret.txt", "secret.txt")])
@pytest.mark.parametrize(
    "call",
    [
        ("read_file", {"file_path": "NAME/secret.txt"}),
        ("read_many_files", {"include": ["NAME"]}),
        ("list_directory", {"dir_path": "NAME"}),
        ("glob", {"pattern": "*", "dir_path": "NAME"}),
        ("grep_search", {"pattern": "e", "dir_path": "NAME"}),
        ("write_file", {"file_path": "NAME/secret.txt", "content": "x"}),
        ("write_file", {"file_path": "NAME/new/x", "content": "x"}),
        ("replace", {"file_path": "NAME/secret.txt", "old_string": "inside", "new_string": "x"}),
    ],
    ids=lambda call: call[0],
)
def test_a_link_put_there_right_after_the_check_leads_nowhere(
    still: Desk, swapped: str, to: str, call: tuple[str, dict[str, Any]]
) -> None:
    name = next(n for n in NAMES if f"{n}/secret.txt".startswith(swapped))
    tool, args = call
    given = json.loads(json.dumps(args).replace("NAME", name))
    result = still.in_workspace(Hasty(still, swapped, to)).run(tool, **given)
    assert SECRET not in result.content
    assert "only-outside" not in result.content
    assert still.snapshot() == still.before
