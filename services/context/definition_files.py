"""definition_files: the files that define skills, commands and sub-agents: found by one table, and read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Generic, NamedTuple, TypeVar

from interlock.services.config.settings import FOLDERS
from interlock.services.context.imports import resolve_readable_in_roots
from interlock.services.files.agent_files import AgentFileKind, AgentFiles, find_agent_files
from interlock.services.files.disk import read_file
from interlock.services.files.filesystem import UnreadableError
from interlock.services.files.git_folder import find_git_root
from interlock.services.files.stamps import real_path, record_read

T = TypeVar("T")
LARGEST = 256_000
"""Maximum size of a file in bytes."""
FILE_ERRORS = (OSError, ValueError, OverflowError, TypeError, RecursionError, UnreadableError)
"""What reading and parsing a file raises; `describe_problem` says it."""


class Folders(NamedTuple):
    """Where definitions may stand."""

    root: Path
    """The workspace."""
    home: Path
    """The user's home directory."""
    trusted: bool
    """Whether files of the workspace count."""
    parents: tuple[Path, ...] = ()
    """Trusted folders above the workspace, up to that of its repository, nearest first."""
    ignored: tuple[Path, ...] = ()
    """Those of the workspace and the folders above it that would count if they were trusted."""
    off: frozenset[str] = frozenset()
    """Kinds that the setting `context.read` turns off."""


def find_parents_in_repository(root: Path, home: Path) -> list[Path]:
    """Return the folders above a workspace up to that of its repository, nearest first; none at or above the home."""
    top = find_git_root(root)
    above = [folder for folder in root.parents if top and folder.is_relative_to(top)]
    return [folder for folder in above if not home.is_relative_to(folder)]


@dataclass(frozen=True)
class DefinitionFile:
    """A file that defines something."""

    path: Path
    base: Path
    """The home directory, or the folder of a project that it belongs to."""
    row: AgentFiles
    in_home: bool

    @property
    def folder(self) -> Path:
        """The folder of its kind and program, such as `.claude/commands`."""
        patterns = self.row.home if self.in_home else self.row.project
        tops = (self.base / pattern.partition("*")[0].rpartition("/")[0] for pattern in patterns)
        return next(top for top in tops if self.path.is_relative_to(top))

    @property
    def program(self) -> str:
        """The name of the folder that says for which program it was written: `claude`."""
        return self.path.relative_to(self.base).parts[0].lstrip(".")

    @property
    def is_own(self) -> bool:
        """Whether it was written for this program, or for gemini-cli, whose folders are ours, too."""
        return self.path.relative_to(self.base).parts[0] in FOLDERS

    def read_text(self) -> str:
        """Return its text with the line ends of Unix. Raise one of `FILE_ERRORS` saying why it can't be used."""
        record_read(self.path)
        info = self.path.stat()
        if not S_ISREG(info.st_mode):
            raise ValueError("it isn't a regular file")
        if info.st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST:,} bytes")
        self._require_allowed_place()
        return read_file(self.path, LARGEST).decode().removeprefix("\ufeff").replace("\r\n", "\n")

    def _require_allowed_place(self) -> None:
        """Raise `UnreadableError` if a project's file leads out of its repository, or to what may hold secrets."""
        top = real_path(find_git_root(self.base) or self.base)
        allowed = [top, real_path(self.path).parent] if self.in_home else [top]
        resolve_readable_in_roots(self.path, allowed)


class FileUse(NamedTuple):
    """What became of one file, for people."""

    file: DefinitionFile
    name: str
    """How it is called; empty if it isn't used."""
    problem: str = ""
    """Why it isn't used."""
    notes: tuple[str, ...] = ()
    """What of it doesn't count, or counts otherwise than in its own program."""


@dataclass
class Loaded(Generic[T]):
    """Definitions by name, in the order in which they are listed."""

    by_name: dict[str, T] = field(default_factory=dict[str, T])
    files: list[FileUse] = field(default_factory=list[FileUse])

    def list_warnings(self) -> list[str]:
        """Return a line for each of our own files that can't be used: of other programs', `doctor` tells."""
        own = [use for use in self.files if use.file.is_own]
        return [f"{use.file.path} was ignored: {use.problem}." for use in own if use.problem]

    def list_notes(self) -> list[str]:
        """Return a line for each part of our own files that doesn't count."""
        own = [use for use in self.files if use.file.is_own]
        return [
            f"{use.file.path}: {note}{'' if note[-1] in '.?' else '.'}" for use in own for note in use.notes
        ]


