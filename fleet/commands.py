"""commands: `interlock worker`, which drives runs here, and `interlock fleet`, which shows how all stand."""

import os
import shlex
import sys
from pathlib import Path

from interlock.cli.parsing import (
    Args,
    Parser,
    choice_argument,
    declare_arguments,
    flag_argument,
    number_parser,
    parse_duration_argument,
)
from interlock.cli.render.output import (
    format_count,
    format_duration,
    print_json,
    print_table,
    remark_paint,
    result_paint,
)
from interlock.engine.client import resolve_state_directory
from interlock.engine.client.fleet import STALLED_S, Fleet, is_store_on_server
from interlock.engine.store.jobs import Job
from interlock.state.errors import UserError
from interlock.state.names import GIT_QUEUE

_CONCURRENCY = 2
"""Runs at a time of a worker of PostgreSQL: there may be several on a host."""
_ROWS = 50
"""Jobs that `fleet` lists: those that are driven first."""


@declare_arguments(
    flag_argument("--queue NAME", "also drive runs of this queue", action="append", default=[]),
    flag_argument("--workspaces DIR", "clone the repositories of runs below DIR", type=Path),
    flag_argument("-s --sandbox", "run the commands of every run in the sandbox"),
    flag_argument(
        "--concurrency N",
        "runs at a time (default: 2; with SQLite by cores and memory)",
        type=number_parser(int, 1),
    ),
    flag_argument(
        "--idle-exit TIME",
        "with SQLite: end when there is nothing to do for TIME: 90s, 10m",
        type=parse_duration_argument,
    ),
    flag_argument("--stop", "with SQLite: end the worker; its runs are put back"),
    flag_argument("--install", "with SQLite: let the system start the worker; asks first"),
    flag_argument("--uninstall", "with SQLite: undo --install"),
    flag_argument("-y --yes", "with --install: don't ask"),
)
def worker(args: Args) -> None:
    home = resolve_state_directory()
    if is_store_on_server(home):
        _run_worker_of_server(args, Fleet(home))
    elif args.install or args.uninstall:
        _change_worker_unit(home, install=args.install, asks=not args.yes)
    elif args.stop:
        _stop_worker_of_file(home)
    else:
        _run_worker_of_file(args, home)


def _run_worker_of_file(args: Args, home: Path) -> None:
    from interlock.fleet.local_worker import default_concurrency, run_local_worker

    if args.queue:
        raise UserError(
            "--queue: the worker of a store in a file serves every queue. Several hosts need PostgreSQL."
        )
    concurrency = args.concurrency or default_concurrency()
    os.environ["INTERLOCK_WORKSPACES"] = str(
        _ensure_folder(args.workspaces or home.with_name(f"{home.name}-clones"))  # where runs may write
    )
    if args.sandbox:
        _report_isolation(sandbox_all=True, takes_clones=True)
    remark_paint().print_line(f"Worker for this machine: {concurrency} at a time.")
    run_local_worker(home, concurrency, remark_paint().print_line, args.idle_exit)


def _change_worker_unit(home: Path, *, install: bool, asks: bool) -> None:
    """Install the unit after it was shown and allowed, or remove it."""
    from interlock.engine.client.worker_unit import build_worker_unit, install_worker_unit, remove_worker_unit

    unit, paint = build_worker_unit(home, os.environ), remark_paint()
    if not install:
        removed = remove_worker_unit(unit)
        return paint.print_line(
            f"Removed {str(unit.file)!r}." if removed else "The worker isn't installed as a unit."
        )
    paint.print_line(f"This writes {str(unit.file)!r}:")
    paint.print_lines(unit.text.splitlines())
    paint.print_line(f"and runs: {'; '.join(map(shlex.join, unit.start))}")
    if asks:
        if not sys.stdin.isatty():
            raise UserError("Nothing was changed. Confirm with: interlock worker --install --yes")
        if input("Install it? [y/N] ").strip().lower() not in ("y", "yes"):
            return paint.print_line("Nothing was changed.")
    install_worker_unit(unit)
    return paint.print_line("Installed. Remove it with: interlock worker --uninstall")


def _stop_worker_of_file(home: Path) -> None:
    from interlock.fleet.local_worker import stop_local_worker

    pid = stop_local_worker(home)
    said = f"Worker {pid} stops: each run is put back after its next commit." if pid else "No worker runs."
    remark_paint().print_line(said)


