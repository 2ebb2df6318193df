"""store: what the store holds in sum (stats), and its care: prune, copy, migrate."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.cli.parsing import (
    Args,
    Parser,
    argparse_argument,
    choice_argument,
    choice_parser,
    declare_arguments,
    flag_argument,
    number_parser,
    parse_since_time,
)
from interlock.cli.render.output import (
    abbreviate_home,
    format_age,
    format_compact_number,
    format_count,
    format_dollars,
    format_duration,
    print_json,
    print_table,
    remark_paint,
    to_one_line,
)
from interlock.engine.client import Client
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.client.views import Sums


@declare_arguments(
    choice_argument("what", "prune", "copy", "migrate"),
    argparse_argument("runs", nargs="*", metavar="RUN", default=[]),
    flag_argument("--dry-run", "with prune: list what would be deleted, and delete nothing"),
    flag_argument("--keep-days N", "with prune: in place of store.keepDays", type=number_parser(int, 1)),
    flag_argument("--max-gb GB", "with prune: in place of store.maxGb", type=number_parser(float, 0)),
    flag_argument("--to PLACE", "with copy: a database's address, or a state directory"),
    Parser.add_json_flag,
)
def store(args: Args) -> int | None:
    if args.runs and args.what != "copy":
        raise UserError(
            f"`store {args.what}` takes no run: {args.runs[0]!r}. Delete one with: interlock runs rm RUN"
        )
    return {"prune": _prune_runs, "copy": _copy_runs, "migrate": _migrate_store}[args.what](args)


def _copy_runs(args: Args) -> None:
    client = Client.for_this_user()
    if not args.runs or not args.to:
        raise UserError("Expected: interlock store copy RUN… --to URL or DIR")
    from interlock.engine.client.fleet import copy_runs_to_store

    names = copy_runs_to_store(client.home, args.to, [client.find_run(name).run for name in args.runs])
    return remark_paint().print_line(f"Copied {', '.join(names)}. The runs here stay as they are.")


def _migrate_store(_: Args) -> None:
    from interlock.engine.client.fleet import migrate_store

    migrate_store(Client.for_this_user().home)
    return remark_paint().print_line("The store has every table of this version.")


def _prune_runs(args: Args) -> None:
    client = Client.for_this_user()
    kept = client.settings(Path.cwd()).store
    keep_days = args.keep_days if args.keep_days is not None else kept.keep_days
    max_gb = args.max_gb if args.max_gb is not None else kept.max_gb
    if keep_days is None and max_gb is None:
        raise UserError(
            "No limit is set, so nothing is deleted. Set store.keepDays or store.maxGb in ~/.interlock/settings.json,"
            " or give --keep-days or --max-gb."
        )
    plan = client.plan_pruning(time.time(), keep_days, max_gb)
    gone = plan.due if args.dry_run else [*client.prune_runs(plan)]
    left = (
        plan.size - sum(one.size for one in gone)
        if args.dry_run
        else sum(client.state_directory_sizes().values())
    )
    if args.json:
        runs = [one._asdict() for one in gone]
        return print_json(
            {"dry_run": args.dry_run, "runs": runs, "kept": plan.waiting, "before": plan.size, "after": left}
        )
    rows = [
        (
            one.run,
            format_age(one.updated),
            f"{format_compact_number(one.size)}B",
            one.why,
            to_one_line(one.title),
        )
        for one in gone
    ]
    print_table(rows, ("run", "changed", "size", "why", "what") if rows else ())
    done, about = ("Would delete", "about ") if args.dry_run else ("Deleted", "")
    remark_paint().print_line(
        f"{done} {format_count(len(gone), 'run')}: "
        f"{format_compact_number(plan.size)} bytes become {about}{format_compact_number(left)}."
    )
    if plan.waiting:
        names = ", ".join(plan.waiting[:5]) + (" …" if len(plan.waiting) > 5 else "")
        text = f"Kept {format_count(len(plan.waiting), 'unfinished run')}, though old: {names}."
        remark_paint().print_line(f"{text} See: interlock approvals; delete one with: interlock runs rm RUN")


_HEADER = ("runs", "turns", "tokens", "cached", "cost", "asked", "given", "refused", "waited", "failed")


@declare_arguments(
    flag_argument(
        "--by KEY",
        "day, model, workflow or repository (default: day)",
        type=choice_parser(("day", "model", "workflow", "repository")),
        default="day",
    ),
    flag_argument("--since WHEN", "a date, or an age like 7d or 12h (default: 30d)", default="30d"),
    Parser.add_json_flag,
)
def stats(args: Args) -> None:
    found = Client.for_this_user().statistics(args.by, parse_since_time(args.since))
    if args.json:
        return print_json([{args.by: key, **asdict(sums)} for key, sums in found.items()])
    if not found:
        return remark_paint().print_line(
            f"No runs with --since {args.since}. Go further back with: interlock stats --since 365d"
        )
    rows = [
        (abbreviate_home(key) if args.by == "repository" else key, *_statistics_cells(sums, args.by))
        for key, sums in found.items()
    ]
    if len(rows) > 1 and args.by != "model":  # a run may ask several models
        whole = type(next(iter(found.values())))()
        for sums in found.values():
            whole.add(sums)
        rows.append(("all", *_statistics_cells(whole, args.by)))
    print_table(rows, (args.by, *_HEADER), flexible=(0,))


def _statistics_cells(sums: "Sums", by: str) -> tuple[str, ...]:
    priced = sums.usd or not sums.unpriced
    cost = (format_dollars(sums.usd) + (" + ?" if sums.unpriced else "")) if priced else "—"
    tokens = format_compact_number(sums.input_tokens + sums.output_tokens)
    cached = "—" if sums.cached_share is None else f"{sums.cached_share:.0%}"
    if by == "model":
        return str(sums.runs), str(sums.turns), tokens, cached, cost, *("",) * 5
    failed = ", ".join(f"{number} {kind}" for kind, number in sorted(sums.failures.items())) or "0"
    waited = format_duration(sums.waited_s) if sums.asked else "0"
    return (
        *(str(sums.runs), str(sums.turns), tokens, cached, cost),
        *(str(sums.asked), str(sums.given), str(sums.refused), waited, failed),
    )
