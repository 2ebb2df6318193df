"""filesystem: files read, locked and written, whole or not at all, and through no link; and those of `outputs/` in the
state directory, named by their content and durable before anything names them."""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.secrets.redaction import SHAPES, Redactor

if TYPE_CHECKING:  # chains are read by the fast commands
    from interlock.state.calls import CallKey
    from interlock.state.tooling import Place


class UnreadableError(Exception):
    """Why a file's text can't be had, in a few words."""


def is_file(path: Path) -> bool:
    """False also where a directory on the way may not be searched."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_text(path: Path, limit: int, within: Path) -> str:
    """Up to `limit` bytes as text, line ends as LF; a cut is said at its end. Raises `UnreadableError`.

    Both are real paths. From `within` on no link is followed, so that what was checked is what is read.
    """
    from interlock.tools._opening import (  # with all tools: not before they are needed
        NotAFileError,
        open_file,
    )

    try:
        with Anchor(within).place(path) as place, open_file(place) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise UnreadableError("no such file") from None
    except (IsADirectoryError, NotAFileError):
        raise UnreadableError("not a regular file") from None
    except (OSError, ValueError) as error:
        raise UnreadableError(getattr(error, "strerror", None) or str(error)) from None
    if b"\0" in data:
        raise UnreadableError("not a text file")
    text = data[:limit].decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    if len(data) <= limit:
        return text
    return f"{text}\n[Cut here: the file has {size:,} bytes, the first {limit:,} are shown.]"


_CHUNK = 1 << 20
_NEW_FILE = 0o666
"""Mode of a new file, before the umask."""
_CLOSED_FILE = 0o600
"""Mode of a file that gets its own once it is there, or keeps this one."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_LOOK_AGAIN_S = 0.02


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def hash_at(place: "Place") -> str | None:
    """sha256 of a file's bytes as it is now; None: no file. What can't be read is `unreadable`, equal to no hash."""
    from interlock.tools._opening import open_file  # with all tools: not before they are needed

    digest = hashlib.sha256()
    try:
        with open_file(place) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable"
    return digest.hexdigest()


def temporary(path: Path, key: "CallKey") -> Path:
    """Where a write of this call goes first: the same name on each attempt, so that a leftover is found again."""
    return path.with_name(f".interlock-{sha256(f'{key.message}.{key.index}'.encode())[:16]}.tmp")


def remove_leftover(place: "Place", key: "CallKey") -> None:
    """Remove what a write that was killed left behind."""
    _remove(place.directory, temporary(Path(place.name), key).name)


def write_atomically(place: "Place", data: bytes, key: "CallKey") -> None:
    """Replace a file's bytes, keeping its mode, or create it. Durable on return.

    What is replaced is the name: another name of the same file (a hard link) keeps the old bytes. Raises OSError
    (a full disk, missing permission) and then the file is as it was, and nothing is left behind.
    """
    from interlock.tools._opening import status_at  # with all tools: not before they are needed

    try:
        mode = stat.S_IMODE(status_at(place).st_mode)
    except FileNotFoundError:
        mode = None
    _replace(place, data, temporary(Path(place.name), key).name, mode)


def replace_with(place: "Place", data: bytes, mode: int) -> None:
    """Put a file with this mode where a file, a link or nothing is. Durable on return."""
    _replace(place, data, _scratch(place), mode)


def new_file(place: "Place", data: bytes, mode: int, umask: int) -> None:
    """Make a file with this mode where nothing is; of thousands, so it isn't synced. `umask`: this process's."""
    descriptor = os.open(place.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=place.directory)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        if mode & (umask | ~0o777):
            os.chmod(descriptor, mode)  # noqa: PTH101 - by descriptor, not by name
    finally:
        os.close(descriptor)


def replace_link(place: "Place", target: str) -> None:
    """Put a link where a file, a link or nothing is."""
    scratch = _scratch(place)
    _remove(place.directory, scratch)
    os.symlink(target, scratch, dir_fd=place.directory)
    os.replace(scratch, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)


def _scratch(place: "Place") -> str:
    return f".interlock-{sha256(os.fsencode(place.name))[:16]}.tmp"


def replace_file(path: Path, data: bytes) -> None:
    """As `write_atomically`, for a file of ours that its owner alone may read. Its writers take turns (`locked`)."""
    from interlock.state.tooling import Place

    directory = os.open(path.parent, _DIRECTORY)
    try:
        _replace(Place(directory, path.name), data, f".{path.name}.tmp", _CLOSED_FILE)
    finally:
        os.close(directory)


@contextmanager
def locked(folder: Path, wait_s: float | None = None) -> Generator[None]:
    """One at a time, over all processes; a killed one leaves no lock. Raises `TimeoutError` after `wait_s`."""
    handle = os.open(folder, _DIRECTORY)
    until = None if wait_s is None else time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX if until is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if until is not None and time.monotonic() > until:
                    why = f"another process has been writing there for {wait_s:g} s"
                    raise TimeoutError(errno.ETIMEDOUT, why) from None
            time.sleep(_LOOK_AGAIN_S)
        yield
    finally:
        os.close(handle)


