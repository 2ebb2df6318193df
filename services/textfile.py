"""textfile: a text file that nobody vouched for, read within a limit."""

import stat
from pathlib import Path


class UnreadableError(Exception):
    """Why a file's text can't be had, in a few words."""


def is_file(path: Path) -> bool:
    """False also where a directory on the way may not be searched."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_text(path: Path, limit: int) -> str:
    """Up to `limit` bytes as text, line ends as LF; a cut is said at its end. Raises `UnreadableError`."""
    try:
        status = path.stat()
        # A pipe or device would be waited for.
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("not a regular file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise UnreadableError("no such file") from None
    except (OSError, ValueError) as error:
        raise UnreadableError(getattr(error, "strerror", None) or str(error)) from None
    if b"\0" in data:
        raise UnreadableError("not a text file")
    text = data[:limit].decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    if len(data) <= limit:
        return text
    return f"{text}\n[Cut here: the file has {status.st_size:,} bytes, the first {limit:,} are shown.]"
