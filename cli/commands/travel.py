"""travel: fork, rewind, undo and replay runs; go on with a thread that LangGraph drove elsewhere."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.commands.show import run_lines
from interlock.cli.flags import add_running_flags, options_from
from interlock.cli.inputs import agreed
from interlock.cli.parsing import Args, Parser, flag, number
from interlock.cli.render.output import CHANGED, elapsed, err, out, place, show_json, way
from interlock.engine.client import Client
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.client import Forked, Replayed

_FILES_SHOWN = 40


def fork_parser() -> Parser:
    made = Parser(
        "fork",
        "RUN --at STEP [--workspace DIR | --in-place] [--json]",
        "Start a new run that shares the past of RUN up to STEP, in a new folder next to the run's own, with the\n"
        "files as they were at STEP. RUN doesn't change. Files ignored by git aren't copied.",
        [
            ("interlock fork latest --at 7", "then: interlock resume FORK -p 'try it another way'"),
            ("interlock fork 4k2 --at 7 --workspace ../second", "fork into this folder"),
        ],
    )
    made.run_flag()
    made.at_flag()
    flag(made, "--workspace --cd DIR", "new or empty folder for the fork", type=Path)
    flag(made, "--in-place", "fork in the run's folder without asking; see: rewind")
    return made.json_flag()


def fork(args: Args) -> int | None:
    if args.in_place and args.workspace:
        raise UserError("--in-place uses the run's own folder, --workspace another. Give only one of them.")
    client = Client.at_home()
    tell_unkept(client, args.run)
    made = client.fork(args.run, args.at, workspace=args.workspace, in_place=args.in_place)
    return _tell_forked(made, args.json)


def tell_unkept(client: Client, run: str) -> None:
    if line := client.unkept(run):
        err().print(line)


def _tell_forked(fork: "Forked", as_json: bool) -> None:
    if as_json:
        return show_json(vars(fork))
    paint = out()
    paint.print(f"Forked run {fork.run} from {fork.parent} at step {fork.step}, in {place(fork.workspace)}.")
    paint.print(f"Resume it: interlock resume {fork.run}   with a prompt: interlock resume {fork.run} -p '…'")


def rewind_parser() -> Parser:
    made = Parser(
        "rewind",
        "RUN --at STEP [--yes] [--json]",
        "Restore the files of a run's folder to STEP, and continue from there in a new run.\n"
        "Interlock shows the changes and asks first. RUN doesn't change.",
        [("interlock rewind latest --at 7", ""), ("interlock rewind 4k2 --at 7 --yes", "don't ask")],
    )
    made.run_flag()
    made.at_flag()
    flag(made, "--yes", "change the files without asking")
    return made.json_flag()


def rewind(args: Args) -> int | None:
    client, paint = Client.at_home(), err()
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


def undo_parser() -> Parser:
    made = Parser(
        "undo",
        "RUN [--call ID] [--json]",
        "Undo the file changes of a run. If somebody has changed one of the files since, nothing is undone.\n"
        "The run and its conversation stay. To go back in both, use rewind.",
        [("interlock undo latest", ""), ("interlock undo 4k2 --call 3", "undo one call")],
    )
    made.run_flag()
    made.call_flag()
    return made.json_flag()


def undo(args: Args) -> None:
    client = Client.at_home()
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


def replay_parser() -> Parser:
    made = Parser(
        "replay",
        "RUN [--until STEP] [--swap NODE=FILE.py:FUNCTION | --model MODEL] [--json]",
        "Execute a run's graph again with the recorded replies, results and decisions. Replay works offline and\n"
        "touches no file. It prints each step with the hash of its state, and the first step that differs, for\n"
        "example after you change a prompt or a graph. Exit code 1 if a step differs.\n\n"
        "--swap replaces a node's function with yours. Decorate it with @node and keep the labels. It runs as\n"
        "ordinary code, so it can have effects. --model continues with another model and real effects, in a fork:\n"
        "a new folder with the files of that step. Recorded decisions answer identical requests; other requests\n"
        "stay open. With both flags, --until STEP sets the step at which the change starts.",
        [
            ("interlock replay latest", ""),
            ("interlock replay 4k2 --until 7", "stop after step 7"),
            ("interlock replay 4k2 --swap draft=new.py:draft", "use draft from new.py for the node draft"),
            ("interlock replay 4k2 --swap turn/finish=new.py:end", "replace a node of the nested graph turn"),
            ("interlock replay 4k2 --until 7 --model flash", "continue from step 7 with another model"),
        ],
    )
    made.run_flag()
    flag(made, "--until STEP", "step number, from: interlock history RUN", type=number(int, -1))
    flag(made, "--swap NODE=FILE.py:FUNCTION", "replace the function of a node")
    flag(made, "-m --model MODEL", "continue with this model, in a fork")
    return made.json_flag()


def replay(args: Args) -> int | None:
    if args.swap and args.model:
        raise UserError("--swap replays offline, --model calls a model. Give only one of them.")
    return _gone_on(args) if args.model else _replayed(args)


def _replayed(args: Args) -> int:
    found = Client.at_home().replay(args.run, args.until, args.swap)
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
        took = f"{elapsed(found.replayed_s)}, recorded {elapsed(found.recorded_s)}"
        paint.print(paint(f"No difference: {len(found.points)} states ({took}).", "green"))
        return
    paint.print_all(paint(line, "red") for line in _divergence_lines(found.divergence))
    paint.print_all(_ways(found.paths))


def _gone_on(args: Args) -> int:
    from interlock.cli.render.text import TextView

    view = None if args.json else TextView()
    found = Client.at_home().replay_with(args.run, args.model, args.until, [view] if view else ())
    outcome, fork = found.outcome, found.fork
    if view is None:
        ended = {"status": outcome.status, "output": outcome.output, "error": outcome.error}
        result = {**vars(fork), "divergence": found.divergence, "paths": found.paths._asdict(), **ended}
        show_json({**result, "pending_approvals": outcome.pending})
        return outcome.exit_code
    view.finish(outcome)
    paint = err()
    paint.print(f"Forked run {fork.run} from {fork.parent} at step {fork.step}, in {place(fork.workspace)}.")
    if found.divergence is None:
        paint.print("It took the recorded path.")
    else:
        paint.print_all([*_divergence_lines(found.divergence), *_ways(found.paths)])
    return outcome.exit_code


def _divergence_lines(found: Mapping[str, Any]) -> list[str]:
    was, now = (", ".join(map(str, found[side])) or "nothing" for side in ("recorded", "replayed"))
    lines = [f"Step {found['step']} differs: recorded {was}, replayed {now}."]
    if found.get("keys"):
        lines.append(f"  changed in the state: {', '.join(map(str, found['keys']))}")
    lines += [f"  changed request: {line}" for line in found.get("requests", ())]
    if found.get("error"):
        lines.append(f"  the replay ended with: {found['error']['message']}")
    return lines


def _ways(paths: Any) -> Iterator[str]:
    for name, nodes in paths._asdict().items():
        yield f"{name:<9} {way(nodes)}"


def import_parser() -> Parser:
    made = Parser(
        "import",
        "--from URL [WORKFLOW] THREAD [--json]",
        "Make a run of a LangGraph thread, with its checkpoints. Its interrupts become requests. The other database\n"
        "doesn't change: a file written by SqliteSaver or AsyncSqliteSaver, or PostgreSQL.",
        [
            ("interlock import --from checkpoints.db agent.py:graph 42", "then: interlock resume latest"),
            ("interlock import --from postgresql://me@host/agents 42", "the graph of langgraph.json"),
        ],
    )
    made.add_argument(
        "workflow",
        nargs="?",
        default="",
        metavar="WORKFLOW",
        help="the thread's graph: FILE.py:graph or a name (default: the only one of langgraph.json)",
    )
    made.add_argument("thread", metavar="THREAD", help="the thread's id")
    flag(made, "--from URL", "database file, or postgresql://…", dest="source", required=True)
    made.json_flag()
    add_running_flags(made)
    return made


def import_(args: Args) -> None:
    client, options = Client.at_home(), options_from(args)
    run = client.run(client.adopt(args.workflow, args.source, args.thread, options))
    if args.json:
        return show_json({"run": run.run, "status": run.status, "step": run.step})
    paint = out()
    paint.print(f"Thread {args.thread} is run {run.run} now.")
    paint.print_all(run_lines(client, run, paint))
