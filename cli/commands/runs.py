"""runs: lists runs, what waits in them, the steps of one, and what changed between two."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any, cast

from interlock.cli.parsing import (
    Args,
    Parser,
    argparse_argument,
    choice_parser,
    declare_arguments,
    flag_argument,
    number_parser,
)
from interlock.cli.render.output import (
    Paint,
    abbreviate_home,
    format_age,
    format_compact_number,
    format_dollars,
    format_duration,
    make_visible,
    print_json,
    print_table,
    remark_paint,
    result_paint,
    to_one_line,
)
from interlock.cli.render.pending_requests import coloured_diff_lines, pending_request_lines
from interlock.engine.client import STATUSES, Client, Request, RunRow, Step
from interlock.engine.client.decision_lines import format_local_time
from interlock.engine.client.requests import request_headline
from interlock.state.errors import UserError
from interlock.state.names import is_hidden_node
from interlock.state.text import to_json_text

if TYPE_CHECKING:
    from interlock.state.messages import Message

_SHOWN, _PRINTED = 20, 1_000
"""Runs that a list shows, and that it prints as JSON, unless told how many."""


@declare_arguments(
    argparse_argument("action", nargs="*", metavar="rm RUN", help="delete these runs"),
    flag_argument("--all", f"list all runs (default: the newest {_SHOWN}; with --json {_PRINTED:,})"),
    flag_argument("--limit N", "list so many runs", type=number_parser(int, 1)),
    flag_argument("--offset N", "leave out the first N runs", type=number_parser(int, 0), default=0),
    flag_argument("--status STATUS", f"only {', '.join(STATUSES)}", type=choice_parser(STATUSES)),
    Parser.add_json_flag,
)
def runs(args: Args) -> int | None:
    client = Client.for_this_user()
    if args.action:
        if args.action[0] != "rm" or len(args.action) < 2:
            raise UserError("Expected `runs` or `runs rm RUN…`. To inspect a run: interlock show RUN")
        return _delete_runs(client, [client.find_run(name) for name in args.action[1:]])
    most = _row_limit_or_default(args)
    rows = client.runs(args.status, None if most is None else most + 1, args.offset)
    shown = rows[:most]
    if args.json:
        print_json([row._asdict() for row in shown])
        return _print_next_page_hint(args, rows, shown, "runs")
    if not rows:
        nothing = "No runs yet. Try: interlock -p 'what to do'"
        return remark_paint().print_line(f"No run is {args.status}." if args.status else nothing)
    print_table(
        [_run_cells(row) for row in shown], ("run", "status", "changed", "tokens", "cost", "where", "what")
    )
    for line in (client.missing_worker_line(shown), *client.shared_folder_lines(shown)):
        if line:
            remark_paint().print_line(line)
    return _print_next_page_hint(args, rows, shown, "runs")


def _row_limit_or_default(args: Args) -> int | None:
    """How many runs to list; None: all."""
    return args.limit or (None if args.all else _PRINTED if args.json else _SHOWN)


def _print_next_page_hint(args: Args, found: Sequence[object], shown: Sequence[object], command: str) -> None:
    """Say on stderr how to list the rest, so that a script doesn't take a part for the whole."""
    if len(shown) < len(found):
        status = f" --status {args.status}" if command == "runs" and args.status else ""
        following = f"--limit {len(shown)} --offset {args.offset + len(shown)}"
        again = f"interlock {command}{status}{' --json' if args.json else ''}"
        remark_paint().print_line(f"… there are more runs. The next: {again} {following}. All: {again} --all")


def _run_cells(row: RunRow) -> tuple[str, ...]:
    what = to_one_line(row.title if row.workflow in ("main", row.title) else f"{row.workflow}: {row.title}")
    return (
        row.run,
        row.status_text,
        format_age(row.updated),
        format_compact_number(row.tokens),
        format_dollars(row.usd),
        abbreviate_home(row.workspace),
        what,
    )


