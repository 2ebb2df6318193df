"""fleet: runs that others drive: limits, follows, waits for and stops them."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from interlock.cli.parsing import (
    Args,
    Parser,
    argparse_argument,
    declare_arguments,
    flag_argument,
    number_parser,
    parse_duration_argument,
)
from interlock.cli.render.live_calls import call_mark_and_colour
from interlock.cli.render.output import print_json, print_table, remark_paint, result_paint, to_one_line
from interlock.engine.client import Client, Options, RunRow, resolve_state_directory
from interlock.engine.client.cancel import stop_or_cancel_run_by_name as cancel_run
from interlock.engine.client.event_lines import call_result_facts
from interlock.engine.client.fleet import (
    Delivery,
    Fleet,
    FleetLimit,
    is_store_on_server,
    read_delivery,
    take_up_due_work,
    undelivered_files_line,
)
from interlock.state.errors import EXIT_CODES, StoreError, UserError
from interlock.state.events import Event, MessageEvent, ToolResultEvent

_BUSY = ("running", "queued")
_LOOK_S = 0.5
_TIMED_OUT = 124


@declare_arguments(Parser.add_run_argument, flag_argument("-f --follow", "follow the run"))
def logs(args: Args) -> int:
    client = Client(Options(home=resolve_state_directory()))
    run = client.find_run(args.run)
    if args.follow:
        _report_missing_worker(client, [run])
    return asyncio.run(_print_run_events(client, run.run, keeps_following=args.follow))


def _report_missing_worker(client: Client, runs: Sequence[RunRow]) -> None:
    """Start this machine's worker if something is due and none runs; say that, or which other worker is missing."""
    if said := take_up_due_work(client.home, os.environ) or client.missing_worker_line(runs):
        remark_paint().print_line(said)


async def _print_run_events(client: Client, run: str, *, keeps_following: bool) -> int:
    from interlock.engine.client.following import RunStatus

    cursor = away = ""
    while True:
        try:
            async for told in client.follow_events(run, cursor):
                cursor = told.cursor or cursor
                if not isinstance(told.event, RunStatus):
                    _print_message_or_call_result(told.event)
                elif told.event.status not in _BUSY:
                    row = client.find_run(run)
                    remark_paint().print_line(
                        f"Run {run} is {_status_text(row)}" + ("" if row.error else ".")
                    )
                    return _exit_code_of_run(client, run)
                elif not keeps_following:
                    return 0
        except StoreError as error:
            away = _report_store_outage_or_raise(error, away)
            await asyncio.sleep(_LOOK_S)


def _report_store_outage_or_raise(error: StoreError, last_message: str) -> str:
    """Say why the store doesn't answer, unless that was said before. Raises the error of a store that is a file."""
    if not is_store_on_server(resolve_state_directory()):
        raise error
    if str(error) != last_message:
        remark_paint().print_line(f"The store doesn't answer. Waiting for it: {error}")
    return str(error)


def _print_message_or_call_result(event: Event) -> None:
    if isinstance(event, MessageEvent) and not event.delta:
        result_paint().print_line(f"> {event.content}" if event.role == "user" else event.content)
    elif isinstance(event, ToolResultEvent):
        mark, colour = call_mark_and_colour(event)
        facts = " · ".join([event.summary or event.tool_name, *call_result_facts(event)])
        result_paint().print_line(f"{result_paint()(mark, colour)} {facts}")
    sys.stdout.flush()


@declare_arguments(
    argparse_argument("runs", nargs="+", metavar="RUN"),
    flag_argument(
        "--timeout TIME", "wait no longer: 90s, 15m, 2h (exit code 124)", type=parse_duration_argument
    ),
    Parser.add_json_flag,
)
def wait(args: Args) -> int:
    client = Client.for_this_user()
    names = [client.find_run(name).run for name in args.runs]
    _report_missing_worker(client, client.runs_by_id(names))
    until = time.monotonic() + args.timeout if args.timeout else None
    left, away = [*names], ""
    while left:
        try:
            _report_and_drop_ended_runs(client, names, left, quiet=args.json)
        except StoreError as error:
            away = _report_store_outage_or_raise(error, away)
        if left and until and time.monotonic() > until:
            remark_paint().print_line(f"Not finished after {args.timeout:g} s: {', '.join(left)}.")
            return _TIMED_OUT
        if left:
            time.sleep(_LOOK_S)
    rows = {row.run: row for row in client.runs_by_id(names)}
    if args.json:
        print_json([rows[name]._asdict() for name in names if name in rows])
    return next((code for name in names if (code := _exit_code_of_run(client, name))), 0)


def _report_and_drop_ended_runs(
    client: Client, names: list[str], remaining: list[str], *, quiet: bool
) -> None:
    """Take those that are over from `remaining`; the push of one that is delivered is waited for, too."""
    rows = {row.run: row for row in client.runs_by_id(remaining)}
    for name in [*remaining]:
        row = rows.get(name)
        delivered = _load_delivery(client, row)
        pushing = delivered.pushed_by
        if row and (row.status in _BUSY or delivered.under_way):
            continue
        remaining.remove(name)
        if pushing and pushing not in names:
            names.append(pushing)
            remaining.append(pushing)
        if not quiet:
            kept_back = delivered.kept_back
            but = f", but not {', '.join(kept_back)}: they may hold keys" if kept_back else ""
            pushes = f"; {pushing} pushes what it changed{but}" if pushing else ""
            result_paint().print_line(f"{name}  {_status_text(row)}{pushes}")
            if behind := undelivered_files_line(delivered):
                result_paint().print_line(f"  not delivered: {behind}")


