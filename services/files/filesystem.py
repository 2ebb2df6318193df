"""filesystem: reads, locks and atomically writes files without following links; stores `outputs/` in the state
directory, content-addressed and durable before anything refers to them."""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.files.disk import (
    CLOSED_FILE,
    OWNER_DIRECTORY,
    make_directories_durably,
    make_private_directory,
    sync_directory,
    sync_directory_on_exit,
)
from interlock.services.files.in_place import copy_owner_and_attributes, write_in_place
from interlock.services.files.stamps import record_read
from interlock.services.secrets.redaction import SHAPES, Redactor

if TYPE_CHECKING:  # fast commands read chains: keep their imports few
    from interlock.state.calls import CallKey
    from interlock.state.workspace import FileConventions, OpenDirEntry


class UnreadableError(Exception):
    """Says briefly why a file's text can't be read."""


def is_directory(entry: os.DirEntry[str], *, follow_symlinks: bool) -> bool:
    """Return whether it is a folder; not if that can't be found out."""
    try:
        return entry.is_dir(follow_symlinks=follow_symlinks)
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Like `Path.is_file`, but False if a parent directory may not be searched."""
    record_read(path)
    try:
        return path.is_file()
    except OSError:
        return False


def read_truncated_text(
    path: Path, limit: int, within: Path, conventions: "FileConventions | None" = None
) -> str:
    """Read up to `limit` bytes as text with LF line ends; a note at the end marks a cut. Raises `UnreadableError`.

    Both paths are real paths. No link below `within` is followed, so that the file checked is the file read.
    """
    # They import all tools: only when needed.
    from interlock.state.text import replace_surrogates
    from interlock.state.workspace import NO_CONVENTIONS
    from interlock.tools.file_content import decode_text_file, decode_text_start
    from interlock.tools.workspace_files import NotAFileError, open_regular_file

    record_read(path)
    try:
        with HeldDirectory(within).open_parent_directory(path) as place, open_regular_file(place) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise UnreadableError("no such file") from None
    except (IsADirectoryError, NotAFileError):
        raise UnreadableError("not a regular file") from None
    except (OSError, ValueError) as error:
        raise UnreadableError(getattr(error, "strerror", None) or str(error)) from None
    is_whole = len(data) <= limit
    decode = decode_text_file if is_whole else decode_text_start
    decoded = decode(data[:limit], conventions or NO_CONVENTIONS, path.name)
    if decoded is None:
        raise UnreadableError("not a text file")
    text = replace_surrogates(decoded.text.replace("\r", "\n"))
    if is_whole:
        return text
    return f"{text}\n[Cut here: the file has {size:,} bytes, the first {limit:,} are shown.]"


_CHUNK = 1 << 20
_NEW_FILE = 0o666
"""Mode of a new file, before the umask."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_LOOK_AGAIN_S = 0.02


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def hash_file_at(place: "OpenDirEntry") -> str | None:
    """Return the sha256 of a file's current bytes, None if there is no file, or `unreadable`, which equals no hash."""
    from interlock.tools.workspace_files import open_regular_file  # imports all tools: only when needed

    digest = hashlib.sha256()
    try:
        with open_regular_file(place) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable"
    return digest.hexdigest()


def temporary_path(path: Path, key: "CallKey") -> Path:
    """Return the temporary path for a call's write: the same on each attempt, so that leftovers are found."""
    return path.with_name(f".interlock-{sha256(f'{key.message}.{key.index}'.encode())[:16]}.tmp")


def remove_temporary_file(place: "OpenDirEntry", key: "CallKey") -> None:
    """Remove the temporary file of a killed write."""
    _remove_if_exists(place.directory, temporary_path(Path(place.name), key).name)


