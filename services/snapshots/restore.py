"""restore: restores a workspace's files from a snapshot. Run as a program, it finishes a repository's pending restore.

The program runs as a process in its own session: killing the caller leaves the files either as they were or fully
restored, and what a power cut interrupts is finished by the next restore.
"""

import json
import os
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path

from interlock.services.files.filesystem import (
    HeldDirectory,
    create_file,
    lock_folder,
    replace_private_file_holding_lock,
    replace_with_file,
    replace_with_link,
)
from interlock.services.snapshots.snapshots import ShadowRepository, SnapshotContents, SnapshotError
from interlock.services.snapshots.workspace_tree import parent_folder
from interlock.state.workspace import OpenDirEntry

_PENDING = "interlock-pending.json"


@dataclass
class RestorePlan:
    """The steps of a restore, in order; paths are relative to the root."""

    root: str
    repository: str
    """Folder with the blobs."""
    gone: list[str] = field(default_factory=list[str])
    folders_gone: list[str] = field(default_factory=list[str])
    """Deepest first; non-empty ones stay."""
    folders: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Outermost first, with their permissions."""
    files: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    """Path, mode, blob."""

    @property
    def changed_file_paths(self) -> list[str]:
        return [*self.gone, *(path for path, _, _ in self.files)]

    def __bool__(self) -> bool:
        return bool(self.changed_file_paths or self.folders or self.folders_gone)


def plan_restore(
    current: SnapshotContents, target: SnapshotContents, root: Path, repository: Path
) -> RestorePlan:
    """Compute the steps from `current` to `target`."""
    differ = {path for path, kept in target.files.items() if current.files.get(path) != kept}
    return RestorePlan(
        str(root),
        str(repository),
        gone=sorted(current.files.keys() - target.files.keys()),
        folders_gone=sorted(current.folders.keys() - target.folders.keys(), reverse=True),
        folders=[(path, mode) for path, mode in target.folders.items() if current.folders.get(path) != mode],
        files=[
            (p, target.files[p].mode, target.files[p].blob)
            for p in sorted(differ, key=_parent_folder_sort_key)
        ],
    )


def find_blocked_paths(plan: RestorePlan, current: SnapshotContents) -> list[str]:
    """Paths occupied by files that no snapshot includes: ignored, too large or private."""
    root = Path(plan.root)
    known = current.files.keys() | current.folders.keys()
    return [path for path, _, _ in plan.files if path not in known and os.path.lexists(root / path)]


def run_restore_in_subprocess(plan: RestorePlan) -> None:
    """Carry out the work in a process that survives a kill of this one. Raises `SnapshotError`."""
    folder = Path(plan.repository)
    replace_private_file_holding_lock(folder / _PENDING, json.dumps(asdict(plan)).encode())
    finish_pending_restore(folder)


def finish_pending_restore(folder: Path) -> bool:
    """Finish an interrupted restore in this repository; returns whether there was one."""
    if not (folder / _PENDING).exists():
        return False
    command = [sys.executable, "-P", "-m", "interlock.services.snapshots.restore", str(folder)]
    done = subprocess.run(
        command, cwd="/", capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it was killed"])[-1]
        raise SnapshotError(
            f"The files could not all be brought back: {why}. Run the same command again to go on."
        )
    return True


def _apply_pending_restore(folder: Path) -> None:
    with lock_folder(folder), suppress(FileNotFoundError):
        work = RestorePlan(**json.loads((folder / _PENDING).read_bytes()))
        apply_restore(work, durable=True)
        (folder / _PENDING).unlink()


def apply_restore(plan: RestorePlan, *, durable: bool) -> None:
    """Apply the work, idempotently. Raises OSError. Not `durable`: into a new folder, and unsynced."""
    root = Path(plan.root)
    os.umask(umask := os.umask(0o077))
    anchor = HeldDirectory(root)
    opened = _make_folders_writable(plan) if durable else []
    for path in plan.gone:
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            anchor.open_parent_directory(root / path) as place,
        ):
            os.unlink(place.name, dir_fd=place.directory)
    for path in plan.folders_gone:
        with suppress(OSError), anchor.open_parent_directory(root / path) as place:
            os.rmdir(place.name, dir_fd=place.directory)
    for path, mode in plan.folders:
        with anchor.open_parent_directory(root / path) as place, suppress(FileExistsError):
            os.mkdir(place.name, mode | stat.S_IRWXU, dir_fd=place.directory)
    blobs = ShadowRepository(Path(plan.repository)).read_blobs([blob for _, _, blob in plan.files])
    for folder, files in groupby(zip(plan.files, blobs, strict=True), lambda one: parent_folder(one[0][0])):
        with anchor.open_parent_directory(root / folder / "_") as place:
            for (path, mode, _), data in files:
                at, bits = OpenDirEntry(place.directory, path.rpartition("/")[2]), stat.S_IMODE(mode)
                if stat.S_ISLNK(mode):
                    replace_with_link(at, os.fsdecode(data))
                elif durable:
                    replace_with_file(at, data, bits)
                else:
                    create_file(at, data, bits, umask)
    stay = [(path, mode) for path, mode in opened if os.path.lexists(root / path)]
    for path, mode in sorted([*plan.folders, *stay], reverse=True):  # inner ones first
        _set_folder_mode(root / path, mode)


def _parent_folder_sort_key(path: str) -> list[str]:
    """Sort key that groups files by folder."""
    return [parent_folder(path), path]


def _make_folders_writable(plan: RestorePlan) -> list[tuple[str, int]]:
    """Open folders that their owner may not change; returns those whose permissions nothing else sets."""
    opened: list[tuple[str, int]] = []
    known = {path for path, _ in plan.folders}
    for path in sorted(
        {parent_folder(p) for p in (*plan.changed_file_paths, *plan.folders_gone, *known)} - {""}
    ):
        folder = Path(plan.root, path)
        with suppress(OSError):  # doesn't exist yet
            mode = stat.S_IMODE(folder.lstat().st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                _set_folder_mode(folder, mode | stat.S_IRWXU)
                opened += [(path, mode)] if path not in known else []
    return opened


def _set_folder_mode(folder: Path, mode: int) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.chmod(opened, mode)  # noqa: PTH101 - by descriptor, not by name
    finally:
        os.close(opened)


if __name__ == "__main__":
    try:
        _apply_pending_restore(Path(sys.argv[1]))
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
