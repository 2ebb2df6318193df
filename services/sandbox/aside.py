"""aside: sets aside protected files that a sandboxed command made in a sub-folder, where no placeholder can keep them
from being made.

While a command runs, a note in the state directory says what was there before it. After a kill, the next run in the
folder sets the rest aside.
"""

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from interlock.services.files.disk import private_directory, read_file
from interlock.services.files.filesystem import Anchor
from interlock.services.files.protected import Kind, ProtectedPaths, folded, is_plain_config
from interlock.services.sandbox.repository import NOT_SEARCHED, Survey, is_placeholder, stamp
from interlock.state.workspace import Place

SUFFIX = ".sandboxed"
_NOTES = "sandbox"
_LARGEST = 20_000
"""Bytes of a repository's configuration; nobody needs as many."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass
class Newcomers:
    """What a command made, compared with a survey from before it."""

    before: Survey
    protected: ProtectedPaths
    aside: list[str] = field(default_factory=list[str])
    """Their former paths, each relative to its root."""

    def set_aside(self) -> None:
        """Rename every protected file and every repository with commands in its settings that the command made.

        Nothing is deleted. Links are renamed, never followed.
        """
        kinds = self.protected.kinds()
        folders = self.before.folders
        changed = [f for f, old in folders.items() if old is None or stamp(f) != old]
        anchors = {str(root): Anchor(root) for root in self.before.roots}
        while changed:
            folder = changed.pop()
            root = next(r for r in anchors if Path(folder).is_relative_to(r))
            with suppress(OSError), anchors[root].place(Path(folder)) as place, _listed(place) as directory:
                changed += self._look(folder, root, directory, kinds)

    def _look(
        self, folder: str, root: str, directory: int, kinds: Callable[[str], Kind | None]
    ) -> Iterator[str]:
        """Yield the folders in a folder that are new."""
        with os.scandir(directory) as entries:
            found = list(entries)
        for entry in found:
            path, name = os.path.join(folder, entry.name), folded(entry.name)  # noqa: PTH118 - thousands
            is_dir = entry.is_dir(follow_symlinks=False)
            if name == ".git" or ((kind := kinds(name)) and kind.new):
                if path not in self.before.known | self.protected.made and not self._harmless(
                    Path(path), is_dir
                ):
                    _rename(directory, entry.name)
                    self.aside.append(os.path.relpath(path, root))
            elif is_dir and name != NOT_SEARCHED and path not in self.before.folders:
                yield path

    def _harmless(self, path: Path, is_dir: bool) -> bool:
        """Whether it is another command's placeholder, or a repository as git makes them."""
        if is_placeholder(path, None):
            return True
        if path.name != ".git" or not is_dir:
            return False
        own = (path / "config", path / "hooks")
        if any(part.is_symlink() for part in own) or (path / "commondir").exists():
            return False
        try:
            plain = is_plain_config(read_file(own[0], _LARGEST).decode())
        except (OSError, UnicodeDecodeError):
            return False
        return plain and all(hook.suffix == ".sample" for hook in own[1].glob("*"))


@contextmanager
def noted(newcomers: Newcomers, state: Path) -> Generator[None]:
    """Run a command inside the block: note what is there before, and set aside what it made after. Raises `OSError`.

    `state`: the state directory; without one there is no note.
    """
    with _note(newcomers, state / _NOTES) if state.is_dir() else nullcontext():
        try:
            yield
        finally:
            newcomers.set_aside()


@contextmanager
def _note(newcomers: Newcomers, folder: Path) -> Generator[None]:
    """One JSON text a line: what is there, then what tools make meanwhile. Locked for as long as its owner lives."""
    private_directory(folder)
    descriptor, name = tempfile.mkstemp(dir=folder)
    note = Path(name)

    def add(found: object) -> None:
        os.write(descriptor, json.dumps(found).encode() + b"\n")

    before, on_made = newcomers.before, newcomers.protected.on_made
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        add({"roots": [str(root) for root in before.roots], "known": [*before.known]})
        note = note.rename(f"{name}.json")
        on_made.append(add)
        try:
            yield
        finally:
            on_made.remove(add)
    finally:
        note.unlink()
        os.close(descriptor)


def set_aside_after_kill(state: Path, root: Path, protected: ProtectedPaths) -> Iterator[str]:
    """Set aside what commands of killed runs made in a workspace; yields a warning for each."""
    for note in (state / _NOTES).glob("*.json"):
        with suppress(OSError), note.open() as file:  # gone, or of a run that lives
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            before, *made = (json.loads(line) for line in file if line.endswith("\n"))
            if before["roots"][0] != str(root):
                continue
            roots = [Path(root) for root in before["roots"]]
            survey = Survey(
                roots, known={*before["known"], *chain(*made)}, folders=dict.fromkeys(before["roots"])
            )
            found = Newcomers(survey, protected)
            found.set_aside()
            note.unlink()
            yield from (
                f"A command of a killed run made {p!r} in its sandbox; {SUFFIX!r} was added to its name."
                for p in found.aside
            )


@contextmanager
def _listed(place: Place) -> Generator[int]:
    """Open a folder for listing and renaming."""
    try:
        directory = os.open(place.name, _FOLDER, dir_fd=place.directory)
    except PermissionError:  # the command closed it, and may open it again
        handle = os.open(place.name, _SEARCH, dir_fd=place.directory)
        try:
            _open_up(handle)
        finally:
            os.close(handle)
        directory = os.open(place.name, _FOLDER, dir_fd=place.directory)
    try:
        yield directory
    finally:
        os.close(directory)


def _open_up(directory: int) -> None:
    os.chmod(f"/proc/self/fd/{directory}", stat.S_IMODE(os.fstat(directory).st_mode) | stat.S_IRWXU)  # noqa: PTH101 - by descriptor, not by name


def _rename(directory: int, name: str) -> None:
    taken = set(os.listdir(directory))
    numbers = ("", *(f"-{n}" for n in range(2, len(taken) + 3)))
    free = next(f"{name}{SUFFIX}{n}" for n in numbers if f"{name}{SUFFIX}{n}" not in taken)
    try:
        os.rename(name, free, src_dir_fd=directory, dst_dir_fd=directory)
    except PermissionError:
        _open_up(directory)
        os.rename(name, free, src_dir_fd=directory, dst_dir_fd=directory)
