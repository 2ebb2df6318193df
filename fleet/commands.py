"""commands: `interlock worker`, which drives runs here, and `interlock fleet`, which shows how all stand."""

import os
from pathlib import Path

from interlock.cli.parsing import (
    Args,
    Parser,
    choice_argument,
    declare_arguments,
    flag_argument,
    number_parser,
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
from interlock.engine.client.fleet import STALLED_S, Fleet
from interlock.engine.store.jobs import Job
from interlock.fleet import setup
from interlock.state.errors import UserError
from interlock.state.names import GIT_QUEUE

_ROWS = 50
"""Jobs that `fleet` lists: those that are driven first."""


@declare_arguments(
    flag_argument("--queue NAME", "also drive runs of this queue", action="append", default=[]),
    flag_argument("--workspaces DIR", "clone the repositories of runs below DIR", type=Path),
    flag_argument("-s --sandbox", "run the commands of every run in the sandbox"),
    flag_argument("--concurrency N", "runs at a time (default: 2)", type=number_parser(int, 1), default=2),
)
def worker(args: Args) -> None:
    fleet = Fleet(resolve_state_directory())
    queues = [fleet.host_queue_name(), *args.queue]
    if args.workspaces:
        queues.append(GIT_QUEUE)
        os.environ["INTERLOCK_WORKSPACES"] = str(_ensure_folder(args.workspaces))
    isolated = setup.describe_isolation(
        os.environ, sandbox_all=args.sandbox, takes_clones=bool(args.workspaces)
    )
    if args.sandbox:
        os.environ["INTERLOCK_SANDBOX"] = "true"
    remark_paint().print_line(f"Worker for {', '.join(queues)}: {args.concurrency} at a time.")
    remark_paint().print_lines(isolated)
    setup.run_worker(fleet.home, queues, args.concurrency, remark_paint().print_line)


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
        return result_paint().print_lines(setup.setup_sql().splitlines())
    fleet = Fleet(resolve_state_directory())
    if args.action:
        setup.create_store_and_queue(fleet.home)
        return remark_paint().print_line(
            "The store and its queue are set up. Start a worker with: interlock worker"
        )
    workers, jobs, requests = fleet.read_workers_and_jobs()
    queued = [job.age_s for job in jobs if not job.doing]
    alive = sum(age < STALLED_S for age in workers.values())
    open_now, most = fleet.count_connections_and_limit()
    if args.json:
        facts = {"workers": alive, "queued": len(queued), "oldest_s": round(max(queued, default=0.0), 1)}
        house = {"connections": open_now, "max_connections": most, "open_requests": requests}
        return print_json({**facts, **house, "jobs": [job._asdict() for job in jobs]})
    oldest = f", the oldest for {format_duration(max(queued))}" if queued else ""
    counts = (format_count(alive, "worker"), format_count(len(jobs) - len(queued), "run") + " driven")
    house = f"{open_now} of {most} connections"
    result_paint().print_line(
        " · ".join([*counts, f"{len(queued)} queued{oldest}", format_count(requests, "open request"), house])
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
