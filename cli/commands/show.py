"""show: one run: status, path through the graph, calls, tokens, what waits; its state at a step."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlock.cli import tables
from interlock.cli.parsing import Parser, number
from interlock.cli.render.calls import call_lines, calls_in_full
from interlock.cli.render.conversation import show_dropped, show_state, verify
from interlock.cli.render.figures import ago, amount, elapsed, place
from interlock.cli.render.paint import Paint, one_line
from interlock.cli.render.pending import screen
from interlock.cli.render.run_parts import plan, reason_lines, tree
from interlock.engine.read import runs as detail
from interlock.engine.read.agents import agents
from interlock.engine.read.calls import answered, calls, reasons
from interlock.engine.read.runs import RunRow, find_run, waiting_requests
from interlock.engine.store.database import state_home


def parser() -> Parser:
    made = Parser(
        "show",
        "RUN [--calls] [--at STEP] [--dropped] [--verify] [--json]",
        "What a run did, what it used, and what it waits for.",
        [
            ("interlock show latest", ""),
            ("interlock show 4k2 --calls", "each call with everything that was decided of it, and by whom"),
            ("interlock show 4k2 --at 7", "its state and conversation after step 7"),
        ],
    )
    made.add_argument("run", metavar="RUN", help="id, the beginning of one, or latest")
    made.add_argument(
        "--calls",
        action="store_true",
        help="each call: who decided what, when, and who changed its arguments",
    )
    made.add_argument("--at", type=number(int, -1), metavar="STEP", help="a step of: interlock history RUN")
    made.add_argument(
        "--dropped", action="store_true", help="what compression and masking took out of the conversation"
    )
    made.add_argument("--verify", action="store_true", help="check that no record was lost or changed")
    made.add_argument("--json", action="store_true", help="for programs")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    home = state_home(os.environ)
    run = find_run(home, args.run)
    if args.verify:
        return verify(home, run.run)
    if args.dropped:
        show_dropped(home, run.run, args.json)
        return 0
    if args.at is not None:
        show_state(home, run.run, args.at, args.json)
        return 0
    if args.json:
        tables.show_json(_object(home, run))
        return 0
    paint = Paint(sys.stdout)
    for line in calls_in_full(home, run.run, paint) if args.calls else _lines(home, run, paint):
        paint.print(line)
    return 0


def _object(home: Path, run: RunRow) -> dict[str, Any]:
    return {
        **run._asdict(),
        "path": detail.path(detail.steps(home, run.run)),
        "steps": [s._asdict() for s in detail.steps(home, run.run)],
        "reasons": [r._asdict() for r in reasons(home, run.run)],
        "calls": [c._asdict() for c in calls(home, run.run)],
        "models": detail.models(home, run.run),
        "agents": [a._asdict() for a in agents(home, run.run)],
        "answered": list(answered(home, run.run)),
        "pending_approvals": [r.fields for r in waiting_requests(home, run.run)],
    }


def _lines(home: Path, run: RunRow, paint: Paint) -> Iterator[str]:
    # An outcome that is no more than "failed" is told better by its error's type.
    why = run.error.get("type", "") if run.error and run.outcome == "failed" else run.outcome
    status = run.status + (f" ({why})" if run.status == "failed" and why else "")
    yield f"{paint(run.run, 'bold')}  {run.workflow}  {paint(status, 'bold')}"
    yield f"  {one_line(run.title)}"
    yield f"  in {place(run.workspace)} · started {ago(run.created)} · changed {ago(run.updated)} · step {run.step}"
    if run.owner:
        yield f"  driven by {run.owner}"
    if run.error:
        yield paint(f"  {one_line(str(run.error.get('message', '')))}", "red")
    for part in (
        _path(home, run, paint),
        reason_lines(home, run.run),
        tree(home, run.run, paint),
        plan(home, run, paint),
        call_lines(home, run.run, paint),
        _tokens(home, run),
        _answered(home, run),
    ):
        lines = list(part)
        if lines:
            yield ""
            yield from lines
    yield from _next(home, run, paint)


def _path(home: Path, run: RunRow, paint: Paint) -> Iterator[str]:
    steps = [s for s in detail.steps(home, run.run) if not s.node.startswith("__")]
    root = detail.path(steps)
    if root:
        yield "path    " + " → ".join(node if n == 1 else f"{node} ×{n}" for node, n in root)
    times = Counter[str]()
    for step in steps:
        if step.workflow:
            times[f"{step.workflow} › {step.node}"] += step.ms / 1000  # pyright: ignore[reportArgumentType]
    slow = ", ".join(f"{name} {elapsed(seconds)}" for name, seconds in times.most_common(3) if seconds >= 0.1)
    if slow:
        yield paint(f"        longest: {slow}", "dim")


def _tokens(home: Path, run: RunRow) -> Iterator[str]:
    for number_, (model, used) in enumerate(detail.models(home, run.run).items()):
        counts = f"{amount(used['input_tokens'])} in, {amount(used['output_tokens'])} out"
        cached = f", {amount(used['cached'])} cached" if used["cached"] else ""
        requests = f"{used['requests']} requests" if used["requests"] != 1 else "1 request"
        yield f"{'tokens' if number_ == 0 else '':<8}{model}: {counts}{cached} · {requests}"


def _answered(home: Path, run: RunRow) -> Iterator[str]:
    for number_, item in enumerate(answered(home, run.run)):
        said = item["text"] or item["feedback"] or ""
        who = f" by {item['by']}" if item["by"] else ""
        line = f"{item['id']} {item['tool_name']}: {item['choice']}{who}, {ago(item['at'])}"
        yield f"{'decided' if number_ == 0 else '':<8}{line}" + (f" “{one_line(said, 60)}”" if said else "")


def _next(home: Path, run: RunRow, paint: Paint) -> Iterator[str]:
    if run.status == "waiting":
        yield ""
        yield from screen(run.run, run.title, [r.fields for r in waiting_requests(home, run.run)], paint)
    elif run.status in ("interrupted", "cancelled"):
        yield ""
        yield f"It can go on, nothing is lost: {paint(f'interlock resume {run.run}', 'cyan')}"
