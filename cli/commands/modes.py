"""modes: the modes of work that there are here."""

import os
import sys
from pathlib import Path

from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import show_json, show_table


def parser() -> Parser:
    made = Parser(
        "modes",
        "[--json]",
        "The modes of work: built in, your own (~/.interlock/custom_modes.yaml) and a trusted folder's (.roomodes).",
        [("interlock run task 'plan the release' --mode architect", "a task in a mode")],
    )
    flag(made, "-C --workspace DIR", "of the folder DIR", type=Path)
    flag(made, "--skip-trust", "with this folder's own, trusted or not")
    made.json_flag()
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.services.policy.modes import load_modes
    from interlock.services.trust import is_trusted
    from interlock.state.text import visible

    root, home = Path(os.path.realpath(args.workspace or Path.cwd())), Path.home()
    modes, problems = load_modes(root, home, args.skip_trust or is_trusted(root, home))
    for problem in problems:
        print(visible(f"warning: {problem}"), file=sys.stderr)
    if args.json:
        show_json([mode.model_dump() for mode in modes.all()])
        return 0
    rows = [
        (
            mode.slug,
            mode.source,
            ", ".join(_group(g.name, g.file_regex) for g in mode.groups),
            mode.when_to_use,
        )
        for mode in modes.all()
    ]
    show_table([tuple(map(visible, row)) for row in rows], ("mode", "source", "groups", "for"))
    return 0


def _group(name: str, pattern: str) -> str:
    return f"{name} ({pattern})" if pattern else name