def write_atomically(
    place: "OpenDirEntry",
    data: bytes,
    key: "CallKey",
    *,
    private: bool = False,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Replace a file's bytes, keeping its mode, or create it (`private`: for its owner alone). Durable on return.

    `check`: called right before the file is replaced; what it raises leaves the file unchanged.
    Only this name is replaced: other hard links to the file keep the old bytes. Raises OSError (full disk, missing
    permission), leaving the file unchanged and no leftovers.
    """
    found = _stat_if_exists(place)
    mode = (CLOSED_FILE if private else None) if found is None else stat.S_IMODE(found.st_mode)
    _replace_durably(place, data, temporary_path(Path(place.name), key).name, mode, check)


def write_keeping_file(
    place: "OpenDirEntry",
    path: Path,
    data: bytes,
    key: "CallKey",
    copies: Path,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write a user's file, keeping owner, group, mode, ACL, extended attributes, hard links and mounts, or create it.

    It is replaced where that keeps everything, else written in place, with its copy in `copies` until that is done.
    Durable on return. Raises OSError, leaving the file unchanged and no leftovers.
    """
    found = _stat_if_exists(place)
    scratch = temporary_path(Path(place.name), key).name
    if found is None:
        _replace_durably(place, data, scratch, None, check)
    elif found.st_nlink > 1 or not _try_to_replace(place, data, scratch, stat.S_IMODE(found.st_mode), check):
        check()
        write_in_place(place, path, data, copies)


def _try_to_replace(
    place: "OpenDirEntry", data: bytes, scratch_name: str, mode: int, check: Callable[[], None]
) -> bool:
    """Replace a file by one that differs in its bytes only; return whether that can be done here."""
    try:
        old = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.directory)
    except PermissionError:  # it may be written, but not read: then its attributes can't be seen
        return False
    try:
        _replace_durably(place, data, scratch_name, mode, check, old)
    except _CannotKeepError:
        return False
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EXDEV):  # something is mounted there
            return False
        raise
    finally:
        os.close(old)
    return True


class _CannotKeepError(OSError):
    """A new file can't get the owner or attributes of the old one."""


def _stat_if_exists(place: "OpenDirEntry") -> os.stat_result | None:
    from interlock.tools.workspace_files import stat_refusing_links  # imports all tools: only when needed

    try:
        return stat_refusing_links(place)
    except FileNotFoundError:
        return None


def replace_with_file(place: "OpenDirEntry", data: bytes, mode: int) -> None:
    """Replace a file, a link or nothing with a file of this mode. Durable on return."""
    _replace_durably(place, data, _scratch_name(place), mode)


def create_file(place: "OpenDirEntry", data: bytes, mode: int, umask: int) -> None:
    """Create a file with this mode; fails if one exists. Unsynced, as there are thousands. `umask`: this process's."""
    descriptor = os.open(place.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=place.directory)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        if mode & (umask | ~0o777):
            os.chmod(descriptor, mode)  # noqa: PTH101 - by descriptor, not by name
    finally:
        os.close(descriptor)


def replace_with_link(place: "OpenDirEntry", target: str) -> None:
    """Replace a file, a link or nothing with a link."""
    scratch = _scratch_name(place)
    _remove_if_exists(place.directory, scratch)
    os.symlink(target, scratch, dir_fd=place.directory)
    os.replace(scratch, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)


def _scratch_name(place: "OpenDirEntry") -> str:
    return f".interlock-{sha256(os.fsencode(place.name))[:16]}.tmp"


def replace_private_file_holding_lock(path: Path, data: bytes) -> None:
    """Like `write_atomically`, for one of our files readable only by its owner. Writers must hold `locked`."""
    from interlock.state.workspace import OpenDirEntry

    directory = os.open(path.parent, _DIRECTORY)
    try:
        _replace_durably(OpenDirEntry(directory, path.name), data, f".{path.name}.tmp", CLOSED_FILE)
    finally:
        os.close(directory)


@contextmanager
def lock_folder(folder: Path | int, wait_s: float | None = None) -> Generator[None]:
    """Hold an exclusive lock across processes; it dies with its holder. Raise `TimeoutError` after `wait_s`.

    A descriptor may be usable only as `dir_fd`.
    """
    handle = (
        os.open(folder, _DIRECTORY) if isinstance(folder, Path) else os.open(".", _DIRECTORY, dir_fd=folder)
    )
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