def _report_isolation(*, sandbox_all: bool, takes_clones: bool) -> None:
    """Say what isolates the runs of this worker, and let all run in the sandbox if that is wanted."""
    from interlock.fleet import setup  # its imports would be a waiting worker's memory

    isolated = setup.describe_isolation(os.environ, sandbox_all=sandbox_all, takes_clones=takes_clones)
    if sandbox_all:
        os.environ["INTERLOCK_SANDBOX"] = "true"
    remark_paint().print_lines(isolated)


def _run_worker_of_server(args: Args, fleet: Fleet) -> None:
    from interlock.fleet import setup

    if args.stop or args.idle_exit or args.install or args.uninstall:
        raise UserError(
            "--stop, --idle-exit, --install and --uninstall are for a store in a file. End this worker with SIGTERM."
        )
    concurrency = args.concurrency or _CONCURRENCY
    queues = [fleet.host_queue_name(), *args.queue]
    if args.workspaces:
        queues.append(GIT_QUEUE)
        os.environ["INTERLOCK_WORKSPACES"] = str(_ensure_folder(args.workspaces))
    _report_isolation(sandbox_all=args.sandbox, takes_clones=bool(args.workspaces))
    remark_paint().print_line(f"Worker for {', '.join(queues)}: {concurrency} at a time.")
    setup.run_worker(fleet.home, queues, concurrency, remark_paint().print_line)


def _ensure_folder(path: Path) -> Path:
    """Return the folder, whether or not it was there. Raises `UserError` if it can't be made."""
    folder = path.expanduser().resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--workspaces: can't make {str(path)!r}: {error.strerror}.") from error
    return folder


@declare_arguments(
    choice_argument("action", "init", nargs="?", help="make the tables"),
    flag_argument("--print", "with `init`: print the SQL, with roles for workers, submitters and viewers"),
    Parser.add_json_flag,
)
def fleet(args: Args) -> None:
    if args.print and not args.action:
        raise UserError("--print belongs to: interlock fleet init --print")
    if args.print:
        from interlock.fleet import setup

        return result_paint().print_lines(setup.setup_sql().splitlines())
    fleet = Fleet(resolve_state_directory())
    if args.action:
        from interlock.fleet import setup

        if not is_store_on_server(fleet.home):
            raise UserError(
                "`fleet init` sets up PostgreSQL, and this store is a file, which needs no setting up. Name the "
                "database with: INTERLOCK_STORE=postgresql://USER@HOST/DATABASE"
            )
        setup.create_store_and_queue(fleet.home)
        return remark_paint().print_line(
            "The store and its queue are set up. Start a worker with: interlock worker"
        )
    workers, jobs, requests = fleet.read_workers_and_jobs()
    queued = [job.age_s for job in jobs if not job.doing]
    alive = sum(age < STALLED_S for age in workers.values())
    connections = fleet.count_connections_and_limit()
    if args.json:
        facts = {"workers": alive, "queued": len(queued), "oldest_s": round(max(queued, default=0.0), 1)}
        of_server = dict(zip(("connections", "max_connections"), connections or (), strict=False))
        return print_json(
            {**facts, **of_server, "open_requests": requests, "jobs": [job._asdict() for job in jobs]}
        )
    oldest = f", the oldest for {format_duration(max(queued))}" if queued else ""
    counts = (format_count(alive, "worker"), format_count(len(jobs) - len(queued), "run") + " driven")
    house = [f"{connections[0]} of {connections[1]} connections"] if connections else []
    result_paint().print_line(
        " · ".join([*counts, f"{len(queued)} queued{oldest}", format_count(requests, "open request"), *house])
    )
    if jobs:
        print_table(
            [_job_cells(job) for job in jobs[:_ROWS]],
            ("run", "queue", "user", "priority", "job", "by", "since", "waits for"),
        )
    if len(jobs) > _ROWS:
        result_paint().print_line(f"{len(jobs) - _ROWS} more. See all with: interlock fleet --json")


def _job_cells(job: Job) -> tuple[str, ...]:
    waits = f"limit of {job.waits}" if job.waits else ""
    state, since = "driven" if job.doing else "queued", format_duration(job.age_s)
    return (job.run, job.queue, job.user, str(job.priority), state, job.driver, since, waits)
