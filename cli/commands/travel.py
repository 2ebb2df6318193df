"""travel: goes to another point in a run: fork, rewind, undo, replay."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        "Make a new run that shares the past of RUN up to STEP, in a new folder next to its own, with the files as\n"
        "they were then. RUN is never changed. Files that git ignores aren't copied.",
        [
            ("interlock fork latest --at 7", "then: interlock resume FORK -p 'try it another way'"),
            ("interlock fork 4k2 --at 7 --workspace ../second", "into a folder of that name"),
        ],
    )
    made.run_flag()
    made.at_flag()
    flag(made, "--workspace --cd DIR", "a folder that isn't there yet, or is empty", type=Path)
    flag(made, "--in-place", "in the run's own folder, without a question; see: interlock rewind")
    made.json_flag()
    return made


def fork(args: Args) -> int | None:
    if args.in_place and args.workspace:
        raise UserError("--in-place uses the run's own folder, --workspace another. Give one of them.")
    client = Client.at_home()
    tell_unkept(client, args.run)
    made = client.fork(args.run, args.at, workspace=args.workspace, in_place=args.in_place)
    return _tell_forked(made, args.json)


def tell_unkept(client: Client, run: str) -> None:
    if line := client.unkept(run):
        err().print(line)


def _tell_forked(fork: "Forked", as_json: bool) -> int:
    if as_json:
        show_json(vars(fork))
        return 0
    paint = out()
    paint.print(
        f"Run {fork.run} is forked from {fork.parent} at step {fork.step}, in {place(fork.workspace)}."
    )
    paint.print(f"Go on: interlock resume {fork.run}   or with more: interlock resume {fork.run} -p '…'")
    return 0


def rewind_parser() -> Parser:
    made = Parser(
        "rewind",
        "RUN --at STEP [--yes] [--json]",
        "Bring the files of a run's folder back to what they were at STEP, and go on from there in a new run.\n"
        "Shows what will change first. RUN is never changed.",
        [("interlock rewind latest --at 7", ""), ("interlock rewind 4k2 --at 7 --yes", "without a question")],
    )
    made.run_flag()
    made.at_flag()
    flag(made, "--yes", "change the files without a question")
    made.json_flag()
    return made


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
    nobody = f"These files in {run.workspace!r} would change. Nobody can be asked here: say it with --yes"
    if found and not args.yes and not agreed("Change these files?", nobody):
        paint.print("Nothing was changed.")
        return 1
    tell_unkept(client, run.run)
    return _tell_forked(rewound.forked(), args.json)


def undo_parser() -> Parser:
    made = Parser(
        "undo",
        "RUN [--call ID] [--json]",
        "Take back what a run did to the files. If somebody has changed one of them since, nothing is.\n"
        "The run itself stays as it is; `rewind` goes back with the conversation, too.",
        [
            ("interlock undo latest", ""),
            ("interlock undo 4k2 --call 3", "one call, by its number in: interlock show 4k2 --calls"),
        ],
    )
    made.run_flag()
    made.call_flag()
    made.json_flag()
    return made


def undo(args: Args) -> int | None:
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
        err().print("Nothing to take back: the files are as they were.")


def replay_parser() -> Parser:
    made = Parser(
        "replay",
        "RUN [--until STEP] [--swap NODE=FILE.py:FUNCTION | --model MODEL] [--json]",
        "Execute a run's graph once more from the replies, results and decisions that were recorded: offline, and\n"
        "without touching a file. Prints each step with the hash of its state, and the first that is another now, as\n"
        "after a change of a prompt or of a graph. Exit code 1 where there is one.\n\n"
        "--swap puts a function of yours in the place of one node's: it is decorated with @node, has the same labels,\n"
        "and runs like any code of yours. --model goes on with another model, for real: in a fork, in a new folder\n"
        "next to the run's own, with the files as they were; what a person decided counts for the same request, any\n"
        "other one waits. Both begin at --until STEP where that is given, and show where the paths part.",
        [
            ("interlock replay latest", ""),
            ("interlock replay 4k2 --until 7", "compare no further than step 7"),
            ("interlock replay 4k2 --swap draft=new.py:draft", "the node draft, as new.py has it"),
            ("interlock replay 4k2 --swap turn/finish=new.py:end", "a node of the part turn"),
            ("interlock replay 4k2 --until 7 --model flash", "from step 7 on with another model"),
        ],
    )
    made.run_flag()
    flag(made, "--until STEP", "a step of: interlock history RUN", type=number(int, -1))
    flag(made, "--swap NODE=FILE.py:FUNCTION", "another function in the place of a node's")
    flag(made, "-m --model MODEL", "go on with this model, in a fork; as: interlock --model")
    made.json_flag()
    return made


def replay(args: Args) -> int | None:
    if args.swap and args.model:
        raise UserError("--swap replays offline, --model asks a model. Give one of them.")
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
        paint.print(paint(f"The same to the end: {len(found.points)} states ({took}).", "green"))
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
    paint.print(
        f"Run {fork.run} is forked from {fork.parent} at step {fork.step}, in {place(fork.workspace)}."
    )
    if found.divergence is None:
        paint.print("It went the way of the recorded one.")
    else:
        paint.print_all([*_divergence_lines(found.divergence), *_ways(found.paths)])
    return outcome.exit_code


def _divergence_lines(found: Mapping[str, Any]) -> list[str]:
    was, now = (", ".join(map(str, found[side])) or "nothing" for side in ("recorded", "replayed"))
    lines = [f"Step {found['step']} is another: recorded {was}, replayed {now}."]
    if found.get("keys"):
        lines.append(f"  changed in the state: {', '.join(map(str, found['keys']))}")
    lines += [f"  another request: {line}" for line in found.get("requests", ())]
    if found.get("error"):
        lines.append(f"  the replay ended with: {found['error']['message']}")
    return lines


def _ways(paths: Any) -> Iterator[str]:
    for name, nodes in paths._asdict().items():
        yield f"{name:<9} {way(nodes)}"
