"""An edit cut off at any of its commits is made once, with the same answer, when the run is resumed."""

import ctypes
import itertools
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interlock.services.files import filesystem
from interlock.services.files.calls import FileWriteCalls
from interlock.services.files.in_place import write_in_place
from interlock.services.toolset import BuiltinToolset
from interlock.testing import Stage, kill_everywhere

EDIT = {"file_path": "a.txt", "old_string": "two", "new_string": "2"}


def staged(folder: Path) -> Stage:
    return Stage(folder, files={"a.txt": "one\ntwo\n"}, given={"approval_mode": "auto_edit"})


@pytest.mark.parametrize(("every", "least"), [(2, 5), pytest.param(1, 10, marks=pytest.mark.sweep)])
def test_killed_at_commits_an_edit_is_made_once(every: int, least: int, tmp_path: Path) -> None:
    """Right before each commit, and in the sweeps also right after it: before the last one, the file is written."""
    assert kill_everywhere(staged, "edit", EDIT, tmp_path, every=every) >= least


class Cut(Exception):  # noqa: N818 - no error of ours: the process ends here
    """Simulates a kill: nothing after it in the process is done."""


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_file_that_somebody_else_writes_before_the_edit_does_is_left_alone(
    cut_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the run is interrupted, or between reading and writing."""
    stage = staged(tmp_path)
    file = stage.work / "a.txt"
    plan = FileWriteCalls.plan_change

    async def cut(*_: Any, **__: Any) -> None:
        raise Cut

    async def late(*args: Any, **kwargs: Any) -> Any:
        file.write_text("zero\none\ntwo\n")
        return await plan(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(BuiltinToolset, "run_call", cut) if cut_off else patch.setattr(
            FileWriteCalls, "plan_change", late
        )
        outcome = stage.run("edit", EDIT)
    if cut_off:
        file.write_text("zero\none\ntwo\n")
        outcome = stage.resume(outcome.run)
    assert outcome.output["error"]["code"] == "external_change"
    assert file.read_text() == "zero\none\ntwo\n"


def hard_linked(folder: Path) -> Stage:
    stage = staged(folder)
    if not (stage.work / "twin.txt").exists():
        (stage.work / "twin.txt").hardlink_to(stage.work / "a.txt")
    return stage


def twin_text(stage: Stage) -> str:
    return (stage.work / "twin.txt").read_text()


@pytest.mark.sweep
def test_killed_at_commits_an_edit_of_a_hard_linked_file_is_made_once(tmp_path: Path) -> None:
    assert kill_everywhere(hard_linked, "edit", EDIT, tmp_path, more=twin_text) >= 10


LONG = "one\ntwo\n" + "three\n" * 1000
GROWS, SHRINKS = {"new_string": "2" * 3000}, {"old_string": "two\n" + "three\n" * 900, "new_string": "2\n"}


def in_child(act: Callable[[], None]) -> int:
    """What a process of its own ends with."""
    if not (child := os.fork()):
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at_system_call(number: int) -> None:
    """Let this process be killed right before such a call of a write in place, or in the middle of what it writes; or
    right after the last one."""
    left, pwrite = itertools.count(number, -1), os.pwrite

    def kill_if_due(name: str = "", file: int = 0, data: bytes = b"", at: int = 0, *_: Any) -> None:
        if next(left) == 0:
            if name == "pwrite":
                pwrite(file, data[: len(data) // 2], at)
            os.kill(os.getpid(), signal.SIGKILL)

    def killing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            kill_if_due(name, *args)
            return real(*args, **kwargs)

        return call

    def write(*args: Any) -> None:
        real = {name: getattr(os, name) for name in _CALLS}
        for name in _CALLS:
            setattr(os, name, killing(name))
        write_in_place(*args)
        kill_if_due()
        for name, call in real.items():
            setattr(os, name, call)

    filesystem.write_in_place = write


_CALLS = ("mkdir", "open", "pwrite", "ftruncate", "fsync", "unlink", "rmdir")


def mount_over(stage: Stage) -> None:
    """Bind another file over the one that is edited, in this process's own mount namespace."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x20000):  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", stage.folder / "mounted", stage.work / "a.txt"], check=True)


def can_mount() -> bool:
    return os.getuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.sweep
@pytest.mark.parametrize(("mounted", "change"), [(False, GROWS), (True, SHRINKS)], ids=["hard link", "mount"])
def test_killed_at_any_system_call_a_write_in_place_is_made_once(
    mounted: bool, change: dict[str, str], tmp_path: Path
) -> None:
    if mounted and not can_mount():
        pytest.skip("needs root and mount namespaces")
    edit = {**EDIT, **change}
    expected = LONG.replace(edit["old_string"], edit["new_string"])

    def drive(stage: Stage, number: int | None = None) -> None:
        if mounted:
            mount_over(stage)
        if number is not None:
            kill_at_system_call(number)
        outcome = stage.resume("latest") if number is None else stage.run("edit", edit)
        assert outcome.output["status"] == "applied", outcome

    number = 0
    for number in range(200):
        stage = staged(tmp_path / str(number))
        file = stage.folder / "mounted" if mounted else stage.work / "a.txt"
        file.write_text(LONG)
        inode = file.stat().st_ino
        if not mounted:
            (stage.work / "twin.txt").hardlink_to(file)
        end = in_child(partial(drive, stage, number))
        if end:
            assert (end, in_child(partial(drive, stage))) == (-signal.SIGKILL, 0), f"killed at call {number}"
        assert (file.read_text(), file.stat().st_ino) == (expected, inode), f"killed at call {number}"
        if not end:
            break
    assert 10 < number < 199
