"""init: writes the memory file of a repository, from a look at it; the workflow `init` by a short name."""

from interlock.cli.commands.run import execute as run
from interlock.cli.flags import add_running_flags
from interlock.cli.parsing import Parser, flag


def parser() -> Parser:
    made = Parser(
        "init",
        "[HINT] [FLAGS]",
        "Look at this repository and write GEMINI.md (or what `context.fileName` says), which every conversation\n"
        "begins with. It is shown first, of a file that stands already as a diff. Same as: interlock run init",
        [
            ("interlock init", "look, and ask before the file is written"),
            ("interlock init 'the services below apps/ matter most'", "with a hint"),
            ("interlock init --file AGENTS.md", "under another name"),
        ],
    )
    made.add_argument("words", nargs="*", metavar="HINT", help="what else it shall look at, or hold")
    flag(made, "--file NAME", "one of `context.fileName`; default: the one that stands, else the first")
    add_running_flags(made)
    return made


def execute(arguments: list[str]) -> int:
    parser().parse(arguments)
    return run(["init", *arguments])
