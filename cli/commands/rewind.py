"""rewind: fork in place, after showing which files will change."""

import sys

from interlock.cli.commands.fork import at_flag, forked
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import Paint
from interlock.engine.read.runs import find_run
from interlock.engine.store.database import state_home
from interlock.state.errors import UserError

_SHOWN = 40
_COLOURS = {"A": "green", "M": "yellow", "D": "red"}


def parser() -> Parser:
    made = Parser(
        "rewind",
        "RUN --at STEP [--yes] [--json]",
        "Bring the files of a run's folder back to what they were at STEP, and go on from there in a new run.\n"
        "Shows what will change first. RUN is never changed.",
        [("interlock rewind latest --at 7", ""), ("interlock rewind 4k2 --at 7 --yes", "without a question")],
    )
    made.run_flag()
    at_flag(made)
    flag(made, "--yes", "change the files without a question")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.engine.travel.files import RunFiles, marks

    run = find_run(state_home(), args.run)
    files = RunFiles(state_home(), run)
    files.refuse_driven()
    work, now = files.to_step(args.at)
    paint = Paint(sys.stderr)
    found = list(marks(work, now))
    paint.print_all(f"{paint(mark, _COLOURS[mark])} {path}" for mark, path in found[:_SHOWN])
    if len(found) > _SHOWN:
        paint.print(f"… and {len(found) - _SHOWN} more")
    if not found:
        paint.print("No file will change.")
    if found and not args.yes and not _agreed(run.workspace):
        paint.print("Nothing was changed.")
        return 1
    return forked(run.run, args.at, None, True, args.json)


def _agreed(folder: str) -> bool:
    """Raises `UserError` where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UserError(
            f"These files in {folder!r} would change. Nobody can be asked here: say it with --yes"
        )
    sys.stderr.write("Change these files? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
