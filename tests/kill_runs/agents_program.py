"""agents_program: kills a parent with three running sub-agents, at random moments or at every commit and effect.

Prints one JSON object, like `program`.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs.agents_scene import AGENT_REPLIES, WORKERS, AgentsEnding, agents_ending
from kill_runs.moments import Moments
from kill_runs.program import child, fresh, to_the_end, wait
from kill_runs.scene import Scene

Disturb = Callable[[int], tuple[Callable[[], None], float | None]]


def nothing() -> None:
    """An undisturbed child."""


def undisturbed(folder: Path) -> tuple[AgentsEnding, float]:
    scene = fresh(folder, AGENT_REPLIES)
    started = time.monotonic()
    to_the_end(scene, lambda _: (nothing, None))
    found = agents_ending(scene)
    if found.effects != WORKERS or found.status != "done" or found.again:
        raise SystemExit(json.dumps({"differ": [f"the undisturbed run: {found}"]}))
    return found, time.monotonic() - started


def random_kills(folder: Path, count: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    expected, duration = undisturbed(folder)
    kills = runs = asked = 0
    differ: list[str] = []
    while kills < count:
        scene = fresh(folder, AGENT_REPLIES)
        planned = rng.randint(1, 5)

        def disturb(attempt: int, planned: int = planned) -> tuple[Callable[[], None], float | None]:
            return nothing, (rng.uniform(0, duration / 2) if attempt < planned else None)

        kills += to_the_end(scene, disturb)
        runs += 1
        found = agents_ending(scene)
        asked += found.asked
        differ += [f"run {runs}: {line}" for line in found.differences(expected)]
    return {"seed": seed, "runs": runs, "kills": kills, "asked": asked, "differ": differ}


def every_moment(folder: Path, first: int, stride: int) -> dict[str, Any]:
    """Of each process of the run: what came before it is taken from a copy."""
    expected, _ = undisturbed(folder)
    counts = counted(folder)
    places = [(process, n) for process, total in enumerate(counts) for n in range(1, total + 1)]
    differ: list[str] = []
    kills = asked = 0
    for process, moment in places[first::stride]:
        shutil.rmtree(folder)
        shutil.copytree(before(folder, process), folder, symlinks=True)
        scene = Scene(folder, AGENT_REPLIES)

        def disturb(attempt: int, moment: int = moment, scene: Scene = scene) -> Any:
            return nothing if attempt else Moments(scene.folder / "moment").kill_at(moment), None

        kills += to_the_end(scene, disturb)
        found = agents_ending(scene)
        asked += found.asked
        where = (folder / "moment").read_text() if (folder / "moment").exists() else "?"
        differ += [f"process {process}, moment {moment} ({where}): {x}" for x in found.differences(expected)]
    return {"moments": len(places), "kills": kills, "asked": asked, "differ": differ}


def before(folder: Path, process: int) -> Path:
    return folder.with_name(f"before-{process}")


def counted(folder: Path) -> list[int]:
    """Moments in each process of an undisturbed run; agents side by side may shift them by a few."""
    scene = fresh(folder, AGENT_REPLIES)
    counts: list[int] = []
    while not counts or scene.outcome()["status"] == "waiting":
        shutil.copytree(folder, before(folder, len(counts)), symlinks=True)
        if status := wait(child(scene, Moments(folder / "count").count)):
            raise SystemExit(json.dumps({"differ": [f"counting failed with {status}"]}))
        counts.append(int((folder / "count").read_text()))
        (folder / "count").unlink()
    return counts


def main() -> None:
    kind, first, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "scene"
        work = random_kills if kind == "random" else every_moment
        print(json.dumps(work(folder, first, second)))


if __name__ == "__main__":
    main()