def _replace(place: "Place", data: bytes, scratch: str, mode: int | None) -> None:
    with _synced(place.directory):
        _remove(place.directory, scratch)
        try:
            _write_synced(place._replace(name=scratch), data, mode)
            os.replace(scratch, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        except OSError:
            _remove(place.directory, scratch)
            raise


def _remove(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _write_synced(place: "Place", data: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(
        place.name, flags, _NEW_FILE if mode is None else _CLOSED_FILE, dir_fd=place.directory
    )
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.chmod(file.fileno(), mode)  # noqa: PTH101 - by descriptor, not by name
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _synced(directory: int | Path) -> Generator[None]:
    """What happens inside survives a power cut. Opened first: where it can't be synced nothing is begun.

    A descriptor may be one that serves for `dir_fd` only.
    """
    if isinstance(directory, Path):
        descriptor = os.open(directory, _DIRECTORY)
    else:
        descriptor = os.open(".", _DIRECTORY, dir_fd=directory)
    try:
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: int | Path) -> None:
    """Make renames and new names in a directory survive a power cut."""
    with _synced(directory):
        pass


def make_directories(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and its parents, each durably in its own parent."""
    missing = [directory]
    while not missing[-1].exists():
        missing.append(missing[-1].parent)
    for made in reversed(missing[:-1]):
        made.mkdir(mode=mode, exist_ok=True)
        sync_directory(made.parent)


_SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
"""To a directory on the way. Linux asks no permission to read it."""

_LONGEST = 4096
"""Bytes of a path, its end included, that the system takes (Linux)."""


class Anchor:
    """A directory by its real path, held from the first moment on that it is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None
        with suppress(OSError):  # not there yet, or closed to us: who uses it is told
            self._hold()

    @contextmanager
    def place(self, path: Path, *, make: bool = False) -> Generator["Place"]:
        """As `Workspace.place`, for a path that is below the directory or the directory itself."""
        from interlock.state.tooling import Place

        parts = path.relative_to(self.path).parts
        if ".." in parts:
            raise OSError(errno.EXDEV, "leads outside")
        if len(os.fsencode(path)) >= _LONGEST:  # step by step it could be made, and then nobody could name it
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if make and self._held is None:
            make_directories(self.path)
        directory = os.open(".", _SEARCH, dir_fd=self._same())
        try:
            for name in parts[:-1]:
                deeper = _enter(directory, name, make)
                os.close(directory)
                directory = deeper
            yield Place(directory, parts[-1] if parts else ".")
        finally:
            os.close(directory)

    def _hold(self) -> int:
        if self._held is None:
            self._held = os.open(self.path, _SEARCH)
            weakref.finalize(self, os.close, self._held)
        return self._held

    def _same(self) -> int:
        """Its descriptor, while it is still what stands at the path: what is written must be found there."""
        held = self._hold()
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(self.path.lstat(), os.fstat(held)):
                return held
        raise OSError(
            errno.ESTALE, f"the directory {str(self.path)!r} was replaced since the run began; resume the run"
        )


def _enter(directory: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _SEARCH, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
        sync_directory(directory)
        return os.open(name, _SEARCH, dir_fd=directory)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "a link was put on the way to it meanwhile") from None
        raise


_OWNER_DIRECTORY = 0o700
_NAME_LENGTH = 32
"""Hex digits of the sha256 in a name: 128 bits."""


@dataclass
class OutputFiles:
    """Implements `Outputs`. Only the owner can read what is in it."""

    state_directory: Path
    redact: Redactor = SHAPES

    @property
    def directory(self) -> Path:
        return self.state_directory / "outputs"

    def save(self, data: bytes, suffix: str = ".txt") -> Path:
        """Keep `data`; the same bytes have the same name. On return file and folder are on the disk."""
        self._make()
        if suffix == ".txt":
            data = self.redact.for_bytes()(data.decode("latin-1")).encode("latin-1")
        path = self.directory / (sha256(data)[:_NAME_LENGTH] + suffix)
        store_file(self.directory, path.name, data)
        return path

    def new_spool(self) -> Path:
        """As `Outputs.new_spool`: an empty file with a name of its own."""
        self._make()
        path = self.directory / f"spool-{secrets.token_hex(8)}.txt"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _CLOSED_FILE))
        return path

    def _make(self) -> None:
        from interlock.services.files.filesystem import make_directories

        make_directories(self.directory, _OWNER_DIRECTORY)
        self.directory.chmod(_OWNER_DIRECTORY)


def store_file(folder: Path, name: str, data: bytes) -> None:
    """Keep `data` under a name that stands for these bytes; file and folder are on the disk before a row names it."""
    path = folder / name
    with locked(folder):
        if _holds(path, data):
            os.utime(path)
            sync_directory(folder)
        else:
            replace_file(path, data)


def take_name(spool: Path, digest: str) -> Path:
    """Name a file, whose bytes are on the disk, by its sha256 in hex."""
    named = spool.with_name(f"{digest[:_NAME_LENGTH]}.txt")
    with locked(spool.parent):
        spool.replace(named)
    sync_directory(spool.parent)
    return named


def remove_untouched(path: Path, since: float) -> None:
    """Remove a file, unless it was stored later than `since` (Unix time): then somebody is about to name it."""
    with locked(path.parent), suppress(FileNotFoundError):
        if path.stat().st_mtime <= since:
            path.unlink()


def _holds(path: Path, data: bytes) -> bool:
    """A name can be there without its bytes after a power cut; then it is written again."""
    try:
        if path.stat().st_size != len(data) or path.read_bytes() != data:
            return False
        with path.open("rb") as file:
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    return True
