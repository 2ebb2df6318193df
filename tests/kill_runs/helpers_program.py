"""helpers_program: kills runs in which helper models work, and compares their ends with undisturbed ones.

`compressed FIRST STRIDE`: a kill at each commit and effect of a run that is summarised and compressed.
`session KILLS SEED`: one long session, killed at random. Prints one JSON object.
"""

import json
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs import program
from kill_runs.compare import Ending, ending
from kill_runs.helper_scenes import COMPRESSED, SESSION, HelperScene
from kill_runs.moments import Moments

from interlock.engine.snapshot import damage, dropped, state_at

program.WORK_S = 300.0


def fresh(folder: Path, replies: list[dict[str, Any]]) -> HelperScene:
    shutil.rmtree(folder, ignore_errors=True)
    scene = HelperScene(folder, tuple(replies))
    scene.prepare()
    return scene


def head(scene: HelperScene) -> str:
    """Names the whole conversation, what was dropped from it included."""
    return str(state_at(scene.folder / "home", program.RUN)["head"])


def differences(scene: HelperScene, expected: Ending, whole: str) -> list[str]:
    found = ending(scene)
    lines = found.differences(expected)
    if not found.asked and head(scene) != whole:
        lines.append("the chain, with what was dropped from it, is another one")
    return [*lines, *damage(scene.folder / "home", program.RUN)]


def crossed(scene: HelperScene) -> dict[str, int]:
    """What the session went through: chains that were left, steps by node, models that answered."""
    home = scene.folder / "home"
    conn = sqlite3.connect(scene.store)
    try:
        nodes = Counter(node for (node,) in conn.execute("select node from steps"))
        models = [m for (m,) in conn.execute("select distinct model from model_calls")]
        turns = conn.execute("select count(*) from model_calls where role = 'main'").fetchone()[0]
    finally:
        conn.close()
    masked = sum(
        m.text.startswith("<tool_output_masked>") for part in dropped(home, program.RUN) for m in part
    )
    return {
        "turns": turns,
        "models": len(models),
        "chains": len(dropped(home, program.RUN)),
        "masked": masked,
        **{name: nodes[name] for name in ("accept", "nudge", "continue", "summarize", "mask_tool_outputs")},
    }


def compressed(folder: Path, first: int, stride: int) -> dict[str, Any]:
    scene = fresh(folder, COMPRESSED)
    program.to_the_end(scene, lambda _: (lambda: None, None))
    expected, whole, went = ending(scene), head(scene), crossed(scene)
    counts = _counted(folder)
    places = [(process, n) for process, total in enumerate(counts) for n in range(1, total + 1)]
    kills = asked = 0
    differ: list[str] = []
    for process, moment in places[first::stride]:
        shutil.rmtree(folder)
        shutil.copytree(_before(folder, process), folder, symlinks=True)
        scene = HelperScene(folder, tuple(COMPRESSED))

        def disturb(attempt: int, moment: int = moment, scene: HelperScene = scene) -> Any:
            return (lambda: None) if attempt else Moments(scene.folder / "moment").kill_at(moment), None

        kills += program.to_the_end(scene, disturb)
        asked += ending(scene).asked
        differ += [
            f"process {process}, moment {moment}: {line}" for line in differences(scene, expected, whole)
        ]
    return {"moments": len(places), "kills": kills, "asked": asked, "differ": differ, **went}


def _before(folder: Path, process: int) -> Path:
    return folder.with_name(f"before-{process}")


def _counted(folder: Path) -> list[int]:
    scene = fresh(folder, COMPRESSED)
    counts: list[int] = []
    while not counts or scene.outcome()["status"] == "waiting":
        shutil.copytree(folder, _before(folder, len(counts)), symlinks=True)
        if status := program.wait(program.child(scene, Moments(folder / "count").count)):
            raise SystemExit(json.dumps({"differ": [f"counting failed with {status}"]}))
        counts.append(int((folder / "count").read_text()))
        (folder / "count").unlink()
    return counts


def session(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    scene = fresh(folder, SESSION)
    started = time.monotonic()
    program.to_the_end(scene, lambda _: (lambda: None, None))
    duration = time.monotonic() - started
    expected, whole, went = ending(scene), head(scene), crossed(scene)
    rng = random.Random(seed)
    scene = fresh(folder, SESSION)

    def disturb(attempt: int) -> Any:
        return (lambda: None), (rng.uniform(0, duration / kills) if attempt < 2 * kills else None)

    made = program.to_the_end(scene, disturb)
    again = crossed(scene)
    return {
        "seed": seed,
        "kills": made,
        "status": expected.status,
        "asked": ending(scene).asked,
        "differ": differences(scene, expected, whole),
        "undisturbed": went,
        "disturbed": again,
        "duration_s": round(duration, 1),
    }


def main() -> None:
    kind, first, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "scene"
        told = session(folder, first, second) if kind == "session" else compressed(folder, first, second)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
