"""workspace: the directories that tools may touch, and how they are reached."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from interlock.state.calls import ToolError


class PathRefused(ToolError):  # noqa: N818 - a refusal, not a fault
    """A path that no tool may touch; the text says which, why, and what is expected."""

    def __init__(self, message: str) -> None:
        super().__init__("path_refused", message)


class Place(NamedTuple):
    """A name in a directory that is held open: what is checked there and what is used is the same."""

    directory: int
    """Descriptor, for `dir_fd`; on Linux it serves for nothing else."""
    name: str


class Protection(NamedTuple):
    """Why a path isn't the model's to write."""

    part: str
    """The name that is protected, as it stands in the path."""
    what: str
    """For people: what lies there."""


class Workspace(Protocol):
    """The directories that tools may touch. All results are absolute real paths (symlinks resolved)."""

    @property
    def root(self) -> Path: ...

    @property
    def roots(self) -> Sequence[Path]:
        """The workspace first, then included directories."""
        ...

    def readable(self, path: str) -> Path:
        """Raises `PathRefused`. Relative paths are taken from the root."""
        ...

    def writable(self, path: str) -> Path:
        """Raises `PathRefused`; stricter than `readable`."""
        ...

    def place(self, path: Path, *, make: bool = False) -> AbstractContextManager[Place]:
        """Where a real path that was checked leads now, no link on the way being followed; with `make` directories that
        are missing are made. Raises `PathRefused`, and `OSError`: ELOOP where a link was put on the way meanwhile."""
        ...

    def protected(self, path: str) -> Protection | None:
        """Why a path isn't the model's to write: what the program goes by lies there. None: it may be."""
        ...

    def plan_file(self, path: str) -> Path | None:
        """The real path of a Markdown file in the run's plans folder; None: it is none, or lies elsewhere."""
        ...

    def relative(self, path: Path) -> str:
        """Posix path relative to the workspace, absolute in an included directory; for people and models."""
        ...

    def ignored(self, path: Path, *, git: bool = True) -> bool:
        """By .gitignore (in git repositories; not asked when `git` is false), .geminiignore, .rooignore."""
        ...

    def ignored_in(self, directory: Path, *, git: bool = True) -> Callable[[str, bool], bool]:
        """`ignored` for many entries right inside a directory: takes a name, and whether it is a directory."""
        ...

    def walk(
        self,
        start: Path,
        *,
        include_ignored: bool = False,
        stop: Callable[[], None] = lambda: None,
        leave_out: Callable[[str], bool] = lambda _: False,
    ) -> Sequence[Path]:
        """All files below `start`, sorted, without ignored ones, never following symlinks out.

        `include_ignored` brings what git ignores, never what .geminiignore and .rooignore keep from tools. `stop`
        is called for each directory and may raise; `leave_out` says of a name whether file or directory doesn't count.
        """
        ...
