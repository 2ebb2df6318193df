"""runs: lists runs, the newest change first; `runs rm RUN` deletes them."""

import sys

from interlock.cli.parsing import Parser, flag, one_of
from interlock.cli.render.output import ago, amount, one_line, place, show_json, show_table
from interlock.engine.read.runs import STATUSES, RunRow, find_run, list_runs
from interlock.engine.store.database import state_home
from interlock.state.errors import UserError

_SHOWN = 20


def parser() -> Parser:
    made = Parser(
        "runs",
        "[rm RUN…] [FLAGS]",
        "List runs, the newest change first. `runs rm RUN` deletes one: what it recorded, not what it changed.",
        [
            ("interlock runs --status waiting", "those that somebody must decide on"),
            ("interlock runs rm 4k2 latest", "delete two of them"),
        ],
    )
    made.add_argument("action", nargs="*", metavar="rm RUN", help="delete these runs")
    flag(made, "--all", f"all of them, not only the newest {_SHOWN}")
    flag(made, "--status STATUS", ", ".join(STATUSES), type=one_of(STATUSES))
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    home = state_home()
    if args.action:
        if args.action[0] != "rm" or len(args.action) < 2:
            raise UserError("`runs` takes `rm RUN…`, or nothing. To look at one run: interlock show RUN")
        return _remove([find_run(home, name) for name in args.action[1:]])
    rows = list_runs(home, args.status)
    if args.json:
        show_json([row._asdict() for row in rows])
        return 0
    if not rows:
        nothing = "Nothing has run yet. Try: interlock -p 'what to do'"
        print(f"No run is {args.status}." if args.status else nothing, file=sys.stderr)
        return 0
    shown = rows if args.all or args.status else rows[:_SHOWN]
    show_table([_cells(row) for row in shown], ("run", "status", "changed", "tokens", "where", "what"))
    if len(shown) < len(rows):
        print(f"… {len(rows) - len(shown)} older: interlock runs --all", file=sys.stderr)
    return 0


def _cells(row: RunRow) -> tuple[str, ...]:
    status = f"waiting ({row.waiting})" if row.status == "waiting" else row.status
    if row.status == "failed" and row.outcome not in ("", "failed"):
        status = f"failed: {row.outcome}"
    what = one_line(row.title if row.workflow == "main" else f"{row.workflow}: {row.title}")
    return (row.run, status, ago(row.updated), amount(row.tokens), place(row.workspace), what)


def _remove(rows: list[RunRow]) -> int:
    if busy := [r.run for r in rows if r.status == "running"]:
        raise UserError(f"Run {busy[0]!r} is running. Stop it first (Ctrl-C in its terminal), then: runs rm.")
    from interlock.engine.store.runs import remove_run

    for row in rows:
        remove_run(state_home(), row.run)
        print(f"Deleted run {row.run}.", file=sys.stderr)
    return 0
