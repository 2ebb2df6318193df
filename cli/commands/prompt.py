"""prompt: `interlock`: a session at a terminal; `-p …`: one prompt on `main`, without one."""

import argparse
import sys
from dataclasses import replace

from interlock.cli import quick_start
from interlock.cli.driving import go_on, start, view_for
from interlock.cli.flags import add_running_flags, options_from
from interlock.cli.inputs import prompt_from
from interlock.cli.parsing import Parser, flag
from interlock.state.errors import UserError


def parser() -> Parser:
    made = Parser(
        "",
        "[PROMPT] [FLAGS]",
        "Open a session in this folder; with -p, or where there is no terminal, work on one prompt and end.",
        [
            ("interlock", "a session: ask, watch, decide, go on"),
            ("interlock 'why does test_login fail?'", "a session that begins with a prompt"),
            ("interlock -c", "the session of before, as it was"),
            ("interlock -p 'why does test_login fail?'", "the answer on stdout, progress on stderr"),
            ("git diff | interlock -p 'review this' -o json", "piped text comes before the prompt"),
            ("interlock -c -p 'now add a test'", "one more prompt in the latest run"),
        ],
    )
    made.add_argument("words", nargs="*", metavar="PROMPT", help="what to do")
    made.add_argument("-p", "--prompt", "--print", nargs="?", const="", help="what to do, without a session")
    flag(made, "-i --prompt-interactive PROMPT", "what a session begins with", dest="first")
    flag(made, "-r --resume RUN", "go on with this run: id, prefix or latest")
    flag(made, "-c --continue", "go on with the latest run of this folder", dest="latest")
    add_running_flags(made)
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    if args.latest and args.resume:
        raise UserError("-c goes on with the latest run, -r with the one you name. Give one of them.")
    words = " ".join(filter(None, [args.prompt, args.first, *args.words]))
    name = "latest" if args.latest else args.resume
    options = options_from(args, resuming=bool(name))
    found = None
    if name:
        from interlock.engine.read.runs import find_run

        found = find_run(options.home, name, options.workspace)
    if _opens_session(args):
        quick_start.import_lightly()
        from interlock.cli.session import first_start

        if not name and first_start.is_needed(options):
            first_start.ask(options)
        from interlock.cli.session.app import execute as session

        return session(
            replace(options, interactive=True), "task" if args.mode else "main", words, found and found.run
        )
    quick_start.begin()
    if found:
        return go_on(found.run, (), words or None, options, view_for(args, found.title))
    prompt = prompt_from(words)
    return start("main", {"prompt": prompt}, options, view_for(args, prompt))


def _opens_session(args: argparse.Namespace) -> bool:
    """A person at a terminal, who didn't ask for an answer alone."""
    if args.first is not None and not _at_terminal():
        raise UserError("-i opens a session, and this is no terminal. Without one: interlock -p 'what to do'")
    return args.prompt is None and args.output_format == "text" and _at_terminal()


def _at_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