def _delete_runs(client: Client, rows: list[RunRow]) -> None:
    if busy := [r.run for r in rows if r.status == "running"]:
        raise UserError(f"Run {busy[0]!r} is running. Stop it first (Ctrl-C in its terminal), then: runs rm.")
    for row in rows:
        for line in client.remove_run_and_list_kept_files(row.run):
            remark_paint().print_line(f"{line} It was left as it is.")
        remark_paint().print_line(f"Deleted run {row.run}.")


@declare_arguments(
    argparse_argument("run", nargs="?", metavar="RUN", help="show the requests of this run in full"),
    flag_argument(
        "--all", f"list those of all runs (default: of {_SHOWN} runs; with --json of {_PRINTED:,})"
    ),
    flag_argument("--limit N", "list those of so many runs", type=number_parser(int, 1)),
    flag_argument("--offset N", "leave out the first N runs", type=number_parser(int, 0), default=0),
    Parser.add_json_flag,
)
def approvals(args: Args) -> None:
    client = Client.for_this_user()
    row = client.find_run(args.run) if args.run else None
    most = None if row else _row_limit_or_default(args)
    found = client.waiting_requests(row.run if row else None, None if most is None else most + 1, args.offset)
    names = [*dict.fromkeys(request.run for request in found)]
    shown = names[:most]
    of_these = {*shown}
    requests = [request for request in found if request.run in of_these]
    if args.json:
        print_json([{"run": r.run, "asked_at": r.asked_at, **r.fields} for r in requests])
        return _print_next_page_hint(args, names, shown, "approvals")
    if not requests:
        where = f"run {row.run!r} (it is {row.status})" if row else "any run"
        return remark_paint().print_line(f"No open requests in {where}.")
    paint = result_paint()
    if row:
        lines = pending_request_lines(row.run, row.title, [r.fields for r in requests], paint, limit=None)
    else:
        lines = _request_overview_lines({r.run: r for r in client.runs_by_id(shown)}, requests, paint)
        _print_next_page_hint(args, names, shown, "approvals")
    paint.print_lines(lines)


def _request_overview_lines(runs: dict[str, RunRow], requests: list[Request], paint: Paint) -> Iterator[str]:
    for run, group in groupby(requests, lambda r: r.run):
        waiting = list(group)
        if run not in runs:
            continue
        about = f"asked {format_age(waiting[0].asked_at)} · {abbreviate_home(runs[run].workspace)}"
        yield paint(f"{run}  {to_one_line(runs[run].title, 60)}", "bold") + paint(f"  {about}", "dim")
        for request in waiting:
            width = paint.width - len(request.id) - 6 if paint.is_terminal else 0
            yield f"  {paint(request.id, 'cyan')}  {to_one_line(request_headline(request.fields), width)}"
            yield paint(f"  {'':{len(request.id)}}  {to_one_line(request.fields['reason'], width)}", "dim")
        yield f"  look:     {paint(f'interlock approvals {run}', 'cyan')}"
        if any(r.fields["kind"] == "approval" for r in waiting):
            yield f"  approve:  {paint(f'interlock resume {run} --approve all', 'cyan')}"
        yield ""


@declare_arguments(
    Parser.add_run_argument,
    flag_argument("--all", "include the steps of nested graphs"),
    flag_argument("--json", "print JSON, always with --all"),
)
def history(args: Args) -> int | None:
    client = Client.for_this_user()
    run = client.find_run(args.run)
    taken = [s for s in client.steps(run.run) if not is_hidden_node(s.node)]
    if args.json:
        points = [{"step": c.step, "id": c.id, "source": c.source} for c in client.checkpoints(run.run)]
        return print_json({"run": run.run, "checkpoints": points, "steps": [s._asdict() for s in taken]})
    header = ("step", "at", "node", "took", "changed", "went")
    cells = [_step_cells(s) for s in taken if args.all or s.depth == 0]
    return print_table(cells, header, flexible=(4, 5), max_width_in_pipe=_PIPED)


_PIPED = 120
"""Columns of a history in a pipe or a file; `--json` has all."""


