"""workflows: what can be run: Interlock's own workflows, and those of this folder, the user and installed packages."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

from interlock.cli.flags import options_here
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import show_json, show_table
from interlock.engine.options import Options
from interlock.engine.workflow_names import FOLDER, GROUP
from interlock.graphs import PIPELINES


def parser() -> Parser:
    made = Parser(
        "workflows",
        "[--json] [FLAGS]",
        "What can be run with: interlock run WORKFLOW\nYour own stand in .interlock/workflows/NAME.py, here or in your "
        "home directory.",
        [("interlock new workflow NAME", "begin one of your own")],
    )
    flag(made, "-C --workspace --cd DIR", "those of the folder DIR", type=Path)
    flag(made, "--skip-trust", "this folder's, too, though nobody trusts it")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    options = options_here(args)
    rows = [(name, what, "interlock", "") for name, what in PIPELINES.items()]
    if _has_own(options):
        from interlock.engine.workflows import ignored, listed

        rows += [(one.name, one.summary, one.source, one.problem) for one in listed(options)]
        for line in ignored(options):
            print(line, file=sys.stderr)
    if args.json:
        keys = ("name", "summary", "source", "problem")
        show_json([{k: v for k, v in zip(keys, row, strict=True) if v} for row in rows])
    else:
        show_table([(name, problem or summary) for name, summary, _, problem in rows])
    return 0


def _has_own(options: Options) -> bool:
    """Without, it answers at once: no graph has to be loaded."""
    folders = (options.workspace or Path.cwd(), options.user_home)
    return any((folder / FOLDER).is_dir() for folder in folders) or bool(entry_points(group=GROUP))
