"""found: what was found in a line so far, and the limits of looking."""

from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.services.shell.model import Redirect, ShellCommand

MOST_COMMANDS = 300
MOST_NODES = 8_000
"""Keep one decision below 100 ms (a node costs about 3 µs)."""


class TooMuch(Exception):  # noqa: N818 - not an error: the line is looked into no further
    """Text: why."""


@dataclass(slots=True)
class Found:
    """Filled while a line, and what its `bash -c` and `eval` hold, is walked."""

    look_into: "Callable[[str, Found], None]"
    depth: int = 0
    commands: list[ShellCommand] = field(default_factory=list[ShellCommand])
    redirects: list[Redirect] = field(default_factory=list[Redirect])
    assigns: list[str] = field(default_factory=list[str])
    opaque: str | None = None
    nodes: int = 0
    arrays: bool = False
    """It makes an array."""
    declares: bool = False
    """It gives a variable an unknown value by `declare`, which would be evaluated if the variable were an array."""

    def blur(self, why: str) -> None:
        """Not everything that would run is known; the first reason is kept."""
        self.opaque = self.opaque or why

    def add(self, command: ShellCommand) -> None:
        if len(self.commands) >= MOST_COMMANDS:
            raise TooMuch(f"it has more than {MOST_COMMANDS} commands")
        self.commands.append(command)
        if command.opaque:
            self.blur(command.opaque)

    def deeper(self, script: str) -> None:
        """Look into the line that a command runs."""
        self.depth += 1
        self.look_into(script, self)
        self.depth -= 1

    def count(self, nodes: int = 1) -> None:
        self.nodes += nodes
        if self.nodes > MOST_NODES:
            raise TooMuch(f"it has more than {MOST_NODES} pieces")
