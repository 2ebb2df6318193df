"""walker: what the visits of parse tree nodes need of the walk."""

from typing import TYPE_CHECKING, Protocol

from interlock.services.shell.found import Found
from interlock.services.shell.model import Word

if TYPE_CHECKING:
    from tree_sitter import Node


class Walker(Protocol):
    """One line while it is walked."""

    text: str
    found: Found

    def visit(self, node: "Node") -> None: ...

    def children(self, node: "Node") -> None:
        """Visit all, and see that nothing but blanks lies between."""
        ...

    def gap(self, start: int, end: int, *, command: bool = False) -> None:
        """See that nothing but blanks lies there; `command`: within a command, which a newline would end."""
        ...

    def token(self, node: "Node") -> None:
        """See that an operator is what it was read as: the grammar's own scanner may take in what is before it."""
        ...

    def doubt(self, why: str) -> None:
        """Bash may read this in another way: the line is opaque."""
        ...

    def source(self, node: "Node") -> str: ...

    def word(self, node: "Node") -> Word:
        """What a word stands for; the substitutions in it are visited."""
        ...

    def inside(self, node: "Node") -> None:
        """Visit the substitutions of a place with quoting rules of its own."""
        ...

    def sets(self, name: str, value: str | None) -> None:
        """See that bash doesn't evaluate the value of a variable; None: the value isn't known."""
        ...

    def assigns(self, name: str, text: str) -> None:
        """Note that the line sets a variable for what comes after."""
        ...
