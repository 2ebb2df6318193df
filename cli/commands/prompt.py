"""prompt: `interlock -p …`: one prompt on `main`, without a session."""

import sys

from interlock.cli.driving import go_on, start, view_for
from interlock.cli.flags import NO_SESSION, add_running_flags, options_from
from interlock.cli.inputs import prompt_from
from interlock.cli.parsing import NotYetError, Parser, flag
from interlock.state.errors import UserError


def parser() -> Parser:
    made = Parser(
        "",
        "-p PROMPT [FLAGS]",
        "Work on one prompt in this folder, answer, and end.",
        [
            ("interlock -p 'why does test_login fail?'", "the answer on stdout, progress on stderr"),
            ("git diff | interlock -p 'review this' -o json", "piped text comes before the prompt"),
            ("interlock -c -p 'now add a test'", "one more prompt in the latest run"),
        ],
    )
    made.add_argument("words", nargs="*", metavar="PROMPT", help="what to do; same as -p")
    made.add_argument("-p", "--prompt", "--print", nargs="?", const="", help="what to do")
    flag(made, "-r --resume RUN", "go on with this run: id, prefix or latest")
    flag(made, "-c --continue", "go on with the latest run of this folder", dest="latest")
    add_running_flags(made)
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    words = " ".join(filter(None, [args.prompt, *args.words]))
    name = "latest" if args.latest else args.resume
    if not words and args.prompt is None and not name and sys.stdin.isatty():
        raise NotYetError(f"{NO_SESSION}. Or look around: interlock --help")
    options = options_from(args, resuming=bool(name))
    if name:
        if args.latest and args.resume:
            raise UserError("-c goes on with the latest run, -r with the one you name. Give one of them.")
        from interlock.engine.read.runs import find_run

        run = find_run(options.home, name, options.workspace)
        return go_on(run.run, (), words or None, options, view_for(args, run.title))
    prompt = prompt_from(words)
    return start("main", {"prompt": prompt}, options, view_for(args, prompt))
