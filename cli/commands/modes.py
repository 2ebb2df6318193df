"""modes: the modes of work that there are here."""

from interlock.cli.flags import add_folder_flags, folder_of
from interlock.cli.parsing import Parser
from interlock.cli.render.output import show_json, show_table, warn


def parser() -> Parser:
    made = Parser(
        "modes",
        "[--json]",
        "The modes of work: built in, your own (~/.interlock/custom_modes.yaml) and a trusted folder's (.roomodes).",
        [("interlock run task 'plan the release' --mode architect", "a task in a mode")],
    )
    add_folder_flags(made)
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    from interlock.services.policy.modes import load_modes
    from interlock.state.text import visible

    modes, problems = load_modes(*folder_of(args))
    warn(problems)
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
