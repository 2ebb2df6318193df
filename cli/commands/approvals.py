"""approvals: everything that waits for a person, over all runs, with the commands that decide it."""

import sys
from collections.abc import Iterator
from itertools import groupby

from interlock.cli.parsing import Parser
from interlock.cli.render.output import Paint, ago, one_line, place, show_json
from interlock.cli.render.pending import headline, screen
from interlock.engine.read.runs import Request, RunRow, find_run, list_runs, waiting_requests
from interlock.engine.store.database import state_home


def parser() -> Parser:
    made = Parser(
        "approvals",
        "[RUN] [--json]",
        "What waits for a person. Without RUN: a line each, over all runs. With RUN: everything needed to decide.",
        [
            ("interlock approvals", "what waits, anywhere"),
            ("interlock approvals latest", "with diffs and commands"),
        ],
    )
    made.add_argument("run", nargs="?", metavar="RUN", help="only this run, in full")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    home = state_home()
    row = find_run(home, args.run) if args.run else None
    requests = waiting_requests(home, row.run if row else None)
    if args.json:
        show_json([{"run": r.run, "asked_at": r.asked_at, **r.fields} for r in requests])
        return 0
    if not requests:
        where = f"run {row.run!r} (it is {row.status})" if row else "any run"
        print(f"Nothing waits for you in {where}.", file=sys.stderr)
        return 0
    paint = Paint(sys.stdout)
    if row:
        lines = screen(row.run, row.title, [r.fields for r in requests], paint, limit=None)
    else:
        lines = _overview({r.run: r for r in list_runs(home)}, requests, paint)
    paint.print_all(lines)
    return 0


def _overview(runs: dict[str, RunRow], requests: list[Request], paint: Paint) -> Iterator[str]:
    for run, group in groupby(requests, lambda r: r.run):
        waiting = list(group)
        about = f"asked {ago(waiting[0].asked_at)} · {place(runs[run].workspace)}"
        yield paint(f"{run}  {one_line(runs[run].title, 60)}", "bold") + paint(f"  {about}", "dim")
        for request in waiting:
            width = paint.width - len(request.id) - 6 if paint.terminal else 0
            yield f"  {paint(request.id, 'cyan')}  {one_line(headline(request.fields), width)}"
            yield paint(f"  {'':{len(request.id)}}  {one_line(request.fields['reason'], width)}", "dim")
        yield f"  look:     {paint(f'interlock approvals {run}', 'cyan')}"
        if any(r.fields["kind"] == "approval" for r in waiting):
            yield f"  approve:  {paint(f'interlock resume {run} --approve all', 'cyan')}"
        yield ""
