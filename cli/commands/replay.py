"""replay: a run's graph once more, offline, from what was recorded; where it goes another way is named."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from interlock.cli.parsing import Parser, flag, number
from interlock.cli.render.output import Paint, elapsed, show_json
from interlock.engine.store.database import state_home


def parser() -> Parser:
    made = Parser(
        "replay",
        "RUN [--until STEP] [--json]",
        "Execute a run's graph once more from the replies, results and decisions that were recorded: offline, and\n"
        "without touching a file. Prints each step with the hash of its state, and the first that is another now, as\n"
        "after a change of a prompt or of a graph. Exit code 1 where there is one.",
        [
            ("interlock replay latest", ""),
            ("interlock replay 4k2 --until 7", "compare no further than step 7"),
        ],
    )
    made.run_flag()
    flag(made, "--until STEP", "a step of: interlock history RUN", type=number(int, -1))
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.engine.driver.drive import signals_held
    from interlock.engine.travel.replay import replay

    with signals_held():
        found = asyncio.run(replay(state_home(), args.run, args.until))
    if args.json:
        points = [{"step": p.step, "nodes": p.nodes, "state": p.state} for p in found.points]
        times = {"recorded_s": found.recorded_s, "replayed_s": found.replayed_s}
        show_json({"run": found.run, "steps": points, "divergence": found.divergence, **times})
        return 1 if found.divergence else 0
    paint = Paint(sys.stdout)
    differs = found.divergence["step"] if found.divergence else None
    for point in found.points:
        if differs is None or point.step < differs:
            paint.print(f"{point.step:>4}  {point.state[:12]}  {', '.join(point.nodes)}")
    if found.divergence is None:
        took = f"{elapsed(found.replayed_s)}, recorded {elapsed(found.recorded_s)}"
        paint.print(paint(f"The same to the end: {len(found.points)} states ({took}).", "green"))
        return 0
    for line in _told(found.divergence):
        paint.print(paint(line, "red"))
    return 1


def _told(found: Mapping[str, Any]) -> list[str]:
    was, now = (", ".join(map(str, found[side])) or "nothing" for side in ("recorded", "replayed"))
    lines = [f"Step {found['step']} is another: recorded {was}, replayed {now}."]
    if found["keys"]:
        lines.append(f"  changed in the state: {', '.join(map(str, found['keys']))}")
    lines += [f"  another request: {line}" for line in found.get("requests", ())]
    if found.get("error"):
        lines.append(f"  the replay ended with: {found['error']['message']}")
    return lines
