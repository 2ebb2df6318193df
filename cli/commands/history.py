"""history: every step of a run: node, time, what it changed, which way it went."""

import time

from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import elapsed, show_json, show_table
from interlock.engine.read.runs import Step, checkpoints, find_run, steps
from interlock.engine.store.database import state_home


def parser() -> Parser:
    made = Parser(
        "history",
        "RUN [--all] [--json]",
        "Every step of a run. STEP is what `show --at` and `diff` take.",
        [("interlock history latest", ""), ("interlock history latest --all", "with the steps inside each")],
    )
    made.run_flag()
    flag(made, "--all", "the steps of graphs inside, too")
    flag(made, "--json", "for programs; always all of them")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    home = state_home()
    run = find_run(home, args.run)
    taken = [s for s in steps(home, run.run) if not s.node.startswith("__")]
    if args.json:
        points = [c._asdict() for c in checkpoints(home, run.run)]
        show_json({"run": run.run, "checkpoints": points, "steps": [s._asdict() for s in taken]})
        return 0
    header = ("step", "at", "node", "took", "changed", "went")
    show_table([_cells(s) for s in taken if args.all or s.depth == 0], header, flexible=4)
    return 0


def _cells(step: Step) -> tuple[str, ...]:
    at = time.strftime("%H:%M:%S", time.localtime(step.started))
    node = "  " * step.depth + step.node
    return (str(step.step), at, node, elapsed(step.ms / 1000), ", ".join(step.keys), step.route or "")
