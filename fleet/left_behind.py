"""left_behind: the files of a run's clone that aren't delivered: git ignores them, or they are private or too large."""

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

MOST = 50
"""Maximum files that are named."""
_CHUNK = 1 << 20


def list_left_behind(folder: Path, kept: Collection[str], committed: Mapping[str, str]) -> list[str]:
    """Return the paths, in order; a folder of which nothing is delivered counts as one, and ends in a slash.

    `kept`: what snapshots have, and so is delivered; `committed`: path → git's id of the files that were cloned.
    """
    known = {*kept, *committed}
    full = {str(above) for path in known for above in PurePosixPath(path).parents}
    return sorted(_iterate_undelivered(folder, "", full, kept, committed))


def _iterate_undelivered(
    folder: Path, where: str, full: Collection[str], kept: Collection[str], committed: Mapping[str, str]
) -> Iterator[str]:
    try:
        with os.scandir(folder / where) as found:
            entries = [*found]
    except OSError:  # the run took the right to list it away
        yield f"{where}/"
        return
    for entry in entries:
        path = f"{where}/{entry.name}" if where else entry.name
        if entry.is_dir(follow_symlinks=False):
            if path in full:
                yield from _iterate_undelivered(folder, path, full, kept, committed)
            elif entry.name != ".git" and not _is_empty_folder(entry.path):
                yield f"{path}/"
        elif path not in kept and committed.get(path) != _blob_id_or_empty(Path(entry)):
            yield path


def _is_empty_folder(folder: str) -> bool:
    try:
        with os.scandir(folder) as found:
            return not any(found)
    except OSError:
        return False


def _blob_id_or_empty(file: Path) -> str:
    """Git's id of a file's bytes, or of a link's target; empty if it can't be read."""
    try:
        return _blob_id(file)
    except OSError:
        return ""


def _blob_id(file: Path) -> str:
    found = file.lstat()
    if stat.S_ISLNK(found.st_mode):
        target = os.fsencode(file.readlink())
        return hashlib.sha1(b"blob %d\0" % len(target) + target, usedforsecurity=False).hexdigest()
    if not stat.S_ISREG(found.st_mode):
        return ""
    digest = hashlib.sha1(b"blob %d\0" % found.st_size, usedforsecurity=False)
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
