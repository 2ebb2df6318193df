"""resume: decides what waits, and goes on; also after a crash, a kill or Ctrl-C."""

from dataclasses import replace

from interlock.cli.decisions import add_decision_flags, decisions_from
from interlock.cli.driving import go_on, view_for
from interlock.cli.flags import add_running_flags, options_from
from interlock.cli.parsing import Parser, flag
from interlock.engine.read.runs import find_run, waiting_requests


def parser() -> Parser:
    made = Parser(
        "resume",
        "RUN [DECISIONS] [-p PROMPT] [FLAGS]",
        "Go on with a run. Decisions are kept from the moment they are accepted, whatever happens next;\n"
        "what isn't decided keeps waiting.",
        [
            ("interlock resume latest --approve all", "everything that was asked for may run"),
            ("interlock resume 4k2 --approve 1 --reject 2 --reason 'use the API'", "each by itself"),
            ("interlock resume 4k2 --approve 1 --always", "and don't ask for the same again in this run"),
            ('interlock resume 4k2 --edit 1=\'{"command": "pytest -x"}\'', "run something else instead"),
            ("interlock resume latest", "after a crash: nothing is lost or done twice"),
            ("interlock resume latest -p 'now the docs'", "one more prompt in the same conversation"),
        ],
    )
    made.run_flag()
    add_decision_flags(made)
    flag(made, "-p --prompt PROMPT", "one more prompt, after the run has answered")
    flag(made, "--compress", "compress its conversation now, in a prompt's place")
    flag(made, "--new-rules", "obey policies and settings as they are now")
    add_running_flags(made)
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    options = replace(options_from(args, resuming=True), new_rules=args.new_rules, compress=args.compress)
    run = find_run(options.home, args.run, options.workspace)
    waiting = [r.fields for r in waiting_requests(options.home, run.run)] if args.decisions else []
    decisions = decisions_from(args.decisions, waiting)
    view = view_for(args, run.title, [d.approval for d in decisions])
    return go_on(run.run, decisions, args.prompt, options, view)
