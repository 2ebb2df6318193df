"""disk: the program's own files: made durably, closed to others; regular files, read without waiting for a pipe; and
what a database or a disk says when it fails, as one line with what to do."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from interlock.services.files.stamps import record_read
from interlock.state.errors import BusyError, RunError, StoreError

CLOSED_FILE = 0o600
"""Mode of a file that keeps it, or gets its own mode once it exists."""
OWNER_DIRECTORY = 0o700
_OTHERS = 0o077
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@contextmanager
def sync_directory_on_exit(directory: int | Path) -> Generator[None]:
    """Make changes inside the block survive a power cut. Opened first, so that nothing starts if it can't be synced.

    A descriptor may be usable only as `dir_fd`.
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
    with sync_directory_on_exit(directory):
        pass


def make_private_directory(directory: Path) -> None:
    """Create one of our directories and its missing parents durably, for their owner alone."""
    make_directories_durably(directory, OWNER_DIRECTORY)


def ensure_private_file(path: Path) -> None:
    """Create an empty file for its owner alone, unless it exists: SQLite and others would let everybody read it."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, CLOSED_FILE))


def replace_private_file(path: Path, text: str) -> None:
    """Replace a file that only its owner may read. Nobody sees a part of it, and it survives a power cut."""
    made = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(
        os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, CLOSED_FILE), "w", encoding="utf-8"
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)


def require_path_below(folder: Path, name: str) -> Path:
    """Return the path of a name that a row of a store gave. Raises `RunError` for a name that leads out of the folder:
    others may write rows of a database, and those must not choose this host's files."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise RunError(f"The store names {name[:200]!r}, which isn't a name below {str(folder)!r}.")
    return folder / name


def restrict_tree_to_owner(path: Path) -> bool:
    """Take other users' permissions from a file or directory and all below it; return whether any had one."""
    open_to_others = False
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            open_to_others |= _restrict_entry_to_owner(os.path.join(folder, name))  # noqa: PTH118 - thousands
    return _restrict_entry_to_owner(str(path)) or open_to_others


def _restrict_entry_to_owner(path: str) -> bool:
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISLNK(mode) and mode & _OTHERS:
            os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS)  # noqa: PTH101 - thousands
            return True
    return False


def make_directories_durably(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and its missing parents durably."""
    missing = [directory]
    while not missing[-1].exists():
        missing.append(missing[-1].parent)
    for made in reversed(missing[:-1]):
        made.mkdir(mode=mode, exist_ok=True)
        sync_directory(made.parent)


_LARGEST = 10_000_000
"""More than any file that configures something."""
_AT_ONCE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Opening a pipe doesn't wait for a writer: such a wait can be ended by neither Ctrl-C nor a time-out."""


def read_file(path: Path, limit: int = _LARGEST) -> bytes:
    """Read a whole file. Raises `OSError`, also for a pipe, device or directory, and over `limit` bytes."""
    record_read(path)
    handle = os.open(path, _AT_ONCE)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
    return data


def read_text_file(path: Path, limit: int = _LARGEST) -> str:
    """Read a UTF-8 file as text with LF line ends. Raises `OSError` like `read_file`, and `UnicodeDecodeError`."""
    return read_file(path, limit).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


BUSY_TIMEOUT_S = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BROKEN = (errno.EIO, errno.EROFS)


@contextmanager
def convert_store_errors(path: Path, database_error: type[Exception]) -> Generator[None]:
    """Convert a database's errors, which are of this kind, and those of the disk to one line that says what to do."""
    try:
        yield
    except database_error as error:
        raise to_store_error(error, path) from error
    except OSError as error:
        if error.errno not in (*_FULL, *_BROKEN):
            raise
        raise to_disk_error(error, path) from error


_STORE_FAILURES = (
    (
        ("readonly", "unable to open"),
        "Can't write the store {shown}: {text}. Check its permissions, or set INTERLOCK_HOME.",
    ),
    (
        ("malformed", "not a database"),
        "The store {shown} is damaged ({text}). Move it away to start anew, "
        "or recover it with: sqlite3 interlock.db .recover",
    ),
    (
        ("disk I/O",),
        "The disk failed under the store {shown} ({text}). Check that it has space and can be written, "
        "then: interlock resume latest",
    ),
    (("",), "The store {shown} failed: {text}. Check it with: interlock doctor --store"),
)
"""What a database's error says, and what people are told; the first that fits."""


def to_store_error(error: Exception, path: Path) -> StoreError | BusyError:
    """Return a database's error as one line that says what to do."""
    text, shown = str(error), repr(str(path))
    if "locked" in text or "busy" in text:
        return BusyError(
            f"The store {shown} is busy: another process has written to it for {BUSY_TIMEOUT_S:.0f} s. "
            "See which with: interlock runs --status running"
        )
    if "full" in text:
        return _no_space_error(shown)
    advice = next(advice for signs, advice in _STORE_FAILURES if any(sign in text for sign in signs))
    return StoreError(advice.format(shown=shown, text=text))


def to_disk_error(error: OSError, path: Path) -> StoreError:
    """Return the error of a full or broken disk, with the name of the file involved."""
    shown = repr(str(error.filename or path))
    if error.errno in _FULL:
        return _no_space_error(shown)
    return StoreError(
        f"Can't write {shown}: {error.strerror}. Check the disk, then: interlock resume latest; "
        "or choose another state directory with INTERLOCK_HOME."
    )


def _no_space_error(shown_path: str) -> StoreError:
    return StoreError(
        f"No space left to write {shown_path}. Free some, then: interlock resume latest; "
        "or choose another state directory with INTERLOCK_HOME."
    )
