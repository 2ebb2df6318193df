"""program: kills a run at random moments, or at every commit and effect, and compares its end with an undisturbed one.

Children are forked from this warm parent. Prints one JSON object: seed, counts, and every difference.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs.compare import Ending, ending, store_matches
from kill_runs.moments import Moments
from kill_runs.scene import REPLIES, SHORT, Scene

from interlock.engine import Decision, Options, resume_sync, run_sync
from interlock.engine import runner as _warm  # noqa: F401 - children shouldn't pay for imports
from interlock.graphs import pipeline

RUN = "killtest"
WORK_S = 20.0
"""Seconds after which a child counts as hung."""


pipeline("main").compile()  # nor for the declaration of the graphs


def drive(scene: Scene) -> None:
    """One process's work: start or resume, approve everything, answer unknown outcomes by looking."""
    options: Options = scene.options
    if not scene.exists():
        scene.save(run_sync("main", {"prompt": "Do it."}, options=options, run_id=RUN))
        return
    decisions = [decision(scene, name, request) for name, request in scene.waiting()]
    scene.save(resume_sync(RUN, decisions=decisions, options=options))


def decision(scene: Scene, name: str, request: dict[str, Any]) -> Decision:
    if request["kind"] == "approval":
        return Decision(name, "proceed_once")
    word = request["call"]["args"]["command"].split()[1]
    happened = word in scene.effects()
    return Decision(name, "reject" if happened else "proceed_once", text="skip" if happened else "redo")


def child(scene: Scene, before: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        before()
        drive(scene)
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(9)


def to_the_end(scene: Scene, disturb: Callable[[int], tuple[Callable[[], None], float | None]]) -> int:
    """Drive until the run is over; `disturb(n)` says what the n-th child suffers. The number of kills."""
    kills = 0
    for attempt in range(400):
        before, kill_after = disturb(attempt)
        pid = child(scene, before)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(pid, signal.SIGKILL)
        status = wait(pid)
        if os.WIFSIGNALED(status):
            kills += 1
            problem = store_matches(scene)
            if problem:
                raise SystemExit(json.dumps({"differ": [problem], "at": attempt}))
            continue
        if os.WEXITSTATUS(status):
            raise SystemExit(json.dumps({"differ": [f"child failed with {status}"], "at": attempt}))
        if scene.outcome()["status"] != "waiting":
            return kills
    raise SystemExit(json.dumps({"differ": ["the run never ended"]}))


def wait(pid: int) -> int:
    deadline = time.monotonic() + WORK_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    raise SystemExit(json.dumps({"differ": [f"a child hung for {WORK_S:.0f} s"]}))


def fresh(folder: Path, replies: Sequence[dict[str, Any]] = REPLIES) -> Scene:
    shutil.rmtree(folder, ignore_errors=True)
    scene = Scene(folder, tuple(replies))
    scene.prepare()
    return scene


def undisturbed(folder: Path, replies: Sequence[dict[str, Any]] = REPLIES) -> tuple[Ending, float]:
    scene = fresh(folder, replies)
    started = time.monotonic()
    to_the_end(scene, lambda _: (lambda: None, None))
    found = ending(scene)
    if found.effects != scene.expected_effects() or found.status != "done":
        raise SystemExit(
            json.dumps({"differ": [f"the undisturbed run ended as {found.status}, {found.effects}"]})
        )
    return found, time.monotonic() - started


def random_kills(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Runs, each killed a few times at moments spread over the whole run, until `count` kills were made."""
    rng = random.Random(seed)
    expected, duration = undisturbed(folder)
    kills = runs = asked = 0
    differ: list[str] = []
    while kills < count:
        scene = fresh(folder)
        planned = rng.randint(1, 6)

        def disturb(attempt: int, planned: int = planned) -> tuple[Callable[[], None], float | None]:
            return (lambda: None), (rng.uniform(0, duration / 2) if attempt < planned else None)

        kills += to_the_end(scene, disturb)
        runs += 1
        found = ending(scene)
        asked += found.asked
        differ += [f"run {runs}: {line}" for line in found.differences(expected)]
    return {"seed": seed, "runs": runs, "kills": kills, "asked": asked, "differ": differ}


def every_moment(folder: Path, first: int, stride: int) -> dict[str, Any]:
    """A kill before and after every commit and every effect, one at a time."""
    expected, _ = undisturbed(folder, SHORT)
    counts = _counted(folder)
    differ: list[str] = []
    kills = asked = 0
    places = [(process, n) for process, total in enumerate(counts) for n in range(1, total + 1)]
    for process, moment in places[first::stride]:
        # The processes before this one were undisturbed: what they left is taken from a copy.
        shutil.rmtree(folder)
        shutil.copytree(_before(folder, process), folder, symlinks=True)
        scene = Scene(folder, tuple(SHORT))

        def disturb(attempt: int, moment: int = moment, scene: Scene = scene) -> Any:
            return (lambda: None) if attempt else Moments(scene.folder / "moment").kill_at(moment), None

        made = to_the_end(scene, disturb)
        kills += made
        found = ending(scene)
        asked += found.asked
        where = (scene.folder / "moment").read_text() if (scene.folder / "moment").exists() else "?"
        if made != 1:
            differ.append(f"process {process}, moment {moment}: {made} kills")
        differ += [
            f"process {process}, moment {moment} ({where}): {line}" for line in found.differences(expected)
        ]
    return {"moments": len(places), "kills": kills, "asked": asked, "differ": differ}


def _before(folder: Path, process: int) -> Path:
    return folder.with_name(f"before-{process}")


def _counted(folder: Path) -> list[int]:
    """The moments in each process of an undisturbed run; the scene before each process is kept."""
    scene = fresh(folder, SHORT)
    counts: list[int] = []
    while not counts or scene.outcome()["status"] == "waiting":
        shutil.copytree(folder, _before(folder, len(counts)), symlinks=True)
        status = wait(child(scene, Moments(folder / "count").count))
        if status:
            raise SystemExit(json.dumps({"differ": [f"counting failed with {status}"]}))
        counts.append(int((folder / "count").read_text()))
        (folder / "count").unlink()
    return counts


def main() -> None:
    kind, first, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "scene"
        told = (
            random_kills(folder, first, second) if kind == "random" else every_moment(folder, first, second)
        )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