def find_definition_files(kind: AgentFileKind, folders: Folders) -> Iterator[DefinitionFile]:
    """Yield the files of the project, nearest folder first, then those of the home directory; each real file once."""
    if kind in folders.off:
        return
    seen: set[Path] = set()
    projects = dict.fromkeys((folders.root, *folders.parents)) if folders.trusted else ()
    for base in (*(base for base in projects if base != folders.home), folders.home):
        in_home = base == folders.home
        for row, path in find_agent_files(kind, base, in_home=in_home):
            if (real := real_path(path)) not in seen:
                seen.add(real)
                yield DefinitionFile(path, base, row, in_home)


def find_ignored_files(kind: AgentFileKind, folders: Folders) -> Iterator[DefinitionFile]:
    """Yield the files that would count if their folders were trusted."""
    for base in folders.ignored:
        for row, path in find_agent_files(kind, base):
            yield DefinitionFile(path, base, row, False)


Read = Callable[[DefinitionFile], tuple[str, T, Sequence[str]]]
"""Returns name, definition and notes. Raises one of `FILE_ERRORS` saying why it can't."""


def load_definitions(files: Iterable[DefinitionFile], read: Read[T]) -> Loaded[T]:
    """Read each file. Of those with one name the first counts."""
    loaded = Loaded[T]()
    first: dict[str, DefinitionFile] = {}
    for file in files:
        try:
            name, definition, notes = read(file)
        except FILE_ERRORS as error:
            loaded.files.append(FileUse(file, "", describe_problem(error)))
            continue
        if other := first.get(name):
            same = (
                "the same text as"
                if _has_same_text(file.path, other.path)
                else f"its name {name!r} is that of"
            )
            loaded.files.append(FileUse(file, "", f"{same} {other.path}"))
            continue
        first[name] = file
        loaded.by_name[name] = definition
        loaded.files.append(FileUse(file, name, notes=tuple(notes)))
    return loaded


def _has_same_text(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:
        return False


def describe_problem(error: Exception) -> str:
    """Return why a file can't be used, as a clause without a full stop."""
    if isinstance(error, UnicodeDecodeError):
        return "it isn't UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return f"it can't be read: {error.strerror}"
    if isinstance(error, UnreadableError):
        return f"it can't be read: {error}"
    return " ".join(str(error).split()).rstrip(".")


def note_unknown_fields(fields: Mapping[str, object], row: AgentFiles) -> list[str]:
    """Return a note that names the fields that nothing here obeys; none if there are none."""
    unknown = [name for name in fields if name not in row.fields and name not in row.inert]
    return [f"not obeyed: {', '.join(unknown)}"] if unknown else []


def first_paragraph(body: str) -> str:
    """Return the first paragraph of a Markdown text that is no heading, on one line."""
    for block in body.split("\n\n"):
        lines = [line.strip() for line in block.split("\n") if not line.lstrip().startswith(("#", "<!--"))]
        if text := " ".join(filter(None, lines)):
            return text
    return ""


def shorten(text: str, most: int) -> str:
    """Return at most `most` characters of a text, cut between words, with an ellipsis."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut else cut}…"


_SHORTEST_DESCRIPTION = 40
"""Characters below which a description says too little to be listed."""
_MOST_NAMED = 300
"""Definitions listed by their names alone."""


def list_within_budget(
    described: Sequence[tuple[str, str]], budget: int, most: int
) -> tuple[list[str], bool]:
    """Return a line for each name with its description, and whether some lack a part.

    A description has at most `most` characters, all together at most `budget`: long ones are shortened first; if all
    would be too short to say anything, later ones are left out.
    """
    left, rest = budget, len(described)
    for length in sorted(min(len(text), most) for _, text in described):
        if length * rest > left:
            most = left // rest
            break
        left, rest = left - length, rest - 1
    whole = len(described) if most >= _SHORTEST_DESCRIPTION else max(budget // _SHORTEST_DESCRIPTION, 1)
    most = max(most, _SHORTEST_DESCRIPTION)
    lines = [f"- {name}: {shorten(text, most)}" for name, text in described[:whole]]
    lines += [f"- {name}" for name, _ in described[whole : whole + _MOST_NAMED]]
    if (unnamed := len(described) - whole - _MOST_NAMED) > 0:
        lines.append(f"- … {unnamed} more")
    return lines, whole < len(described) or any(len(text) > most for _, text in described)
