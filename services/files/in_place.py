"""in_place: write a file where it is, if a new one in its place would break hard links or a mount, or lose its owner.

Such a write isn't atomic. So a copy of the file as it was, and of what it becomes, lies in the state directory until
the write is done; what a kill left half-written is put back from it.
"""

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.files.disk import CLOSED_FILE, make_private_directory, sync_directory

if TYPE_CHECKING:  # fast commands read chains: keep their imports few
    from interlock.state.workspace import OpenDirEntry

_BLOCK = 512
"""No disk writes half of one."""
_NOT_COPIED = frozenset(("security.capability",))
"""An ordinary write takes it away, too."""


def copy_owner_and_attributes(source: int, target: int) -> None:
    """Give a new file the owner, group, ACL and extended attributes of another. Raise `OSError` if one can't be set."""
    of_source, of_target = os.fstat(source), os.fstat(target)
    if (of_source.st_uid, of_source.st_gid) != (of_target.st_uid, of_target.st_gid):
        os.fchown(target, of_source.st_uid, of_source.st_gid)
    if not hasattr(os, "listxattr"):  # macOS
        return
    wanted = {name: os.getxattr(source, name) for name in _attribute_names(source)}
    there = {name: os.getxattr(target, name) for name in _attribute_names(target)}
    for name in there.keys() - wanted.keys():  # inherited from the directory
        os.removexattr(target, name)
    for name, value in wanted.items():
        if there.get(name) != value:
            os.setxattr(target, name, value)


def _attribute_names(file: int) -> list[str]:
    try:
        return [name for name in os.listxattr(file) if name not in _NOT_COPIED]
    except OSError:  # the file system has none
        return []


def write_in_place(place: "OpenDirEntry", path: Path, data: bytes, copies: Path) -> None:
    """Write a file's new bytes over the old ones. Durable on return. Raises `OSError`, and the file is as it was."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    target = os.open(place.name, flags, dir_fd=place.directory)
    try:
        before = _read_all(target)
        with _kept_copies(copies, path, before, data):
            try:
                _overwrite(target, data)
            except OSError:
                _overwrite(target, before)
                raise
    finally:
        os.close(target)


def restore_torn_file(place: "OpenDirEntry", before: bytes, after: bytes) -> bool:
    """Put a file back as it was if a write in place was cut off in it. Return whether it is as before or after now:
    else somebody changed it since."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    target = os.open(place.name, flags, dir_fd=place.directory)
    try:
        now = _read_all(target) if stat.S_ISREG(os.fstat(target).st_mode) else b""
        if is_torn(now, before, after):
            _overwrite(target, before)
            return True
        return now in (before, after)
    finally:
        os.close(target)


def is_torn(now: bytes, before: bytes, after: bytes) -> bool:
    """Return whether each block of a file is as before or as after a write, and they are mixed."""
    if now in (before, after) or not min(len(before), len(after)) <= len(now) <= max(len(before), len(after)):
        return False
    return all(
        _is_mixed_block(*(data[at : at + _BLOCK] for data in (now, before, after)))
        for at in range(0, len(now), _BLOCK)
    )


def _is_mixed_block(now: bytes, before: bytes, after: bytes) -> bool:
    """Return whether a block begins as after a write and goes on as before it; it may be one of both alone."""
    if now == before or after.startswith(now):
        return True
    done = next(
        (n for n, (one, other) in enumerate(zip(now, after, strict=False)) if one != other), len(after)
    )
    return now[done:] == before[done : len(now)]


def restore_from_copies(copies: Path, restore: Callable[[Path, bytes, bytes], bool]) -> None:
    """Let `restore` put back what killed writes left: a path, its file before and after. Remove copies for which it
    returns that they are needed no more."""
    for folder in sorted(copies.iterdir()) if copies.is_dir() else ():
        with suppress(FileNotFoundError, BlockingIOError), _locked(folder):
            named = folder / "path"  # written last: without it, the file wasn't touched
            if named.exists():
                path = Path(os.fsdecode(named.read_bytes()))
                if not restore(path, (folder / "before").read_bytes(), (folder / "after").read_bytes()):
                    continue
            shutil.rmtree(folder)


@contextmanager
def _kept_copies(copies: Path, path: Path, before: bytes, after: bytes) -> Generator[None]:
    """Keep both states of a file while it is written."""
    folder = copies / hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    make_private_directory(folder)
    with _locked(folder):
        for name, data in (("before", before), ("after", after), ("path", os.fsencode(path))):
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, CLOSED_FILE)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(folder)
        yield
        shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Hold the folder's lock, which dies with its holder. Raise `BlockingIOError` if another process has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _read_all(file: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.pread(file, 1 << 20, sum(map(len, pieces))):
        pieces.append(piece)
    return b"".join(pieces)


def _overwrite(file: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done : done + (1 << 20)], done)
    os.ftruncate(file, len(data))
    os.fsync(file)
