"""agent_files: the one table of the files that other agents read in a repository, and how to find them.

To add a kind, add its rows to `agent_files.toml`, whose head says what each key means, and read the files that
`find_agent_files` yields. A row whose files Interlock doesn't read says why in `unread`; `find_unread_agent_files`
yields them for `interlock trust` and `interlock doctor`."""

import fnmatch
import os
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from interlock.services.files.disk import read_file
from interlock.services.files.filesystem import is_directory, is_file
from interlock.services.files.stamps import record_read
from interlock.state.context import Dialect

AgentFileKind = Literal[
    "memory",
    "rules",
    "skills",
    "commands",
    "agents",
    "servers",
    "hooks",
    "permissions",
    "environment",
    "ignore",
    "plugins",
]
"""What a file is for; `context.read` turns each kind off by this name. No plugin is read."""
_TABLE = Path(__file__).with_name("agent_files.toml")
_DEEPEST = 6
"""Maximum depth of folders below a pattern's first folder."""
_MOST = 500
"""Maximum number of files that one pattern finds."""
_MOST_FOLDERS = 2_000
"""Maximum number of folders that are listed for one pattern (Codex: the same for skills)."""


class AgentFiles(NamedTuple):
    """One row of the table: files of one program and kind. The table's head says what each field means."""

    kind: AgentFileKind
    program: str
    project: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    nested: bool = False
    without: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    inert: tuple[str, ...] = ()
    unread: str = ""
    default: Literal["always", "named"] = "always"
    bare: Literal["root", "anywhere"] = "anywhere"
    dialect: Dialect = "plain"


@cache
def load_agent_files() -> tuple[AgentFiles, ...]:
    """Return every row of the table, in its order."""
    rows: list[dict[str, Any]] = tomllib.loads(read_file(_TABLE).decode())["files"]
    return tuple(AgentFiles(**{key: _make_hashable(value) for key, value in row.items()}) for row in rows)


def _make_hashable(value: Any) -> Any:
    return tuple(cast("list[str]", value)) if isinstance(value, list) else value


@cache
def list_agent_files(kind: AgentFileKind) -> tuple[AgentFiles, ...]:
    """Return the rows of a kind that Interlock reads, in their order."""
    return tuple(row for row in load_agent_files() if row.kind == kind and not row.unread)


def find_agent_files(
    kind: AgentFileKind, base: Path, *, in_home: bool = False
) -> Iterator[tuple[AgentFiles, Path]]:
    """Yield the files of a kind in one project or home that Interlock reads, each path once, in the table's order.

    Links are followed, each folder once; where a path leads is for the caller to check."""
    yield from _find_files_of_rows(list_agent_files(kind), base, in_home=in_home)


def find_unread_agent_files(kind: AgentFileKind, base: Path) -> Iterator[tuple[AgentFiles, Path]]:
    """Yield the files of a kind in one project that Interlock knows and doesn't read."""
    known = {path for _row, path in find_agent_files(kind, base)}
    rows = tuple(row for row in load_agent_files() if row.kind == kind and row.unread)
    yield from (found for found in _find_files_of_rows(rows, base) if found[1] not in known)


def _find_files_of_rows(
    rows: tuple[AgentFiles, ...], base: Path, *, in_home: bool = False
) -> Iterator[tuple[AgentFiles, Path]]:
    seen: set[Path] = set()
    for row in rows:
        for pattern in row.home if in_home else row.project:
            for path in find_matching_files(base, pattern, row.without):
                if path not in seen:
                    seen.add(path)
                    yield row, path


def find_matching_files(base: Path, pattern: str, without: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the files below a folder that a pattern of the table matches, sorted, at most 500.

    `without`: names of folders, directly in the pattern's first folder, that aren't looked into."""
    if "*" not in pattern:
        if is_file(base / pattern):
            yield base / pattern
        return
    parts = pattern.split("/")
    fixed = next(place for place, part in enumerate(parts) if "*" in part)
    folder, rest = base.joinpath(*parts[:fixed]), parts[fixed:]
    yield from islice(_match_below(str(folder), rest, 0, set(), frozenset(without)), _MOST)


def _match_below(
    folder: str, rest: list[str], depth: int, seen: set[str], without: frozenset[str]
) -> Iterator[Path]:
    name = rest[1] if rest[0] == "**" else rest[0]
    is_last = len(rest) == 1 + (rest[0] == "**")
    if is_last and rest[0] != "**":  # what else comes and goes there, as in the root, changes nothing
        record_read(f"{folder}/{name}", "matches")
    else:
        record_read(folder, "entries")
    real = os.path.realpath(folder)
    if depth > _DEEPEST or real in seen or len(seen) > _MOST_FOLDERS:  # links may lead back, or multiply
        return
    seen.add(real)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        is_folder = is_directory(entry, follow_symlinks=True)
        if is_last and not is_folder and fnmatch.fnmatchcase(entry.name, name) and is_file(Path(entry.path)):
            yield Path(entry.path)
        elif is_folder and rest[0] == "**":
            if entry.name not in without:
                yield from _match_below(entry.path, rest, depth + 1, seen, frozenset())
        elif is_folder and not is_last and fnmatch.fnmatchcase(entry.name, name):
            yield from _match_below(entry.path, rest[1:], depth + 1, seen, frozenset())
