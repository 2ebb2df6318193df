"""quarantine: renames protected files that a sandboxed command made, so that nothing obeys them.

While a command runs, a note in the state directory says what was there before it. What starts in the folder meanwhile,
or after a kill, sets the rest aside before it reads anything.
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

from interlock.services.files.disk import make_private_directory, read_file
from interlock.services.files.filesystem import SEARCH_FLAGS, HeldDirectory, sha256
from interlock.services.files.protected import (
    ProtectedPaths,
    ProtectionKind,
    fold_name,
    is_harmless_git_config,
    looks_like_git_repository,
)
from interlock.services.sandbox.protected_mounts import (
    HERE,
    NOT_SEARCHED,
    Survey,
    is_placeholder,
    link_target_or_empty,
    read_rebase_exec_lines,
    remove_leftover_placeholder,
    settled_folder_stamp,
)
from interlock.state.workspace import OpenDirEntry

SUFFIX = ".sandboxed"
_NOTES = "sandbox"
_LARGEST = 20_000
"""Bytes of a repository's configuration; nobody needs as many."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass
class CreatedPaths:
    """What a command made, compared with a survey from before it."""

    before: Survey
    protected: ProtectedPaths
    renamed_paths: list[str] = field(default_factory=list[str])
    """Their former paths, each relative to its root."""

    def quarantine_forbidden_paths(self) -> None:
        """Rename what the command made and may not leave: protected names, changed links, repositories with commands in
        their settings, paths that must stay absent, and rebases that would run commands.

        Nothing is deleted. Links are renamed, never followed.
        """
        kinds = self.protected.make_protection_kind_lookup()
        changed = [
            f for f, old in self.before.folders.items() if old is None or settled_folder_stamp(f) != old
        ]
        anchors = {str(root): HeldDirectory(root) for root in self.before.roots}
        while changed:
            folder = changed.pop()
            root = next(r for r in anchors if Path(folder).is_relative_to(r))
            with (
                suppress(OSError),
                anchors[root].open_parent_directory(Path(folder)) as place,
                _open_for_renaming(place) as directory,
            ):
                changed += self._quarantine_and_list_new_folders(folder, directory, kinds)
        for path, first in self.before.absent.items():
            if os.path.lexists(path) and path not in self.protected.made and not self._quarantine_path(path):
                self._quarantine_path(first)
        for path, commands in self.before.programs.items():
            if {*read_rebase_exec_lines(path)} - {*commands}:
                self._quarantine_path(os.path.dirname(path))  # noqa: PTH120 - a path as text

    def _quarantine_and_list_new_folders(
        self, folder: str, directory: int, kinds: Callable[[str], ProtectionKind | None]
    ) -> Iterator[str]:
        """Yield the folders in a folder that are new."""
        with os.scandir(directory) as entries:
            found = list(entries)
        named = {fold_name(entry.name): entry.name for entry in found}
        if (
            looks_like_git_repository(named)
            and not self._is_known_and_unchanged(folder)
            and not _is_fresh_repository(Path(folder))
        ):
            self._quarantine_entry(directory, named["head"], os.path.join(folder, named["head"]))  # noqa: PTH118 - thousands
        for entry in found:
            path, name = os.path.join(folder, entry.name), fold_name(entry.name)  # noqa: PTH118 - thousands
            is_dir = entry.is_dir(follow_symlinks=False)
            if name == ".git" or ((kind := kinds(name)) and kind.new):
                made = name == ".git" and is_dir and _is_fresh_repository(Path(path))
                if not self._is_known_and_unchanged(path) and not made:
                    self._quarantine_entry(directory, entry.name, path)
            elif is_dir and name != NOT_SEARCHED and path not in self.before.folders:
                yield path

    def _is_known_and_unchanged(self, path: str) -> bool:
        """Return whether it was there before the command, or a tool made it, and it is still the same.

        What was there before is read-only to the command, but for a link, which it could turn.
        """
        if path in self.before.known:
            return link_target_or_empty(path) == self.before.known[path]
        if path in self.protected.written:
            return _hash_file(path) == self.protected.written[path]
        return path in self.protected.made

    def _quarantine_path(self, path: str) -> bool:
        """Rename what is at a path, unless a link is on the way to it or it is gone."""
        try:
            with (
                HeldDirectory(Path("/")).open_parent_directory(Path(path).parent) as place,
                _open_for_renaming(place) as directory,
            ):
                self._quarantine_entry(directory, Path(path).name, path)
        except OSError:
            return False
        return True

    def _quarantine_entry(self, directory: int, name: str, path: str) -> None:
        _rename_with_sandboxed_suffix(directory, name)
        root = self.before.find_root(Path(path))
        self.renamed_paths.append(os.path.relpath(path, root) if root else path)


