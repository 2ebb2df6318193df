"""help: the commands and keys of a session, for its `/help` and for README."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from interlock.cli.session.commands import SessionCommand
    from interlock.cli.session.session import Session

KEYS = (
    ("Enter", "send; while the agent works: wait in line"),
    ("Alt-Enter, Ctrl-J, \\ Enter", "a new line"),
    ("@", "a file or folder of this workspace"),
    ("!", "a shell line of your own; the model sees it with your next prompt"),
    ("Shift-Tab", "approval mode: default, auto_edit, plan"),
    ("Esc, Ctrl-C", "stop what is under way; Ctrl-C twice, or Ctrl-D: leave"),
    ("Esc Esc", "clear the line"),
    ("↑ ↓, Ctrl-R", "what was typed here before, and a search in it"),
    ("Ctrl-G, Ctrl-X Ctrl-E", "write in $EDITOR"),
)
"""Of the input line."""


async def show_help(session: "Session", rest: str) -> None:
    from interlock.cli.session.commands import COMMANDS, find

    if name := rest.strip().lstrip("/"):
        command = find(session, name)
        session.screen.show(_table([(f"/{command.usage}", _told(command))]))
        return
    session.screen.show(_table([(f"/{command.usage}", command.summary) for command in COMMANDS.values()]))
    own = session.available.own()
    if added := [*own.commands.items(), *own.skills.items()]:
        session.screen.show(_table([(f"/{name}", summary) for name, summary in added]))
    session.screen.show(_table(KEYS))


def _told(command: "SessionCommand") -> str:
    also = " or ".join(f"/{name}" for name in command.aliases)
    return f"{command.summary} (also {also})" if also else command.summary


def _table(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="accent", no_wrap=False)
    table.add_column(overflow="fold")
    for left, right in rows:
        table.add_row(left, right)
    return table


def page() -> str:
    """The commands and keys as Markdown, for README."""
    from interlock.cli.session.commands import COMMANDS

    commands = [(f"`/{command.usage}`", _told(command)) for command in COMMANDS.values()]
    keys = [(f"`{key}`" if len(key) == 1 else key, what) for key, what in KEYS]
    rows = [(left.replace("|", "\\|"), right.replace("|", "\\|")) for left, right in (*commands, *keys)]
    return "\n".join(["| | |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]) + "\n"
