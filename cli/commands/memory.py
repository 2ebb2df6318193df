"""memory: what the memory files hold, and one more line for them."""

import argparse
import os
from pathlib import Path

from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import show_json, show_table
from interlock.state.errors import UserError


def parser() -> Parser:
    made = Parser(
        "memory",
        "[show|add|refresh] [TEXT]",
        "The files that every conversation begins with: GEMINI.md, AGENTS.md and what they import.",
        [
            ("interlock memory", "which files there are, and what they hold"),
            ("interlock memory add 'Tests run with make test'", "one more line, in this folder's GEMINI.md"),
            ("interlock memory add --global 'Answer in English'", "for every folder"),
            ("interlock memory refresh", "read them anew; only names and sizes are shown"),
        ],
    )
    made.add_argument("action", nargs="?", default="show", metavar="show|add|refresh")
    made.add_argument("text", nargs="?", metavar="TEXT", help="add: what is to be remembered, in one line")
    flag(made, "--global", "add: to your own file, for every folder")
    flag(made, "-C --workspace DIR", "of the folder DIR", type=Path)
    flag(made, "--json", "as JSON")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    if args.action not in ("show", "add", "refresh"):
        raise UserError(f"No action {args.action!r}. Expected: interlock memory show, add or refresh")
    if (args.action == "add") != bool(args.text):
        raise UserError("Say what is to be remembered: interlock memory add 'Tests run with make test'")
    root = Path(os.path.realpath(args.workspace or Path.cwd()))
    return _add(args, root) if args.action == "add" else _show(args, root)


def _show(args: argparse.Namespace, root: Path) -> int:
    from interlock.services.context.memory import load_memory
    from interlock.state.text import estimate_tokens, visible

    files = load_memory(roots=[root], home=Path.home(), names=_names(root))
    if args.json:
        keys = [{"path": str(f.path), "level": f.level, "text": f.text} for f in files]
        show_json(keys)
        return 0
    if not files:
        print(f"No memory file counts in {root}. Add a line with: interlock memory add 'what to remember'")
        return 0
    rows = [(visible(str(f.path)), f.level, f"{estimate_tokens(f.text):,}") for f in files]
    show_table(rows, ("file", "level", "tokens"))
    if args.action == "show":
        for file in files:
            print(f"\n--- {visible(str(file.path))} ---\n{visible(file.text)}")
    return 0


def _add(args: argparse.Namespace, root: Path) -> int:
    from interlock.services.files.filesystem import make_directories, replace_file
    from interlock.tools.save_memory import with_fact

    name = _names(root)[0]
    file = Path.home() / ".gemini" / name if vars(args)["global"] else root / name
    file = Path(os.path.realpath(file))  # a link to where somebody keeps it stays one
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        after = with_fact(before, args.text)
        make_directories(file.parent, 0o755)
        replace_file(file, after.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{str(file)!r} can't be changed ({error}); nothing was added.") from None
    print(f"{'It was there already' if after == before else 'Added'}: {file}")
    return 0


def _names(root: Path) -> list[str]:
    from interlock.services.config.settings import load_settings
    from interlock.services.trust import is_trusted

    home = Path.home()
    trusted = is_trusted(root, home)
    loaded = load_settings(workspace=root, home=home, env=dict(os.environ), overrides={}, trusted=trusted)
    return loaded.settings.context.file_names