def _is_fresh_repository(git: Path) -> bool:
    """Return whether a repository is as git makes it: nothing in it runs a program."""
    own = (git / "config", git / "hooks")
    others = ("config.worktree", "modules", "rebase-merge")
    if any(part.is_symlink() for part in own) or any(os.path.lexists(git / name) for name in others):
        return False
    if os.path.lexists(git / "commondir") and not is_placeholder(
        git / "commondir", HERE
    ):  # a copy may have ours
        return False
    try:
        plain = is_harmless_git_config(read_file(own[0], _LARGEST).decode())
    except (OSError, UnicodeDecodeError):
        return False
    return plain and all(hook.suffix == ".sample" for hook in own[1].glob("*"))


def _hash_file(path: str) -> str | None:
    try:
        return None if Path(path).is_symlink() else sha256(read_file(Path(path)))
    except OSError:
        return None


@contextmanager
def quarantine_after_command(
    created_paths: CreatedPaths, state: Path, has_started: Callable[[], bool]
) -> Generator[None]:
    """Run a command inside the block: note what is there before, and set aside what it made after. Raises `OSError`.

    `state`: the state directory; without one there is no note. `has_started`: whether the command was started at all.
    """
    with _open_survey_journal(created_paths, state / _NOTES) if state.is_dir() else nullcontext():
        try:
            yield
        finally:
            if has_started():
                created_paths.quarantine_forbidden_paths()


@contextmanager
def _open_survey_journal(created_paths: CreatedPaths, folder: Path) -> Generator[None]:
    """One JSON text a line: what is there, then what tools make meanwhile. Locked for as long as its owner lives."""
    make_private_directory(folder)
    descriptor, name = tempfile.mkstemp(dir=folder)
    note = Path(name)

    def append_record(found: object) -> None:
        os.write(descriptor, json.dumps(found).encode() + b"\n")

    before, protected = created_paths.before, created_paths.protected
    on_made = protected.on_made
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        held = {str(path): None if data is None else data.decode() for path, data in before.missing.items()}
        kept = {"known": before.known, "absent": before.absent, "programs": before.programs, "held": held}
        append_record({"roots": [*map(str, before.roots)], **kept, "memory": [*protected.memory]})
        note = note.rename(f"{name}.json")
        on_made.append(append_record)
        try:
            yield
        finally:
            on_made.remove(append_record)
    finally:
        note.unlink()
        os.close(descriptor)


def quarantine_leftovers(state: Path, root: Path) -> Iterator[str]:
    """Set aside what sandboxed commands made in a workspace: those of killed runs, and those that other runs still have
    in the background. Yields a warning for each. Call it before anything in the workspace is obeyed."""
    for note in (state / _NOTES).glob("*.json"):
        with suppress(OSError), note.open() as file:  # gone meanwhile
            before, *made = (json.loads(line) for line in file if line.endswith("\n"))
            if before["roots"][0] != str(root):
                continue
            roots = [Path(root) for root in before["roots"]]
            tools: set[str] = {*chain(*made)}
            survey = Survey(
                roots,
                absent=before["absent"],
                known=before["known"],
                programs=before["programs"],
                folders=dict.fromkeys(before["roots"]),
            )
            found = CreatedPaths(survey, ProtectedPaths(memory=before["memory"], made=tools))
            found.quarantine_forbidden_paths()
            whose = "of another run"
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                whose = "of a killed run"
                for path, text in before["held"].items():
                    remove_leftover_placeholder(Path(path), None if text is None else text.encode())
                note.unlink()
            yield from (
                f"A command {whose} made {p!r} in its sandbox; {SUFFIX!r} was added to its name."
                for p in found.renamed_paths
            )


@contextmanager
def _open_for_renaming(place: OpenDirEntry) -> Generator[int]:
    """Open a folder for listing and renaming."""
    try:
        directory = os.open(place.name, _FOLDER, dir_fd=place.directory)
    except PermissionError:  # the command closed it, and may open it again
        handle = os.open(place.name, SEARCH_FLAGS, dir_fd=place.directory)
        try:
            _make_accessible(handle)
        finally:
            os.close(handle)
        directory = os.open(place.name, _FOLDER, dir_fd=place.directory)
    try:
        yield directory
    finally:
        os.close(directory)


def _make_accessible(directory: int) -> None:
    os.chmod(f"/proc/self/fd/{directory}", stat.S_IMODE(os.fstat(directory).st_mode) | stat.S_IRWXU)  # noqa: PTH101 - by descriptor, not by name


def _rename_with_sandboxed_suffix(directory: int, name: str) -> None:
    taken = set(os.listdir(directory))
    numbers = ("", *(f"-{n}" for n in range(2, len(taken) + 3)))
    free = next(f"{name}{SUFFIX}{n}" for n in numbers if f"{name}{SUFFIX}{n}" not in taken)
    try:
        os.rename(name, free, src_dir_fd=directory, dst_dir_fd=directory)
    except PermissionError:
        _make_accessible(directory)
        os.rename(name, free, src_dir_fd=directory, dst_dir_fd=directory)
