"""definition_files: where skills, commands and sub-agents of all programs lie, and how their files are found and read."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import Generic, Literal, NamedTuple, TypeVar

from interlock.services.config.settings import FOLDERS
from interlock.services.context.memory import find_git_root, resolve_readable_in_roots
from interlock.services.files.disk import read_file
from interlock.services.files.filesystem import UnreadableError
from interlock.services.files.stamps import real_path, record_read

T = TypeVar("T")
LARGEST = 256_000
"""Maximum size of a file in bytes."""
_DEEPEST = 6
_MOST_FOLDERS = 2_000
"""Folders looked at below one place (Codex: the same)."""
_NEVER = frozenset({"node_modules", "__pycache__"})
_BY_RANK = (".interlock", ".agents", ".gemini", ".claude")
"""Of definitions with one name those of the earlier folder come first; those of other folders follow."""


class Place(NamedTuple):
    """A folder below a project or the home directory where definitions of one kind lie."""

    folder: str
    pattern: str
    """The end of the files' names."""
    deep: bool = False
    """Whether files of its subfolders count."""
    home: str | None = None
    """The folder below the home directory; None: the same; empty: none."""


@dataclass(frozen=True)
class DefinitionFile:
    """One file found at a place."""

    path: Path
    base: Path
    """The home directory or the folder of the project that it belongs to."""
    place: Place
    in_home: bool

    @property
    def top(self) -> Path:
        """The folder of the place."""
        return self.base / (self.home_folder if self.in_home else self.place.folder)

    @property
    def home_folder(self) -> str:
        return self.place.folder if self.place.home is None else self.place.home

    @property
    def program(self) -> str:
        """The name of the folder that says which program it was written for: `claude`."""
        names = Path(self.place.folder).parts
        return names[0].lstrip(".")

    @property
    def is_own(self) -> bool:
        """Whether it was written for this program, or for gemini-cli, whose folders are ours, too."""
        return self.place.folder.startswith(FOLDERS)

    def read_text(self) -> str:
        """Return its text. Raise `ValueError` or `OSError` saying why it can't be used."""
        record_read(self.path)
        info = self.path.stat()
        if not S_ISREG(info.st_mode):
            raise ValueError("it isn't a regular file")
        if info.st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST:,} bytes")
        require_inside_base(self.path, self.base, in_home=self.in_home)
        return read_file(self.path).decode("utf-8-sig")


class Row(NamedTuple):
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
    rows: list[Row] = field(default_factory=list[Row])
    problems: list[str] = field(default_factory=list[str])
    """A line for each of our own files that can't be used, or names what isn't here."""


def require_inside_base(path: Path, base: Path, *, in_home: bool) -> None:
    """Raise `ValueError` if a project's file leads outside of the repository, or to what may hold secrets."""
    top = find_git_root(base) or base
    allowed = [real_path(top), *([real_path(path).parent] if in_home else [])]
    try:
        resolve_readable_in_roots(path, allowed)
    except UnreadableError as error:
        raise ValueError(f"it can't be read: {error}") from None


def list_definition_files(
    places: Sequence[Place], root: Path, home: Path, trusted: bool, parents: Sequence[Path] = ()
) -> Iterator[DefinitionFile]:
    """Yield files of the project, nearest folder first, then those of the home directory; each real file once.

    `parents`: folders above the root, up to that of the repository, which count, too.
    """
    ranked = sorted(places, key=lambda place: rank_of_folder(place.folder))
    seen: set[Path] = set()
    for base in (*dict.fromkeys((root, *parents)), home) if trusted else (home,):
        in_home = base == home
        for place in ranked:
            folder = place.folder if place.home is None or not in_home else place.home
            for path in find_files(base / folder, place) if folder else ():
                if (real := real_path(path)) not in seen:
                    seen.add(real)
                    yield DefinitionFile(path, base, place, in_home)


def rank_of_folder(folder: str) -> int:
    first = folder.partition("/")[0]
    return _BY_RANK.index(first) if first in _BY_RANK else len(_BY_RANK)


def find_files(top: Path, place: Place) -> Iterator[Path]:
    """Yield the files of a place, sorted. Links to folders are followed, circles and hidden folders aren't."""
    if not place.deep:
        record_read(top, "entries")
        yield from (
            Path(entry.path) for entry in _list_entries(top) if _is_matching_file(entry, place.pattern)
        )
        return
    yield from islice(_find_below(top, place.pattern, 0, set()), _MOST_FOLDERS)


def _find_below(folder: Path, pattern: str, depth: int, seen: set[str]) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if depth > _DEEPEST or real in seen or len(seen) >= _MOST_FOLDERS:
        return
    seen.add(real)
    record_read(folder, "entries")
    entries = _list_entries(folder)
    if pattern == SKILL and any(entry.name == SKILL for entry in entries):
        yield folder / SKILL  # what lies below belongs to the skill
        return
    for entry in entries:
        if _is_folder(entry):
            if not entry.name.startswith(".") and entry.name not in _NEVER:
                yield from _find_below(Path(entry.path), pattern, depth + 1, seen)
        elif pattern != SKILL and _is_matching_file(entry, pattern):
            yield Path(entry.path)


SKILL = "SKILL.md"


def _list_entries(folder: Path) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_matching_file(entry: os.DirEntry[str], pattern: str) -> bool:
    return entry.name.endswith(pattern) and not entry.name.startswith(".") and not _is_folder(entry)


def load_first_of_each_name(
    files: Iterable[DefinitionFile], read: Callable[[DefinitionFile], tuple[str, T, Sequence[str]]]
) -> tuple[dict[str, tuple[DefinitionFile, T]], list[Row]]:
    """Read each file; of those with one name the first counts. `read` returns name, definition and notes."""
    found: dict[str, tuple[DefinitionFile, T]] = {}
    rows: list[Row] = []
    for file in files:
        try:
            name, definition, notes = read(file)
        except (OSError, ValueError, OverflowError, TypeError, RecursionError) as error:
            rows.append(Row(file, "", describe_problem(error)))
            continue
        if name in found:
            first = found[name][0]
            why = "the same text as" if _is_same_text(file.path, first.path) else "has the same name and"
            what = f"{why} {first.path}" if why.startswith("the") else f"{first.path} {why} comes first"
            rows.append(Row(file, "", what))
        else:
            found[name] = file, definition
            rows.append(Row(file, name, notes=tuple(notes)))
    return found, rows


def _is_same_text(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:
        return False


def describe_problem(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it isn't UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return f"it can't be read: {error.strerror}"
    return " ".join(str(error).split()).rstrip(".")


def unused_fields_notes(fields: Mapping[str, object], known: Iterable[str]) -> list[str]:
    """Return a note that names the fields of a file that nothing here obeys; none if there are none."""
    unused = [name for name in fields if name not in {*known}]
    return [f"not obeyed here: {', '.join(unused)}"] if unused else []
