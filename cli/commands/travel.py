"""travel: fork, rewind, undo and replay runs; go on with a thread that LangGraph drove elsewhere."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.commands.agent_import import AGENT, show_and_apply_agent_import
from interlock.cli.commands.show import run_summary_lines
from interlock.cli.flags import add_run_flags, build_run_options
from interlock.cli.inputs import ask_to_confirm
from interlock.cli.parsing import (
    Args,
    Parser,
    argparse_argument,
    declare_arguments,
    flag_argument,
    number_parser,
)
from interlock.cli.render.output import (
    CHANGE_COLOURS,
    abbreviate_home,
    format_duration,
    format_node_path,
    print_json,
    remark_paint,
    result_paint,
)
from interlock.engine.client import Client
from interlock.services.process.stdout import redirect_stdout_to_stderr
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.client import Forked, ReplayResult

_FILES_SHOWN = 40


@declare_arguments(
    Parser.add_run_argument,
    Parser.add_required_step_flag,
    flag_argument("--workspace --cd DIR", "new or empty folder for the fork", type=Path),
    flag_argument("--in-place", "fork in the run's folder without asking; see: rewind"),
    Parser.add_json_flag,
)
def fork(args: Args) -> int | None:
    if args.in_place and args.workspace:
        raise UserError("--in-place uses the run's own folder, --workspace another. Give only one of them.")
    client = Client.for_this_user()
    warn_about_unrestorable_files(client, args.run)
    made = client.fork_run(args.run, args.at, workspace=args.workspace, in_place=args.in_place)
    return _report_fork(made, args.json)


def warn_about_unrestorable_files(client: Client, run: str) -> None:
    if line := client.unrestorable_changes_line(run):
        remark_paint().print_line(line)


def _report_fork(forked: "Forked", as_json: bool) -> None:
    if as_json:
        return print_json(vars(forked))
    paint = result_paint()
    paint.print_line(
        f"Forked run {forked.run} from {forked.parent} at step {forked.step}, in {abbreviate_home(forked.workspace)}."
    )
    paint.print_line(
        f"Resume it: interlock resume {forked.run}   with a prompt: interlock resume {forked.run} -p '…'"
    )


@declare_arguments(
    Parser.add_run_argument,
    Parser.add_required_step_flag,
    flag_argument("--yes", "change the files without asking"),
    Parser.add_json_flag,
)
def rewind(args: Args) -> int | None:
    client, paint = Client.for_this_user(), remark_paint()
    run = client.find_run(args.run)
    rewound = client.plan_rewind(run.run, args.at)
    found = rewound.changes
    paint.print_lines(f"{paint(mark, CHANGE_COLOURS[mark])} {path}" for mark, path in found[:_FILES_SHOWN])
    if len(found) > _FILES_SHOWN:
        paint.print_line(f"… and {len(found) - _FILES_SHOWN} more")
    if not found:
        paint.print_line("No file will change.")
    nobody = (
        f"Rewinding changes these files in {run.workspace!r}, and there is no terminal to ask in. Use --yes."
    )
    if found and not args.yes and not ask_to_confirm("Change these files?", nobody):
        paint.print_line("Nothing was changed.")
        return 1
    warn_about_unrestorable_files(client, run.run)
    return _report_fork(rewound.restore_and_fork_at_step(), args.json)


@declare_arguments(Parser.add_run_argument, Parser.add_call_flag, Parser.add_json_flag)
def undo(args: Args) -> None:
    client = Client.for_this_user()
    run = client.find_run(args.run)
    changed = client.undo_changes(run.run, args.call)
    warn_about_unrestorable_files(client, run.run)
    if args.json:
        return print_json(
            {"run": run.run, "changed": [{"path": path, "change": mark} for mark, path in changed]}
        )
    paint = result_paint()
    paint.print_lines(f"{mark} {path}" for mark, path in changed)
    if not changed:
        remark_paint().print_line("Nothing to undo: the files are as they were.")


@declare_arguments(
    Parser.add_run_argument,
    flag_argument("--until STEP", "step number, from: interlock history RUN", type=number_parser(int, -1)),
    flag_argument("--swap NODE=FILE.py:FUNCTION", "replace the function of a node"),
    flag_argument("-m --model MODEL", "continue with this model, in a fork"),
    flag_argument("--live", "run the nodes of a LangGraph graph again"),
    flag_argument("--yes", "with --live, run them without asking"),
    Parser.add_json_flag,
)
def replay(args: Args) -> int | None:
    if args.swap and args.model:
        raise UserError("--swap replays offline, --model calls a model. Give only one of them.")
    if args.live and (args.swap or args.model):
        raise UserError("--live runs the nodes of a graph as they are. Give it without --swap and --model.")
    if args.live and not _confirm_live_replay(args):
        remark_paint().print_line("Nothing was run.")
        return 1
    with redirect_stdout_to_stderr():
        return _fork_with_model_and_report(args) if args.model else _replay_and_report(args)


def _confirm_live_replay(args: Args) -> bool:
    """Show what a live replay runs; whether the person agrees. Raises `UserError` if there is nobody to ask."""
    paint = remark_paint()
    nodes = Client.for_this_user().list_live_replay_nodes_with_counts(args.run, args.until)
    paint.print_line("These nodes run again, with all that they do outside the graph:")
    paint.print_lines(f"  {node}{f' ×{count}' if count > 1 else ''}" for node, count in nodes)
    paint.print_line("Answers of people and results of effect(…) come from the record.")
    nobody = "A live replay runs these nodes, and there is no terminal to ask in. Use --yes."
    return args.yes or ask_to_confirm("Run them?", nobody)


def _replay_and_report(args: Args) -> int:
    found = Client.for_this_user().replay_run(args.run, args.until, args.swap, live=args.live)
    if args.json:
        points = [{"step": p.step, "nodes": p.nodes, "state": p.state} for p in found.points]
        result = {
            "run": found.run,
            "steps": points,
            "divergence": found.divergence,
            "paths": found.paths._asdict(),
        }
        print_json({**result, "recorded_s": found.recorded_s, "replayed_s": found.replayed_s})
    else:
        _show_replay(found)
    return 1 if found.divergence else 0


def _show_replay(result: "ReplayResult") -> None:
    paint = result_paint()
    differs = result.divergence["step"] if result.divergence else None
    for point in result.points:
        if differs is None or point.step < differs:
            paint.print_line(f"{point.step:>4}  {point.state[:12]}  {', '.join(point.nodes)}")
    if result.divergence is None:
        took = f"{format_duration(result.replayed_s)}, recorded {format_duration(result.recorded_s)}"
        paint.print_line(paint(f"No difference: {len(result.points)} states ({took}).", "green"))
        return
    paint.print_lines(paint(line, "red") for line in _divergence_lines(result.run, result.divergence))
    paint.print_lines(_compared_path_lines(result.paths))


def _fork_with_model_and_report(args: Args) -> int:
    from interlock.cli.render.text_view import TextView

    view = None if args.json else TextView()
    found = Client.for_this_user().fork_with_model(args.run, args.model, args.until, [view] if view else ())
    outcome, fork = found.outcome, found.fork
    if view is None:
        ended = {"status": outcome.status, "output": outcome.display_output, "error": outcome.error}
        result = {**vars(fork), "divergence": found.divergence, "paths": found.paths._asdict(), **ended}
        print_json({**result, "pending_approvals": outcome.pending})
        return outcome.exit_code
    view.show_outcome(outcome)
    paint = remark_paint()
    paint.print_line(
        f"Forked run {fork.run} from {fork.parent} at step {fork.step}, in {abbreviate_home(fork.workspace)}."
    )
    if found.divergence is None:
        paint.print_line("It took the recorded path.")
    else:
        paint.print_lines(
            [*_divergence_lines(fork.run, found.divergence), *_compared_path_lines(found.paths)]
        )
    return outcome.exit_code


def _divergence_lines(run: str, divergence: Mapping[str, Any]) -> list[str]:
    error: Mapping[str, str] = divergence.get("error") or {}
    if error.get("type") in ("changed", "record"):
        return [
            f"The replay stops before step {divergence['step']}: {error['message']}",
            f"To run the nodes again, with all their effects: interlock replay {run} --live",
        ]
    was, now = (", ".join(map(str, divergence[side])) or "nothing" for side in ("recorded", "replayed"))
    lines = [f"Step {divergence['step']} differs: recorded {was}, replayed {now}."]
    if divergence.get("keys"):
        lines.append(f"  changed in the state: {', '.join(map(str, divergence['keys']))}")
    lines += [f"  changed request: {line}" for line in divergence.get("requests", ())]
    if error:
        lines.append(f"  the replay ended with: {error['message']}")
    return lines


def _compared_path_lines(paths: Any) -> Iterator[str]:
    for name, nodes in paths._asdict().items():
        yield f"{name:<9} {format_node_path(nodes)}"


@declare_arguments(
    argparse_argument(
        "workflow",
        nargs="?",
        default="",
        metavar="WORKFLOW",
        help="the thread's graph: FILE.py:graph or a name (default: the only one of langgraph.json)",
    ),
    argparse_argument("thread", nargs="?", default="", metavar="THREAD", help="the thread's id"),
    flag_argument("--from URL", "database file, or postgresql://…", dest="source"),
    flag_argument(
        "--agent NAME",
        "take over what claude, codex, gemini, roo or opencode keeps in your home",
        type=AGENT,
    ),
    flag_argument("--yes", "with --agent: take it over without asking"),
    flag_argument("--conversations", "with --agent: also what was said in this folder"),
    Parser.add_json_flag,
    partial(add_run_flags, for_server=True),
)
def import_(args: Args) -> int | None:
    if bool(args.agent) == bool(args.source):
        raise UserError("Give --agent NAME, or --from URL and a thread. See: interlock import --help")
    if args.agent:
        if args.workflow or args.thread:
            raise UserError(f"Unexpected argument {args.workflow or args.thread!r}: --agent takes none.")
        folder = Path(os.path.realpath(args.workspace or Path.cwd())) if args.conversations else None
        return show_and_apply_agent_import(
            args.agent, yes=args.yes, as_json=args.json, conversations_of=folder
        )
    if not args.thread:  # the only word is the thread
        args.workflow, args.thread = "", args.workflow
    if not args.thread:
        raise UserError("The following arguments are required: THREAD. See: interlock import --help")
    client, options = Client.for_this_user(), build_run_options(args)
    run = client.find_run(client.adopt_thread(args.workflow, args.source, args.thread, options))
    if args.json:
        print_json({"run": run.run, "status": run.status, "step": run.step})
        return None
    paint = result_paint()
    paint.print_line(f"Thread {args.thread} is run {run.run} now.")
    paint.print_lines(run_summary_lines(client, run, paint))
    return None