def _replace_durably(
    place: "OpenDirEntry",
    data: bytes,
    scratch_name: str,
    mode: int | None,
    check: Callable[[], None] = lambda: None,
    like: int | None = None,
) -> None:
    with sync_directory_on_exit(place.directory):
        _remove_if_exists(place.directory, scratch_name)
        try:
            _write_new_file(place._replace(name=scratch_name), data, mode, like)
            check()
            os.replace(scratch_name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        except OSError:
            _remove_if_exists(place.directory, scratch_name)
            raise


def _remove_if_exists(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _write_new_file(place: "OpenDirEntry", data: bytes, mode: int | None, like: int | None = None) -> None:
    """Write a new file, with the owner and attributes of the open file `like`. Raise `_CannotKeepError` if it can't
    have them."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(
        place.name, flags, _NEW_FILE if mode is None else CLOSED_FILE, dir_fd=place.directory
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if like is not None:
            try:
                copy_owner_and_attributes(like, file.fileno())
            except OSError as error:
                raise _CannotKeepError(*error.args) from error
        if mode is not None:  # now: writing takes the set-user-ID bit away, unless root writes
            os.chmod(file.fileno(), mode)  # noqa: PTH101 - by descriptor, not by name
        os.fsync(file.fileno())


SEARCH_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
"""Flags for opening a directory on the way. On Linux this needs no read permission."""

_LONGEST = 4096
"""Maximum bytes of a path including its terminator (Linux)."""


class DirectoryGoneError(OSError):
    """A directory that was there before was deleted or moved away."""


class HeldDirectory:
    """A directory by its real path, held open as soon as it exists. One that was made anew there is taken instead."""

    def __init__(self, path: Path, *, private: bool = False) -> None:
        """`private`: it and what is made in it are for their owner alone."""
        self.path = path
        self._mode = OWNER_DIRECTORY if private else 0o777
        self._held: int | None = None
        with suppress(OSError):  # missing or not accessible: reported on use
            self._open_once()

    @contextmanager
    def open_parent_directory(self, path: Path, *, create_missing: bool = False) -> Generator["OpenDirEntry"]:
        """See `Workspace.open_parent_directory`; `path` is this directory or below it."""
        from interlock.state.workspace import OpenDirEntry

        parts = path.relative_to(self.path).parts
        if ".." in parts:
            raise OSError(errno.EXDEV, "leads outside")
        if len(os.fsencode(path)) >= _LONGEST:  # creatable step by step, but then not addressable by path
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if create_missing and self._held is None:
            make_directories_durably(self.path, self._mode)
        directory = os.open(".", SEARCH_FLAGS, dir_fd=self._require_directory_at_path())
        try:
            for name in parts[:-1]:
                deeper = _open_or_create_subdirectory(directory, name, self._mode if create_missing else None)
                os.close(directory)
                directory = deeper
            yield OpenDirEntry(directory, parts[-1] if parts else ".")
        finally:
            os.close(directory)

    def _open_once(self) -> int:
        if self._held is None:
            self._held = os.open(self.path, SEARCH_FLAGS)
            self._close = weakref.finalize(self, os.close, self._held)
        return self._held

    def _require_directory_at_path(self) -> int:
        """Return a descriptor of the directory that is at the path: writes must be found there. Raise OSError if none
        is, or a link was put on the way."""
        held = self._open_once()
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(self.path.lstat(), os.fstat(held)):
                return held
        try:
            new = _open_without_links(self.path)
        except (FileNotFoundError, NotADirectoryError):
            where = f"the folder {str(self.path)!r} was deleted or moved away while the run worked in it"
            raise DirectoryGoneError(errno.ESTALE, f"{where}; ask the user to bring it back") from None
        self._close()
        self._held, self._close = new, weakref.finalize(self, os.close, new)
        return new

    def is_replaced(self) -> bool:
        """Return whether another directory, or none, is at the path since it was last used."""
        if self._held is None:
            return False
        try:
            return not os.path.samestat(self.path.lstat(), os.fstat(self._held))
        except OSError:
            return True


def _open_without_links(path: Path) -> int:
    """Open a directory by its real path. Raise OSError, ELOOP for a link on the way."""
    opened = os.open("/", SEARCH_FLAGS)
    for name in path.parts[1:]:
        try:
            deeper = _open_or_create_subdirectory(opened, name, None)
        finally:
            os.close(opened)
        opened = deeper
    return opened


def _open_or_create_subdirectory(directory: int, name: str, mode: int | None) -> int:
    """Open a directory in another; if it is missing, create it with `mode`, if any."""
    try:
        return os.open(name, SEARCH_FLAGS, dir_fd=directory)
    except FileNotFoundError:
        if mode is None:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=directory)
        sync_directory(directory)
        return os.open(name, SEARCH_FLAGS, dir_fd=directory)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "a link was put on the way to it meanwhile") from None
        raise


_NAME_LENGTH = 32
"""Hex digits of the sha256 in a name: 128 bits."""


@dataclass
class OutputFiles:
    """Implements `Outputs`. Only the owner can read its files."""

    state_directory: Path
    redact: Redactor = SHAPES
    on_complete: Callable[[Path], None] = lambda _: None
    """Called with each file that is complete."""

    @property
    def directory(self) -> Path:
        return self.state_directory / "outputs"

    def save_bytes(self, data: bytes, suffix: str = ".txt") -> Path:
        """Store `data`; equal bytes get the same name. File and folder are durable on return."""
        self._make_outputs_directory()
        if suffix == ".txt":
            data = self.redact.for_latin1_bytes()(data.decode("latin-1")).encode("latin-1")
        path = self.directory / (sha256(data)[:_NAME_LENGTH] + suffix)
        store_content(self.directory, path.name, data)
        self.on_complete(path)
        return path

    def create_spool_file(self) -> Path:
        """See `Outputs.create_spool_file`: creates an empty file with a unique name."""
        self._make_outputs_directory()
        path = self.directory / f"spool-{secrets.token_hex(8)}.txt"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, CLOSED_FILE))
        return path

    def rename_spool_to_digest(self, spool: Path, digest: str) -> Path:
        path = rename_to_hash(spool, digest)
        self.on_complete(path)
        return path

    def mark_spool_finished(self, spool: Path) -> None:
        if spool.exists():
            self.on_complete(spool)

    def _make_outputs_directory(self) -> None:
        make_private_directory(self.directory)
        self.directory.chmod(OWNER_DIRECTORY)


def store_content(folder: Path, name: str, data: bytes) -> None:
    """Store `data` under its content-addressed name; durable on return, before any row names it."""
    path = folder / name
    with lock_folder(folder):
        if _sync_if_same_bytes(path, data):
            os.utime(path)
            sync_directory(folder)
        else:
            replace_private_file_holding_lock(path, data)


def rename_to_hash(spool: Path, digest: str) -> Path:
    """Rename a file, already synced, to its sha256 (hex)."""
    named = spool.with_name(f"{digest[:_NAME_LENGTH]}.txt")
    with lock_folder(spool.parent):
        spool.replace(named)
    sync_directory(spool.parent)
    return named


def remove_file_if_older_than(path: Path, cutoff: float) -> None:
    """Remove a file unless it was stored after `cutoff` (Unix time): then it is about to be referenced."""
    with lock_folder(path.parent), suppress(FileNotFoundError):
        if path.stat().st_mtime <= cutoff:
            path.unlink()


def _sync_if_same_bytes(path: Path, data: bytes) -> bool:
    """Return whether the file has these bytes; after a power cut a name can exist without them and is rewritten."""
    try:
        if path.stat().st_size != len(data) or path.read_bytes() != data:
            return False
        with path.open("rb") as file:
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    return True
