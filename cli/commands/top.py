"""top: shows the runs that wait, run or are queued, and opens one of them in a session."""

import os
import sys
from functools import partial
from pathlib import Path

from interlock.cli.catalog import execute_command
from interlock.cli.parsing import Args, Parser, declare_arguments
from interlock.cli.render.output import (
    abbreviate_home,
    format_age,
    format_compact_number,
    format_dollars,
    print_json,
    print_table,
    remark_paint,
    to_one_line,
)
from interlock.engine.client import Client, Options, resolve_state_directory
from interlock.engine.client.active_runs import ActiveRun, list_active_runs
from interlock.state.errors import UserError

_SHOWN = 100
"""Runs of each status that are shown: the newest."""
_STOPPED = {
    "asked": "Run {run} was asked to stop. Resume it with: interlock resume {run}",
    "taken back": "Run {run} was taken from its queue. Resume it with: interlock resume {run}",
    "ended": "Run {run} is cancelled.",
    "decided": "Run {run}: its request is cancelled. Resume it with: interlock resume {run}",
    "idle": "Nothing drives run {run} now.",
    "over": "Run {run} had ended.",
}


@declare_arguments(Parser.add_json_flag)
def top(args: Args) -> int | None:
    home = resolve_state_directory()
    if args.json:
        return print_json([one.json_fields for one in list_active_runs(home, _SHOWN)])
    if not _is_at_terminal() or _is_plain_terminal():
        return _print_runs(list_active_runs(home, _SHOWN))
    return _choose_and_attach_until_quit(home)


@declare_arguments(Parser.add_run_argument)
def attach(args: Args) -> int:
    run = Client.for_this_user().find_run(args.run).run
    if not _is_at_terminal():
        raise UserError(f"attach needs a terminal. Follow the run without one: interlock logs {run} -f")
    return execute_command("prompt", ["-r", run])


def _is_at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _is_plain_terminal() -> bool:
    from interlock.cli.driving import is_plain_terminal_or_screen_reader

    return is_plain_terminal_or_screen_reader()


def _choose_and_attach_until_quit(home: Path) -> int:
    import asyncio  # deferred, as what is below: a script's list needs none of it

    from interlock.cli.session.top import TopScreen

    read_runs, stop_run = partial(list_active_runs, home, _SHOWN), partial(_stop_run_and_describe, home)
    start_run = partial(_start_detached_run, home)
    marked = ""
    while True:
        screen = TopScreen(read_runs, stop_run, start_run, marked, color=not os.environ.get("NO_COLOR"))
        marked = asyncio.run(screen.choose_run())
        if not marked:
            return 0
        execute_command("prompt", ["-r", marked])


def _stop_run_and_describe(home: Path, run: str) -> str:
    from interlock.engine.client.cancel import stop_or_cancel_run_by_name

    became, row = stop_or_cancel_run_by_name(Options(home=home, door="terminal"), run)
    return _STOPPED[became].format(run=row.run)


def _start_detached_run(home: Path, prompt: str) -> str:
    """Start a run in this folder that a worker drives, and say which."""
    from interlock.engine.client.fleet import with_host_queue

    options = Options(home=home, door="terminal", workspace=Path.cwd(), env=dict(os.environ))
    return f"New run: {Client(with_host_queue(options)).start_sync('main', {'prompt': prompt}).run}"


def _print_runs(runs: list[ActiveRun]) -> None:
    if not runs:
        return remark_paint().print_line("No run waits, runs or is queued. All runs: interlock runs")
    print_table(
        [_run_cells(one) for one in runs],
        ("run", "status", "since", "tokens", "cost", "where", "does", "what"),
        flexible=(-2, -1),
    )


def _run_cells(one: ActiveRun) -> tuple[str, ...]:
    row = one.row
    return (
        row.run,
        row.status_text,
        format_age(one.since),
        format_compact_number(row.tokens),
        format_dollars(row.usd),
        abbreviate_home(row.workspace) + (f" ⎇ {one.branch}" if one.branch else ""),
        to_one_line(one.activity),
        to_one_line(row.title or row.workflow),
    )