def _load_delivery(client: Client, row: RunRow | None) -> Delivery:
    return read_delivery(client.home, row.run) if row and row.status == "done" and row.queue else Delivery()


def _status_text(row: RunRow | None) -> str:
    if row is None:
        return "removed"
    return f"{row.status}: {to_one_line(row.error['message'])}" if row.error else row.status


def _exit_code_of_run(client: Client, run: str) -> int:
    row = client.find_run(run)
    # One that is done and couldn't be delivered has failed.
    outcome = "" if row.status == "failed" and row.outcome == "done" else row.outcome
    return next((EXIT_CODES[why] for why in (row.end_reason, outcome, row.status) if why in EXIT_CODES), 1)


@declare_arguments(Parser.add_run_argument)
def cancel(args: Args) -> int:
    options = Options(home=resolve_state_directory(), door="terminal")
    became, row = cancel_run(options, args.run)
    next_step = f"Resume it with: interlock resume {row.run}"
    if became == "decided" and not row.queue:
        from interlock.cli.driving import make_text_view, resume_run

        resume_run(row.run, (), None, options, make_text_view(row.title))
    elif became == "over":
        remark_paint().print_line(f"Run {row.run} is {row.status}: there is nothing to stop.")
        return 1
    elif became in ("ended", "decided"):
        remark_paint().print_line(f"Run {row.run} is cancelled.")
    elif became == "asked":
        who = "The worker that drives it" if row.queue else f"The process that drives it ({row.owner})"
        remark_paint().print_line(f"{who} was asked to stop. {next_step}")
    else:
        remark_paint().print_line(f"{'No worker' if row.queue else 'Nothing'} drives it now. {next_step}")
    return 0


_FIGURES = ("runs", "requests", "tokens", "usd_per_day", "usd_per_month")
_TITLES = ("runs", "requests/min", "tokens/min", "USD/day", "USD/month")


@declare_arguments(
    argparse_argument("whose", nargs="?", metavar="KIND=NAME", help="a user, a workflow or a model"),
    flag_argument("--runs N", "runs driven at once (user, workflow)", type=number_parser(int, 1)),
    flag_argument("--requests N", "requests to models a minute", type=number_parser(int, 1)),
    flag_argument("--tokens N", "tokens a minute", type=number_parser(int, 1)),
    flag_argument("--usd-per-day USD", "cost a day, in US dollars", type=number_parser(float, 0.01)),
    flag_argument("--usd-per-month USD", "cost a month, in US dollars", type=number_parser(float, 0.01)),
    flag_argument("--remove", "remove all limits of KIND=NAME"),
    Parser.add_json_flag,
)
def limits(args: Args) -> None:
    fleet = Fleet(resolve_state_directory())
    given = {name: vars(args)[name] for name in _FIGURES if vars(args)[name] is not None}
    if args.whose:
        kind, name = _parse_limit_kind_and_name(args.whose)
        if args.remove:
            fleet.remove_limit(kind, name)
            return remark_paint().print_line(f"Removed the limits of {kind} {name!r}.")
        if kind == "model" and "runs" in given:
            raise UserError("--runs is for a user or a workflow: a run may ask several models.")
        if kind == "workflow" and name != "*":
            Client(Options(home=resolve_state_directory())).load_workflow(name)
        if given:
            return fleet.set_limit(kind, name, given)
    elif given or args.remove:
        raise UserError(
            "Name the limit: user=NAME, workflow=NAME or model=NAME. See: interlock limits --help"
        )
    found = [
        one
        for one in fleet.list_limits()
        if not args.whose or one.limit[:2] == _parse_limit_kind_and_name(args.whose)
    ]
    if args.json:
        return print_json([one.json_fields for one in found])
    if not found:
        return remark_paint().print_line("No limits. Set one with: interlock limits 'user=*' --runs 4")
    print_table([_limit_cells(one) for one in found], ("whose", *_TITLES))


def _parse_limit_kind_and_name(text: str) -> tuple[str, str]:
    kind, has_name, name = text.partition("=")
    if kind not in ("user", "workflow", "model") or not has_name or not name:
        raise UserError(f"{text!r}: expected user=NAME, workflow=NAME or model=NAME; * as NAME: each one.")
    return kind, name


def _limit_cells(limit: FleetLimit) -> tuple[str, ...]:
    def cell(name: str) -> str:
        most: Any = getattr(limit.limit, name)
        return (
            "—"
            if most is None
            else f"{limit.used[name]:g} of {most:g}"
            if name in limit.used
            else f"{most:g}"
        )

    return (f"{limit.limit.kind}={limit.limit.name}", *map(cell, _FIGURES))