def _step_cells(step: Step) -> tuple[str, ...]:
    at = format_local_time(step.started)
    node = "  " * step.depth + step.node
    number = str(step.step) if step.saved else ""  # the others ran on the way to it
    did = f"effects: {', '.join(step.effects)}" if step.effects else ""
    went = ": ".join(part for part in (step.route, to_one_line(step.reason, 120), did) if part)
    return (number, at, node, format_duration(step.ms / 1000), ", ".join(step.keys), went)


_HASH = re.compile(r"\b[0-9a-f]{64}\b")
"""Ids of records, too long to show in full."""


@declare_arguments(
    Parser.add_run_argument,
    argparse_argument(
        "steps",
        type=number_parser(int, -1),
        metavar="STEP",
        nargs="*",
        help="step number, from: interlock history RUN",
    ),
    flag_argument("--files", "show changes to files"),
    Parser.add_call_flag,
    Parser.add_json_flag,
)
def diff(args: Args) -> int | None:
    client = Client.for_this_user()
    if args.files or args.call:
        return _show_file_diff(client, args)
    if len(args.steps) != 2:
        raise UserError("`diff` takes RUN STEP STEP, or RUN --files. See: interlock diff --help")
    run = client.find_run(args.run).run
    old, new = (client.masked_state(run, step) for step in args.steps)
    before, after = (client.read_messages(run, state) for state in (old, new))
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    changes = _diff_states(old, new)
    if args.json:
        messages = [m.model_dump(mode="json", exclude_defaults=True) for m in after[shared:]]
        dropped = len(before) - shared
        return print_json({"run": run, "changed": changes, "messages": messages, "messages_dropped": dropped})
    lines = [
        *_state_change_lines(changes),
        *_message_lines_with_sign(before[shared:], "-"),
        *_message_lines_with_sign(after[shared:], "+"),
    ]
    paint = result_paint()
    paint.print_lines(paint(line, "green" if line.startswith("+") else "red") for line in lines)
    if not lines:
        remark_paint().print_line("Nothing changed.")


def _show_file_diff(client: Client, args: Args) -> None:
    """The diff of all the run's calls combined, without changes others made to other files."""
    from interlock.cli.commands.travel import warn_about_unrestorable_files

    run = client.find_run(args.run)
    warn_about_unrestorable_files(client, run.run)
    paint = result_paint()
    text = client.diff_files(run.run, args.call)
    if args.json:
        print_json({"run": run.run, "diff": text})
    elif text:
        paint.print_lines(coloured_diff_lines(text, paint)) if paint.has_colours else paint.print_line(
            text.rstrip("\n"), keep_newlines=True
        )
    else:
        remark_paint().print_line("No file changed.")


def _state_change_lines(changes: Mapping[str, tuple[str | None, str | None]]) -> Iterator[str]:
    for key, sides in changes.items():
        for sign, value in zip("-+", sides, strict=True):
            if value is not None:
                short = _HASH.sub(lambda name: f"{name[0][:12]}…", make_visible(value))
                yield f"{sign} {key}: {short}"


def _message_lines_with_sign(messages: "Sequence[Message]", sign: str) -> Iterator[str]:
    for message in messages:
        calls = ", ".join(call.name for call in message.tool_calls)
        called = f" [calls {calls}]" if calls else ""
        yield f"{sign} {message.role}: {to_one_line(message.text, 90)}{called}"


def _diff_states(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    """Dotted key → (before, after) as JSON; None: absent."""
    was, now = _flatten_to_dotted_keys(old), _flatten_to_dotted_keys(new)
    return {k: (was.get(k), now.get(k)) for k in {**was, **now} if was.get(k) != now.get(k)}


def _flatten_to_dotted_keys(value: Any, key: str = "") -> dict[str, str]:
    if not isinstance(value, dict) or (key and not value):
        return {key: to_json_text(cast(object, value))}
    found: dict[str, str] = {}
    for name, part in cast(dict[str, Any], value).items():
        found |= _flatten_to_dotted_keys(part, f"{key}.{name}" if key else name)
    return found
