"""undo: takes back what a run, or one of its calls, did to the files; never what somebody changed since."""

import sys

from interlock.cli.commands.fork import tell_unkept
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import Paint, show_json
from interlock.engine.read.runs import find_run
from interlock.engine.store.database import state_home


def parser() -> Parser:
    made = Parser(
        "undo",
        "RUN [--call ID] [--json]",
        "Take back what a run did to the files. Where somebody changed one of them since, nothing is taken back.\n"
        "The run itself stays as it is; `rewind` goes back with the conversation, too.",
        [
            ("interlock undo latest", ""),
            ("interlock undo 4k2 --call 3", "one call, by its number in: interlock show 4k2 --calls"),
        ],
    )
    made.run_flag()
    flag(made, "--call ID", "number or id of one call of: interlock show RUN --calls")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.engine.travel.files import RunFiles, chosen_of, marks, refuse_unkept

    run = find_run(state_home(), args.run)
    files = RunFiles(state_home(), run)
    files.refuse_driven()
    chosen = chosen_of(state_home(), run, args.call)
    refuse_unkept(state_home(), run, chosen)
    tell_unkept(run)
    work = files.undo(chosen)
    changed = list(marks(work, files.contents(files.now())))
    files.put(work)
    if args.json:
        show_json({"run": run.run, "changed": [{"path": path, "change": mark} for mark, path in changed]})
        return 0
    paint = Paint(sys.stdout)
    paint.print_all(f"{mark} {path}" for mark, path in changed)
    if not changed:
        print("Nothing to take back: the files are as they were.", file=sys.stderr)
    return 0
