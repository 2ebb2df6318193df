"""travel: fork, rewind, undo and replay runs; go on with a thread that LangGraph drove elsewhere."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.commands.show import run_lines
from interlock.cli.flags import add_running_flags, options_from
from interlock.cli.inputs import agreed
from interlock.cli.parsing import Args, Parser, number, option, takes, word
from interlock.cli.render.output import CHANGED, abbreviate_home, err, format_duration, out, show_json, way
from interlock.engine.client import Client
from interlock.services.process.stdout import redirect_stdout_to_stderr
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.client import Forked, Replayed

_FILES_SHOWN = 40


@takes(
    Parser.run_flag,
    Parser.at_flag,
    option("--workspace --cd DIR", "new or empty folder for the fork", type=Path),
    option("--in-place", "fork in the run's folder without asking; see: rewind"),
    Parser.json_flag,
)
def fork(args: Args) -> int | None:
    if args.in_place and args.workspace:
        raise UserError("--in-place uses the run's own folder, --workspace another. Give only one of them.")
    client = Client.for_this_user()
    tell_unkept(client, args.run)
    made = client.fork(args.run, args.at, workspace=args.workspace, in_place=args.in_place)
    return _tell_forked(made, args.json)


def tell_unkept(client: Client, run: str) -> None:
    if line := client.unrestorable_line(run):
        err().print(line)


def _tell_forked(fork: "Forked", as_json: bool) -> None:
    if as_json:
        return show_json(vars(fork))
    paint = out()
    paint.print(
        f"Forked run {fork.run} from {fork.parent} at step {fork.step}, in {abbreviate_home(fork.workspace)}."
    )
    paint.print(f"Resume it: interlock resume {fork.run}   with a prompt: interlock resume {fork.run} -p '…'")


@takes(Parser.run_flag, Parser.at_flag, option("--yes", "change the files without asking"), Parser.json_flag)
def rewind(args: Args) -> int | None:
    client, paint = Client.for_this_user(), err()
    run = client.run(args.run)
    rewound = client.rewind(run.run, args.at)
    found = rewound.changes
    paint.print_all(f"{paint(mark, CHANGED[mark])} {path}" for mark, path in found[:_FILES_SHOWN])
    if len(found) > _FILES_SHOWN:
        paint.print(f"… and {len(found) - _FILES_SHOWN} more")
    if not found:
        paint.print("No file will change.")
    nobody = (
        f"Rewinding changes these files in {run.workspace!r}, and there is no terminal to ask in. Use --yes."
    )
    if found and not args.yes and not agreed("Change these files?", nobody):
        paint.print("Nothing was changed.")
        return 1
    tell_unkept(client, run.run)
    return _tell_forked(rewound.forked(), args.json)


@takes(Parser.run_flag, Parser.call_flag, Parser.json_flag)
def undo(args: Args) -> None:
    client = Client.for_this_user()
    run = client.run(args.run)
    changed = client.undo(run.run, args.call)
    tell_unkept(client, run.run)
    if args.json:
        return show_json(
            {"run": run.run, "changed": [{"path": path, "change": mark} for mark, path in changed]}
        )
    paint = out()
    paint.print_all(f"{mark} {path}" for mark, path in changed)
    if not changed:
        err().print("Nothing to undo: the files are as they were.")


@takes(
    Parser.run_flag,
    option("--until STEP", "step number, from: interlock history RUN", type=number(int, -1)),
    option("--swap NODE=FILE.py:FUNCTION", "replace the function of a node"),
    option("-m --model MODEL", "continue with this model, in a fork"),
    option("--live", "run the nodes of a LangGraph graph again"),
    option("--yes", "with --live, run them without asking"),
    Parser.json_flag,
)
def replay(args: Args) -> int | None:
    if args.swap and args.model:
        raise UserError("--swap replays offline, --model calls a model. Give only one of them.")
    if args.live and (args.swap or args.model):
        raise UserError("--live runs the nodes of a graph as they are. Give it without --swap and --model.")
    if args.live and not _may_run(args):
        err().print("Nothing was run.")
        return 1
    with redirect_stdout_to_stderr():
        return _gone_on(args) if args.model else _replayed(args)


def _may_run(args: Args) -> bool:
    """Show what a live replay runs; whether the person agrees. Raises `UserError` if there is nobody to ask."""
    paint = err()
    nodes = Client.for_this_user().live_nodes(args.run, args.until)
    paint.print("These nodes run again, with all that they do outside the graph:")
    paint.print_all(f"  {node}{f' ×{count}' if count > 1 else ''}" for node, count in nodes)
    paint.print("Answers of people and results of effect(…) come from the record.")
    nobody = "A live replay runs these nodes, and there is no terminal to ask in. Use --yes."
    return args.yes or agreed("Run them?", nobody)


def _replayed(args: Args) -> int:
    found = Client.for_this_user().replay(args.run, args.until, args.swap, live=args.live)
    if args.json:
        points = [{"step": p.step, "nodes": p.nodes, "state": p.state} for p in found.points]
        result = {
            "run": found.run,
            "steps": points,
            "divergence": found.divergence,
            "paths": found.paths._asdict(),
        }
        show_json({**result, "recorded_s": found.recorded_s, "replayed_s": found.replayed_s})
    else:
        _show_replayed(found)
    return 1 if found.divergence else 0


def _show_replayed(found: "Replayed") -> None:
    paint = out()
    differs = found.divergence["step"] if found.divergence else None
    for point in found.points:
        if differs is None or point.step < differs:
            paint.print(f"{point.step:>4}  {point.state[:12]}  {', '.join(point.nodes)}")
    if found.divergence is None:
        took = f"{format_duration(found.replayed_s)}, recorded {format_duration(found.recorded_s)}"
        paint.print(paint(f"No difference: {len(found.points)} states ({took}).", "green"))
        return
    paint.print_all(paint(line, "red") for line in _divergence_lines(found.run, found.divergence))
    paint.print_all(_ways(found.paths))


def _gone_on(args: Args) -> int:
    from interlock.cli.render.text import TextView

    view = None if args.json else TextView()
    found = Client.for_this_user().replay_with(args.run, args.model, args.until, [view] if view else ())
    outcome, fork = found.outcome, found.fork
    if view is None:
        ended = {"status": outcome.status, "output": outcome.shown, "error": outcome.error}
        result = {**vars(fork), "divergence": found.divergence, "paths": found.paths._asdict(), **ended}
        show_json({**result, "pending_approvals": outcome.pending})
        return outcome.exit_code
    view.finish(outcome)
    paint = err()
    paint.print(
        f"Forked run {fork.run} from {fork.parent} at step {fork.step}, in {abbreviate_home(fork.workspace)}."
    )
    if found.divergence is None:
        paint.print("It took the recorded path.")
    else:
        paint.print_all([*_divergence_lines(fork.run, found.divergence), *_ways(found.paths)])
    return outcome.exit_code


def _divergence_lines(run: str, found: Mapping[str, Any]) -> list[str]:
    error: Mapping[str, str] = found.get("error") or {}
    if error.get("type") in ("changed", "record"):
        return [
            f"The replay stops before step {found['step']}: {error['message']}",
            f"To run the nodes again, with all their effects: interlock replay {run} --live",
        ]
    was, now = (", ".join(map(str, found[side])) or "nothing" for side in ("recorded", "replayed"))
    lines = [f"Step {found['step']} differs: recorded {was}, replayed {now}."]
    if found.get("keys"):
        lines.append(f"  changed in the state: {', '.join(map(str, found['keys']))}")
    lines += [f"  changed request: {line}" for line in found.get("requests", ())]
    if error:
        lines.append(f"  the replay ended with: {error['message']}")
    return lines


def _ways(paths: Any) -> Iterator[str]:
    for name, nodes in paths._asdict().items():
        yield f"{name:<9} {way(nodes)}"


@takes(
    word(
        "workflow",
        nargs="?",
        default="",
        metavar="WORKFLOW",
        help="the thread's graph: FILE.py:graph or a name (default: the only one of langgraph.json)",
    ),
    word("thread", metavar="THREAD", help="the thread's id"),
    option("--from URL", "database file, or postgresql://…", dest="source", required=True),
    Parser.json_flag,
    partial(add_running_flags, serving=True),
)
def import_(args: Args) -> None:
    client, options = Client.for_this_user(), options_from(args)
    run = client.run(client.adopt(args.workflow, args.source, args.thread, options))
    if args.json:
        return show_json({"run": run.run, "status": run.status, "step": run.step})
    paint = out()
    paint.print(f"Thread {args.thread} is run {run.run} now.")
    paint.print_all(run_lines(client, run, paint))
