"""protected_links: where links below protected names lead. Programs obey a file under each name by which they find it.

`.gemini/skills/x` may lead to `tools/x`, and `.git/hooks/pre-commit` to `scripts/pre-commit`. Such links are few, but
they may stand in any folder, so all folders of a workspace are listed once. Later only the stamps of folders are
compared, and what changed is listed again.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from interlock.services.files.stamps import Stamp, read_folder_stamp
from interlock.state.workspace import Protection

_MOST_FOLDERS = 50_000
"""Folders that are listed: the protected ones first, then those nearest to the root."""
_MOST_STEPS = 40
"""Links that Linux follows in one path."""
_REST = 20
"""Folders are compared again after this many times the time that comparing them took."""
_NOT_SEARCHED = "node_modules"
GIT_BELIEVES = "what git runs and believes"


class LinkFolder(NamedTuple):
    """A folder in which each link is protected, whatever its name."""

    path: str
    what: str
    depth: int | None = None
    """How many levels of folders below it count, too; None: all."""
    prefix: str = ""
    """How the names of its links begin."""


class LinkTargets(NamedTuple):
    """What protected links lead to, by folded paths."""

    below: Mapping[str, Protection]
    """Files and folders, which are protected with all that they hold."""
    directly_in: Mapping[str, Protection]
    """Folders around a workspace, of which only the files that lie directly in them are protected."""
    paths: Sequence[Path]
    """The paths of `below`, and of the files in `directly_in`."""

    def find_protection(self, path: Path, fold_path: Callable[[Path], str]) -> Protection | None:
        if not self.below and not self.directly_in:
            return None
        way = fold_path(path)
        found = self.directly_in.get(way.rpartition("/")[0])
        while way and not found:
            found = self.below.get(way)
            way = way.rpartition("/")[0]
        return found


class _Listing(NamedTuple):
    stamp: Stamp
    folders: Sequence[str]
    links: Sequence[str]


class ProtectedLinkIndex:
    """The links below the protected names of a workspace. Safe for several threads."""

    def __init__(
        self,
        roots: Sequence[Path],
        others: Sequence[LinkFolder],
        find_kind: Callable[[str], str | None],
        fold_path: Callable[[Path], str],
    ) -> None:
        """`find_kind`: why a name is protected; None: it isn't."""
        self._roots, self._others = [str(root) for root in roots], others
        self._find_kind, self._fold_path = find_kind, fold_path
        self._lock = Lock()
        self._listings: dict[str, _Listing] = {}
        self._leads: dict[str, str] = {}
        """Each protected link, and where it leads."""
        self._inside: dict[str, str] = {}
        """Each folder below a protected name, and what it holds."""
        self._targets: LinkTargets | None = None
        self._next_check = 0.0

    def find_targets(self) -> LinkTargets:
        """Return where protected links lead. In a very large tree, a change of the last moment may be missing."""
        with self._lock:
            began = time.monotonic()
            if self._targets is None or (began >= self._next_check and not self._is_current()):
                self._targets = self._build_targets()
            ended = time.monotonic()
            self._next_check = max(self._next_check, ended + _REST * (ended - began))
            return self._targets

    def find_hard_link(self, file: Path, status: os.stat_result) -> Protection | None:
        """Return why a file with several links is protected: another of its names is, or lies below one that is."""
        self.find_targets()
        with self._lock:
            folders = [(folder, self._inside.get(folder)) for folder in self._listings]
        for folder, what in folders:
            for entry in _scan_or_nothing(folder):
                if entry.inode() != status.st_ino or not (why := what or self._find_kind(entry.name)):
                    continue
                with suppress(OSError):  # gone meanwhile
                    if os.path.samestat(entry.stat(follow_symlinks=False), status):
                        same = self._display_path(entry.path)
                        return Protection(file.name, f"{why}; the same file as {same}")
        return None

    def iterate_files_inside(self) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of folders below protected names."""
        self.find_targets()
        with self._lock:
            folders = [*self._inside]
        for folder in folders:
            yield from _scan_or_nothing(folder)

    def _is_current(self) -> bool:
        return all(read_folder_stamp(f) == known.stamp for f, known in self._listings.items()) and all(
            os.path.realpath(link) == target for link, target in self._leads.items()
        )

    def _build_targets(self) -> LinkTargets:
        before, self._listings, self._leads, self._inside = self._listings, {}, {}, {}
        below, directly_in, paths = dict[str, Protection](), dict[str, Protection](), dict[Path, None]()
        seen = set[str]()  # folders outside of protected names
        queue = deque[tuple[str, LinkFolder | None]]((one.path, one) for one in self._others)
        queue += ((root, None) for root in self._roots)

        def follow(link: str, what: str, *, by_prefix: bool) -> None:
            way, real = _resolve_step_by_step(link)
            self._leads[link] = os.path.realpath(link)
            why = f"{what}; {self._display_path(link)} leads to it"
            for step in way:
                below.setdefault(self._fold_path(Path(step)), Protection(Path(step).name, why))
            if any(f"{root}/".startswith(f"{real.rstrip('/')}/") for root in self._roots):
                if by_prefix:  # a folder of the user's, which they work in
                    return
                if Path(link).parent.name.casefold() == "skills":  # a repository that is a skill
                    real = f"{real.rstrip('/')}/SKILL.md"
                    below.setdefault(self._fold_path(Path(real)), Protection("SKILL.md", why))
                    paths[Path(real)] = None
                    return
                key = self._fold_path(Path(real))
                directly_in.setdefault(key, Protection(Path(real).name, why))
                paths.update((Path(e.path), None) for e in _scan_or_nothing(real) if e.is_file())
                return
            below.setdefault(self._fold_path(Path(real)), Protection(Path(real).name, why))
            paths[Path(real)] = None
            if os.path.isdir(real) and self._is_in_a_root(real):  # noqa: PTH112 - names may be too long
                queue.appendleft((real, LinkFolder(real, what)))

        while queue and len(self._listings) < _MOST_FOLDERS:
            folder, inside = queue.popleft()
            if folder in self._inside or (inside is None and folder in seen):
                continue
            if inside is None:
                seen.add(folder)
            elif inside.depth is None:
                self._inside[folder] = inside.what
            listing = self._listings[folder] = self._listings.get(folder) or _list_folder(folder, before)
            base = f"{folder.rstrip('/')}/"
            for name in listing.folders:
                path = base + name
                if inside is not None:
                    if inside.depth != 0:
                        deeper = inside._replace(depth=inside.depth and inside.depth - 1)
                        queue.appendleft((path, deeper))
                elif name.casefold() == ".git":
                    queue.extendleft((p, LinkFolder(p, GIT_BELIEVES, 0)) for p in (path, f"{path}/hooks"))
                elif what := self._find_kind(name):
                    queue.appendleft((path, LinkFolder(path, what)))
                elif name.casefold() != _NOT_SEARCHED:
                    queue.append((path, None))
            for name in listing.links:
                what = self._find_kind(name) if inside is None else inside.what
                if what and name.startswith(inside.prefix if inside else ""):
                    follow(base + name, what, by_prefix=bool(inside and inside.prefix))
        return LinkTargets(below, directly_in, [*paths])

    def _display_path(self, path: str) -> str:
        root = self._roots[0] if self._roots else ""
        return os.path.relpath(path, root) if self._is_in_a_root(path) else path

    def _is_in_a_root(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in self._roots)


def _list_folder(folder: str, before: Mapping[str, _Listing]) -> _Listing:
    stamp = read_folder_stamp(folder)
    known = before.get(folder)
    if known and known.stamp == stamp:
        return known
    folders, links = list[str](), list[str]()
    for entry in _scan_or_nothing(folder):
        if entry.is_symlink():
            links.append(entry.name)
        elif entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
    return _Listing(stamp, folders, links)


def _scan_or_nothing(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [*entries]
    except OSError:  # gone, unreadable or no folder: nothing in it can be obeyed
        return []


def _resolve_step_by_step(link: str) -> tuple[Sequence[str], str]:
    """Return the links on the way from a link to what it leads to, and the path at its end, existing or not."""
    way, place, rest = list[str](), "/", [*reversed(Path(link).parts[1:])]
    while rest:
        name = rest.pop()
        if name == "..":
            place = os.path.dirname(place)  # noqa: PTH120 - a path as text
            continue
        place = os.path.join(place, name)  # noqa: PTH118 - as above
        try:
            target = os.readlink(place)  # noqa: PTH115 - as above
        except OSError:  # no link, or nothing
            continue
        if len(way) == _MOST_STEPS:  # a circle: the system follows it nowhere
            return way, place
        way.append(place)
        place = "/" if target.startswith("/") else os.path.dirname(place)  # noqa: PTH120 - as above
        rest += reversed(Path(target).parts[target.startswith("/") :])
    return way, place
