"""regular: reads regular files without waiting: a pipe or device in the place of one is an error."""

import errno
import os
import stat
from pathlib import Path

_LARGEST = 10_000_000
"""More than any file that configures something."""
_AT_ONCE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Opening a pipe doesn't wait for a writer: such a wait can be ended by neither Ctrl-C nor a time-out."""


def read_file(path: Path, limit: int = _LARGEST) -> bytes:
    """Read a whole file. Raises `OSError`, also for a pipe, device or directory, and over `limit` bytes."""
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
