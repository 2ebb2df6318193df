"""workspace: the directories tools may access, and how."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from interlock.state.errors import ToolError
from interlock.state.file_names import quote_name

if TYPE_CHECKING:
    from interlock.state.encodings import ConfirmedEncoding


class PathRefused(ToolError):  # noqa: N818 - a refusal, not a fault
    """A path tools may not access; the text says which, why, and what is expected."""

    def __init__(self, message: str) -> None:
        super().__init__("path_refused", message)


def ignored_path_message(path: str, *, git: bool) -> str:
    """Say what keeps a path from tools: git (`git`) or the agent's own ignore files."""
    if git:
        return (
            f"{quote_name(path)} is ignored by git; go on without it, or ask the user to show what is in it."
        )
    return f"{quote_name(path)} is kept from tools by an ignore file or a denial of the folder; go on without it."


LeaveOut = Callable[[str, Collection[str], Collection[str]], bool]
"""Whether to leave an entry out, by its name, the names beside it and, once it is opened, those in it."""


class OpenDirEntry(NamedTuple):
    """A name in a directory held open, so that the checked file is the one used."""

    directory: int
    """Descriptor, only for use as `dir_fd` on Linux."""
    name: str


class Protection(NamedTuple):
    """Why the model may not write a path."""

    part: str
    """The protected part of the path."""
    what: str
    """What it is, for people."""


@dataclass(frozen=True)
class FileConventions:
    """What a project and its user say about a file, which may not exist yet. Empty: nothing."""

    working_tree_encoding: str = ""
    """The attribute of this name in `.gitattributes`."""
    confirmed_encoding: str = ""
    """What a person confirmed, or the setting `files.encodings` says."""
    charset: str = ""
    """The property of this name in `.editorconfig`."""
    line_end: Literal["", "\n", "\r\n", "\r"] = ""
    line_end_source: str = ""
    final_newline: bool | None = None
    indent: str = ""
    """A level of indentation: tabs or spaces."""


NO_CONVENTIONS = FileConventions()


class Buffers(Protocol):
    """Files as an editor has them, saved or not. Its methods may block."""

    def read_text(self, path: Path) -> str | None:
        """A file's text; None: the editor can't say, and the disk counts."""
        ...

    def write_text(self, path: Path, text: str) -> None:
        """Ask the editor to change and save a file. It may fail or refuse: look at the disk afterwards."""
        ...


class Workspace(Protocol):
    """The directories tools may access. Results are absolute real paths (symlinks resolved)."""

    buffers: Buffers | None
    """The editor, where one is open."""

    @property
    def root(self) -> Path: ...

    @property
    def roots(self) -> Sequence[Path]:
        """The workspace first, then included directories."""
        ...

    def resolve_readable(self, path: str) -> Path:
        """Resolve a path for reading, relative to the root. Raises `PathRefused`."""
        ...

    def resolve_writable(self, path: str) -> Path:
        """Resolve a path for writing; stricter than `resolve_readable`. Raises `PathRefused`."""
        ...

    def find_existing_spelling(self, path: str) -> str:
        """Return the path as existing names spell it, where what is written differs only by Unicode normalisation,
        escapes, or quotes, commas and blanks at the ends of names; the rest as written. Raises `PathRefused` if several
        names are meant alike."""
        ...

    def open_parent_directory(
        self, path: Path, *, create_missing: bool = False
    ) -> AbstractContextManager[OpenDirEntry]:
        """Open a checked real path's directory, following no links; `create_missing` creates missing ones. Raises
        `PathRefused`, and `OSError`: ELOOP if a link appeared on the way meanwhile."""
        ...

    def describe_replaced_root(self) -> str:
        """Return what became of the workspace's folder since it was last used, as a sentence for the model; empty:
        nothing."""
        ...

    def record_written_digest(self, path: Path, digest: str | None) -> None:
        """Note the hash of what a tool wrote: a command that changes a protected file afterwards is found by it."""
        ...

    def find_protection(self, path: str) -> Protection | None:
        """Why the model may not write a path: it affects how the program behaves. None: it may."""
        ...

    def find_plan_file(self, path: str) -> Path | None:
        """The real path of a Markdown file in the run's plans folder; None if it isn't one."""
        ...

    def display_path(self, path: Path) -> str:
        """Posix path relative to the workspace, or absolute in an included directory; for people and models."""
        ...

    def confirm_encoding(self, confirmed: "ConfirmedEncoding") -> None:
        """Take files that match a pattern to be in this encoding, where their bytes don't tell."""
        ...

    def read_conventions(self, path: Path) -> FileConventions:
        """What `.gitattributes`, `.editorconfig` and settings say about a file."""
        ...

    def is_ignored(self, path: Path, *, git: bool = True) -> bool:
        """Whether .gitignore (git repositories only; skipped if `git` is false), .geminiignore or .rooignore match."""
        ...

    def make_ignore_test(self, directory: Path, *, git: bool = True) -> Callable[[str, bool], bool]:
        """`is_ignored` for many entries of one directory: takes a name and whether it is a directory."""
        ...

    def list_files(
        self,
        start: Path,
        *,
        include_ignored: bool = False,
        stop: Callable[[], None] = lambda: None,
        leave_out: LeaveOut | None = None,
    ) -> Sequence[str]:
        """The absolute paths of all non-ignored files below `start`, sorted; symlinks leading outside aren't followed.

        As texts: making a `Path` of each of 100,000 files takes longer than finding it. `include_ignored` includes what
        git ignores, but never what .geminiignore and .rooignore exclude. `stop` is called for each directory and may
        raise; `leave_out` excludes files and directories below `start`.
        """
        ...
