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
    Anchor,
    create_file,
    lock_folder,
    replace_at,
    replace_file,
    replace_link,
)
from interlock.services.snapshots.snapshots import ShadowRepository, SnapshotContents, SnapshotError
from interlock.services.snapshots.workspace_tree import parent_folder
from interlock.state.workspace import Place

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
    def paths(self) -> list[str]:
        return [*self.gone, *(path for path, _, _ in self.files)]

    def __bool__(self) -> bool:
        return bool(self.paths or self.folders or self.folders_gone)


def plan_restore(now: SnapshotContents, then: SnapshotContents, root: Path, repository: Path) -> RestorePlan:
    """Compute the steps from `now` to `then`."""
    differ = {path for path, kept in then.files.items() if now.files.get(path) != kept}
    return RestorePlan(
        str(root),
        str(repository),
        gone=sorted(now.files.keys() - then.files.keys()),
        folders_gone=sorted(now.folders.keys() - then.folders.keys(), reverse=True),
        folders=[(path, mode) for path, mode in then.folders.items() if now.folders.get(path) != mode],
        files=[
            (p, then.files[p].mode, then.files[p].blob) for p in sorted(differ, key=_parent_folder_sort_key)
        ],
    )


def find_blocked_paths(work: RestorePlan, now: SnapshotContents) -> list[str]:
    """Paths occupied by files that no snapshot includes: ignored, too large or private."""
    root = Path(work.root)
    known = now.files.keys() | now.folders.keys()
    return [path for path, _, _ in work.files if path not in known and os.path.lexists(root / path)]


def run_restore(work: RestorePlan) -> None:
    """Carry out the work in a process that survives a kill of this one. Raises `SnapshotError`."""
    folder = Path(work.repository)
    replace_file(folder / _PENDING, json.dumps(asdict(work)).encode())
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


def _finish_restore(folder: Path) -> None:
    with lock_folder(folder), suppress(FileNotFoundError):
        work = RestorePlan(**json.loads((folder / _PENDING).read_bytes()))
        apply_restore(work, durable=True)
        (folder / _PENDING).unlink()


def apply_restore(work: RestorePlan, *, durable: bool) -> None:
    """Apply the work, idempotently. Raises OSError. Not `durable`: into a new folder, and unsynced."""
    root = Path(work.root)
    os.umask(umask := os.umask(0o077))
    anchor = Anchor(root)
    opened = _make_folders_writable(work) if durable else []
    for path in work.gone:
        with suppress(FileNotFoundError, NotADirectoryError), anchor.place(root / path) as place:
            os.unlink(place.name, dir_fd=place.directory)
    for path in work.folders_gone:
        with suppress(OSError), anchor.place(root / path) as place:
            os.rmdir(place.name, dir_fd=place.directory)
    for path, mode in work.folders:
        with anchor.place(root / path) as place, suppress(FileExistsError):
            os.mkdir(place.name, mode | stat.S_IRWXU, dir_fd=place.directory)
    blobs = ShadowRepository(Path(work.repository)).read_blobs([blob for _, _, blob in work.files])
    for folder, files in groupby(zip(work.files, blobs, strict=True), lambda one: parent_folder(one[0][0])):
        with anchor.place(root / folder / "_") as place:
            for (path, mode, _), data in files:
                at, bits = Place(place.directory, path.rpartition("/")[2]), stat.S_IMODE(mode)
                if stat.S_ISLNK(mode):
                    replace_link(at, os.fsdecode(data))
                elif durable:
                    replace_at(at, data, bits)
                else:
                    create_file(at, data, bits, umask)
    stay = [(path, mode) for path, mode in opened if os.path.lexists(root / path)]
    for path, mode in sorted([*work.folders, *stay], reverse=True):  # inner ones first
        _set_folder_mode(root / path, mode)


def _parent_folder_sort_key(path: str) -> list[str]:
    """Sort key that groups files by folder."""
    return [parent_folder(path), path]


def _make_folders_writable(work: RestorePlan) -> list[tuple[str, int]]:
    """Open folders that their owner may not change; returns those whose permissions nothing else sets."""
    opened: list[tuple[str, int]] = []
    known = {path for path, _ in work.folders}
    for path in sorted({parent_folder(p) for p in (*work.paths, *work.folders_gone, *known)} - {""}):
        folder = Path(work.root, path)
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
        _finish_restore(Path(sys.argv[1]))
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
