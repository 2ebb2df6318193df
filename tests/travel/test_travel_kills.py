"""Killed in a fork, a rewind or an undo, the files are as before or as after; repeating the command completes it."""

import os
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from folders import put
from kill_runs.started import seed
from patience import HANG_S
from travel.conftest import Desk, shell
from travel.trees import Tree, tree_of
from warm import Warm

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.snapshots.snapshots import WorkspaceSnapshots
from interlock.state.settings import SnapshotSettings

FILES = 20
MAKE = f"for i in $(seq {FILES}); do echo $i > file$i; ln -s file$i link$i; done; chmod 600 file1; rm old"
REPLIES = [shell(MAKE), {"text": "done"}]


def killed(*command: str, after_s: float, work: Path) -> float:
    """Run a command, killing it after `after_s`; returns the seconds it ran."""
    started = time.monotonic()
    process = Warm(command, cwd=work, env=os.environ, stderr=subprocess.DEVNULL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    process.kill()
    process.wait()
    return time.monotonic() - started


def settled(work: Path, *allowed: Tree) -> Tree:
    """Wait until the folder is as allowed: a separate process completes what was begun, killed or not."""
    until, tree = time.monotonic() + HANG_S, Tree()
    while tree not in allowed and time.monotonic() < until:
        time.sleep(0.05)
        with suppress(FileNotFoundError):  # it removes files while they are examined
            tree = tree_of(work)
    assert tree in allowed, sorted(set(tree) ^ set(allowed[0]))
    return tree


def last_step(desk: Desk, run: str) -> str:
    return str(desk("history", run, "--json").json["checkpoints"][-1]["step"])


def kills(few: int, many: int) -> int:
    """KILL_EVERY: many of them."""
    return many if "KILL_EVERY" in os.environ else few


@pytest.mark.parametrize(
    ("command", "times"),
    [
        (["undo", "RUN"], 1),
        pytest.param(["undo", "RUN"], kills(3, 25), marks=pytest.mark.sweep),
        pytest.param(["rewind", "RUN", "--at", "2", "--yes"], kills(3, 25), marks=pytest.mark.sweep),
    ],
)
def test_a_kill_leaves_the_files_before_or_after(desk: Desk, command: list[str], times: int) -> None:
    """Kill the command at moments spread over its duration; each time from the run's end."""
    (desk.work / "old").write_text("old")
    before_run = tree_of(desk.work)
    run = desk.run(REPLIES).run
    after_run, rng = tree_of(desk.work), random.Random(seed(15))
    named = [run if word == "RUN" else word for word in command]
    whole = 0.0
    for number in range(times + 1):
        took = killed(*named, after_s=rng.uniform(0.01, whole) if number else HANG_S, work=desk.work)
        whole = whole or took
        settled(desk.work, before_run, after_run)
        again = desk(*named)
        assert again.code == 0, again.err
        assert tree_of(desk.work) == before_run
        assert not list(desk.home.glob("snapshots/*/interlock-pending.json"))
        resumed = desk("rewind", run, "--at", last_step(desk, run), "--yes")
        assert resumed.code == 0, resumed.err
        assert tree_of(desk.work) == after_run


@pytest.mark.parametrize(
    ("place", "times"),
    [
        ([], 2),
        pytest.param([], kills(5, 25), marks=pytest.mark.sweep),
        pytest.param(["--workspace", "../new"], kills(5, 25), marks=pytest.mark.sweep),
    ],
)
def test_a_killed_fork_is_made_by_the_same_command_again(desk: Desk, place: list[str], times: int) -> None:
    run = desk.run(REPLIES).run
    tree, rng = tree_of(desk.work), random.Random(seed(16))
    command = ("fork", run, "--at", last_step(desk, run), *place)
    kept = {path.name for path in desk.folder.iterdir()}

    def folders() -> list[Path]:
        return [p for p in desk.folder.iterdir() if p.name not in kept and p.name[0] != "." and p.is_dir()]

    for _ in range(times):
        killed(*command, after_s=rng.uniform(0.01, 0.4), work=desk.work)
        assert all(tree_of(folder) == tree for folder in folders()), "no part of a folder is left"
    again = desk(*command)
    assert again.code == 0 or "isn't empty" in again.err
    assert folders() and not list(desk.folder.glob(".interlock-fork-*"))
    forked = {r["workspace"] for r in desk("runs", "--json").json}
    assert forked == {str(p.resolve()) for p in (desk.work, *folders())}


def test_a_fork_that_was_cut_off_before_its_folder_is_finished(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = desk.run(REPLIES).run
    command = ("fork", run, "--at", last_step(desk, run))

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", cut)
        assert desk(*command).code == 130
    (begun,) = [r for r in desk("runs", "--json").json if r["run"] != run]
    assert not Path(begun["workspace"]).exists()
    assert desk(*command, "--json").json["run"] == begun["run"]
    assert tree_of(Path(begun["workspace"])) == tree_of(desk.work)


def test_what_a_power_cut_broke_off_is_finished_by_the_next_command(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.services.snapshots import restore

    (desk.work / "old").write_text("old")
    before = tree_of(desk.work)
    run = desk.run(REPLIES).run
    monkeypatch.setattr(
        restore, "finish_pending_restore", lambda folder: False
    )  # the plan is written, and nothing else
    assert desk("undo", run).code == 0
    assert tree_of(desk.work) != before
    monkeypatch.undo()
    monkeypatch.setenv("INTERLOCK_HOME", str(desk.home))
    assert desk("undo", run).code == 0
    assert tree_of(desk.work) == before


TAKING = """
import sys
from pathlib import Path
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.snapshots import snapshots as repository
from interlock.services.snapshots.snapshots import WorkspaceSnapshots
from interlock.state.settings import SnapshotSettings

folder = Path(sys.argv[1])
repository._MOST_LOOSE = -256  # it packs each time
print("ready", flush=True)
for number in range(10_000):
    shots = WorkspaceSnapshots(
        folder / "home", FolderWorkspace(folder / "work"), SnapshotSettings.model_validate({})
    )
    for file in range(3):
        (folder / "work" / f"{file}").write_text(f"{number} {file}")
        print(shots.take_snapshot("refs/runs/killed"), number, file, flush=True)
    shots.save_and_close()
"""


@pytest.mark.parametrize("times", [2, pytest.param(kills(10, 40), marks=pytest.mark.sweep)])
def test_a_kill_while_snapshots_are_taken_and_packed_loses_none(tmp_path: Path, times: int) -> None:
    """Each one reported is complete, and later ones can be taken."""
    folder, work, rng = tmp_path, tmp_path / "work", random.Random(seed(17))
    program = put(tmp_path / "taking.py", TAKING)
    work.mkdir()
    told: list[list[str]] = []
    for _ in range(times):
        process = Warm([str(folder)], cwd=folder, env=os.environ, stdout=subprocess.PIPE, program=program)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        told.append(process.stdout.readline().split())
        time.sleep(rng.uniform(0.01, 0.4))
        process.kill()
        told += [line.split() for line in process.ends()[1].splitlines() if line.count(" ") == 2]
    shots = WorkspaceSnapshots(folder / "home", FolderWorkspace(work), SnapshotSettings.model_validate({}))
    last = shots.repository.read_contents(shots.take_snapshot("refs/runs/killed"))
    texts = shots.repository.read_blobs([kept.blob for kept in last.files.values()])
    assert dict(zip(last.files, texts, strict=True)) == {p.name: p.read_bytes() for p in work.iterdir()}
    for commit, number, file in told:
        (text,) = shots.repository.read_blobs([shots.repository.read_contents(commit).files[file].blob])
        assert text.decode() == f"{number} {file}"
