"""trust: shows what a folder brings along, asks whether it may count, and remembers the answer."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import Paint, one_line, place, show_json, show_table, visible
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.services.trust import Answer, ProjectFile


def parser() -> Parser:
    made = Parser(
        "trust",
        "[DIR] [FLAGS]",
        "Let a folder's own settings, hooks, policies, agents, servers and .env count, after a look at them.\n"
        "It holds for everything below the folder, also for what comes later; the longest folder decides.",
        [
            ("interlock trust", "look at what this folder brings along, and decide"),
            ("interlock trust ~/work/app --yes", "without being asked"),
            ("interlock trust --untrust", "take it back"),
        ],
    )
    made.add_argument("folder", nargs="?", default=".", metavar="DIR", help="default: this folder")
    flag(made, "--yes", "don't ask; needed without a terminal")
    flag(made, "--parent", "the folder around it, and all that is in that")
    flag(made, "--untrust", "what it brings along shall not count")
    flag(made, "--list", "what was said, of any folder")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.services.trust import answer_for, answers, project_files, remember

    home = Path.home()
    if args.list:
        _show_answers(answers(home), args.json)
        return 0
    root = _folder(args)
    known, files = answer_for(root, home), project_files(root, home)
    wanted = not args.untrust
    same = known is not None and known.trusted == wanted
    if not args.json:
        _show(root, files)
    if not same and (args.untrust or args.yes or _agreed(root)):
        remember(root, home, trusted=wanted)
        known = answer_for(root, home)
    if args.json:
        show_json(_object(root, known, files))
    trusted = known is not None and known.trusted
    if not args.json or trusted != wanted:
        _tell(root, known, wanted)
    return 0 if trusted == wanted or not wanted else 1


def _folder(args: argparse.Namespace) -> Path:
    folder = Path(args.folder).expanduser()
    if not folder.is_dir():
        raise UserError(f"No folder {args.folder!r}. Give a path to a folder that exists.")
    real = Path(os.path.realpath(folder))
    return real.parent if args.parent else real


def _agreed(root: Path) -> bool:
    """Raises `UserError` where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UserError(f"Trusting {str(root)!r} is a person's word: say it with interlock trust --yes")
    sys.stderr.write(f"Trust {visible(place(str(root)))} and everything below it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show(root: Path, files: "list[ProjectFile]") -> None:
    from interlock.services.trust import shown_path

    paint = Paint(sys.stdout)
    if not files:
        paint.print(f"{place(str(root))} brings nothing along that needs trust.")
        return
    paint.print(f"{place(str(root))} brings along:")
    for file in files:
        paint.print(f"  {paint(one_line(shown_path(file.path, root)), 'bold')}")
        for line in file.runs:
            paint.print(f"    {one_line(line)}")


def _tell(root: Path, known: "Answer | None", wanted: bool) -> None:
    """What holds now, and what to do where that isn't what was wanted."""
    from interlock.services.trust import TRUST_FILE

    said = f", by {place(str(known.source))}" if known else ""
    trusted = known is not None and known.trusted
    state = "trusted" if trusted else "not trusted"
    where = f" with {place(str(known.directory))}" if known and known.directory not in (None, root) else ""
    hint = ""
    if trusted != wanted:
        hint = " Nothing was changed." if wanted else f" Take that back there, or see ~/{TRUST_FILE}."
    Paint(sys.stderr).print(f"{place(str(root))} is {state}{where}{said}.{hint}")


def _object(root: Path, known: "Answer | None", files: "list[ProjectFile]") -> dict[str, Any]:
    return {
        "folder": str(root),
        "trusted": known is not None and known.trusted,
        "by": {"folder": str(known.directory or "/"), "file": str(known.source)} if known else None,
        "files": [{"path": str(file.path), "runs": list(file.runs)} for file in files],
    }


def _show_answers(said: "list[Answer]", json: bool) -> None:
    if json:
        show_json([{"folder": str(a.directory), "trusted": a.trusted, "file": str(a.source)} for a in said])
        return
    if not said:
        print("No folder was decided on yet. Look at one: interlock trust DIR", file=sys.stderr)
        return
    words = {True: "trusted", False: "untrusted"}
    rows = [(place(str(a.directory)), words[a.trusted], place(str(a.source))) for a in said]
    show_table(rows, ("folder", "is", "said in"))
