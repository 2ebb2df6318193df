"""fork: a new run that shares a run's past up to a step, with the files as they were then."""

import sys
from pathlib import Path

from interlock.cli.parsing import Parser, flag, number
from interlock.cli.render.output import place, show_json
from interlock.engine.read.runs import RunRow, find_run
from interlock.engine.store.database import state_home
from interlock.state.errors import UserError


def parser() -> Parser:
    made = Parser(
        "fork",
        "RUN --at STEP [--workspace DIR | --in-place] [--json]",
        "Make a new run that shares the past of RUN up to STEP, in a new folder beside its own with the files as they\n"
        "were then. RUN is never changed. What git ignores isn't brought along.",
        [
            ("interlock fork latest --at 7", "then: interlock resume FORK -p 'try it another way'"),
            ("interlock fork 4k2 --at 7 --workspace ../second", "into a folder of that name"),
        ],
    )
    made.run_flag()
    at_flag(made)
    flag(made, "--workspace --cd DIR", "a folder that isn't there yet, or is empty", type=Path)
    flag(made, "--in-place", "in the run's own folder, without a question; see: interlock rewind")
    made.json_flag()
    return made


def at_flag(made: Parser) -> None:
    flag(made, "--at STEP", "a step of: interlock history RUN", type=number(int, -1), required=True)


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    if args.in_place and args.workspace:
        raise UserError("--in-place uses the run's own folder, --workspace another. Give one of them.")
    return forked(args.run, args.at, args.workspace, args.in_place, args.json)


def tell_unkept(run: RunRow) -> None:
    from interlock.engine.travel.files import unkept

    if line := unkept(state_home(), run):
        print(line, file=sys.stderr)


def forked(name: str, step: int, workspace: Path | None, in_place: bool, as_json: bool) -> int:
    """Fork and tell; the exit code."""
    from interlock.engine.travel.fork import fork_run

    tell_unkept(find_run(state_home(), name))
    fork = fork_run(state_home(), name, step, workspace=workspace, in_place=in_place)
    if as_json:
        show_json(vars(fork))
        return 0
    print(f"Run {fork.run} is forked from {fork.parent} at step {fork.step}, in {place(fork.workspace)}.")
    print(f"Go on: interlock resume {fork.run}   or with more: interlock resume {fork.run} -p '…'")
    return 0
