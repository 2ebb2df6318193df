"""travel: what going back costs: looking into a run of 1,000 steps, keeping and restoring a workspace of 10,000 files.

`python benchmarks/travel.py`: medians of five, wall and CPU time of this process, in milliseconds. The limits (issue
15): history 300, show --at 200, a fork with files 1,000, a turn that changes nothing 5, one that does 60.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from interlock.engine import Options, run_sync
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.snapshots.restore import apply_restore, plan_restore
from interlock.services.snapshots.snapshots import WorkspaceSnapshots
from interlock.state.settings import SnapshotSettings

FILES, TURNS = 10_000, 500
COMMAND = Path(sys.executable).with_name("interlock")
REF = "refs/runs/bench"


def tell(what: str, do: Callable[[], Any], before: Callable[[], Any] = lambda: None, times: int = 5) -> None:
    walls, cpus = list[float](), list[float]()
    for _ in range(times):
        before()
        wall, cpu = time.perf_counter(), os.times()
        do()
        walls.append(time.perf_counter() - wall)
        cpus.append(sum(os.times()[:4]) - sum(cpu[:4]))
    print(
        f"{what:<44} {statistics.median(walls) * 1e3:8.1f} ms wall {statistics.median(cpus) * 1e3:8.1f} ms CPU"
    )


def fill(folder: Path) -> None:
    rng = random.Random(1)
    for number in range(FILES):
        file = folder / f"package{number % 25}" / f"module{number // 25 % 20}" / f"file{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(rng.randbytes(rng.randint(100, 3000)).hex().encode())


def files(folder: Path) -> None:
    work = folder / "work"
    fill(work)
    time.sleep(0.1)
    shots = WorkspaceSnapshots(folder / "home", FolderWorkspace(work), SnapshotSettings.model_validate({}))
    tell("first snapshot of 10,000 files", lambda: shots.take_snapshot(REF), times=1)
    time.sleep(0.1)
    edited = work / "package1" / "module1" / "file26.py"
    tell("a look that finds nothing changed", lambda: shots.take_snapshot(REF))

    def turn(changed: str) -> None:
        shots.take_snapshot(REF)
        with edited.open("a") as file:
            file.write("x")
        shots.take_snapshot(REF, changed)

    tell("a turn that edits a file", lambda: turn(str(edited.relative_to(work))))
    tell("a turn whose command changes a file", lambda: turn(""))
    repository = shots.repository.folder
    made = (folder / f"new{number}" for number in count())

    def fork() -> None:
        then, new = shots.repository.read_contents(shots.take_snapshot(REF)), next(made)
        new.mkdir()
        apply_restore(plan_restore(then._replace(files={}, folders={}), then, new, repository), durable=False)

    def copy() -> None:
        subprocess.run(["cp", "-a", work, next(made)], check=True)

    # Nothing is removed before the end: ext4 tries the inodes freed in the last minute one by one.
    tell("a fork's 10,000 files", fork)
    tell("the same by cp -a, for comparison", copy)
    shots.save_and_close()
    run = run_in(folder, work, [{"tool_calls": [EDIT]}, {"text": "done"}])
    tell("the command fork, with 10,000 files", lambda: command(folder, work, "fork", run, "--at", "4"))


EDIT = {"name": "write_file", "args": {"file_path": "new.py", "content": "x"}}


def run_in(folder: Path, work: Path, replies: list[dict[str, Any]]) -> str:
    script = folder / "script.json"
    script.write_text(json.dumps(replies))
    options = Options(
        home=folder / "home",
        workspace=work,
        model=f"script:{script}",
        approval_mode="yolo",
        env={},
        limits={"max_turns": TURNS + 10},
        overrides={"model": {"disableLoopDetection": True}},
    )
    return run_sync("main", {"prompt": "Go."}, options=options).run


def command(folder: Path, work: Path, *given: str) -> None:
    env = {**os.environ, "INTERLOCK_HOME": str(folder / "home")}
    subprocess.run([COMMAND, *given], env=env, cwd=work, check=True, stdout=subprocess.DEVNULL)


def long_run(folder: Path) -> None:
    work = folder / "short"
    work.mkdir()
    replies = [{"tool_calls": [{"name": "list_directory", "args": {"dir_path": "."}}]}] * TURNS + [
        {"text": "done"}
    ]
    run = run_in(folder, work, replies)
    ask = partial(command, folder, work)
    tell("history of 1,000 steps", lambda: ask("history", run))
    tell("show --at 500", lambda: ask("show", run, "--at", "500"))
    tell("fork --at 500", lambda: ask("fork", run, "--at", "500"))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        files(Path(name))
        long_run(Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
