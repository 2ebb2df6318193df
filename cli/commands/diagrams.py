"""diagrams: regenerates, or verifies, the diagrams that the repository keeps."""

import sys
from pathlib import Path

from interlock.cli.parsing import Parser, flag


def parser() -> Parser:
    made = Parser("diagrams", "--write|--check [FOLDER]", "Regenerate or verify the generated diagrams.")
    made.add_argument("folder", nargs="?", type=Path, default=Path("diagrams"), help="default: diagrams")
    which = made.add_mutually_exclusive_group(required=True)
    flag(which, "--write", "write what is missing or stale")
    flag(which, "--check", "exit 1 when something is missing or stale")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.engine.diagrams import check, write

    if args.write:
        for path in write(args.folder):
            print(path)
        return 0
    problems = check(args.folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0
