"""textfile: a text file that nobody vouched for, read within a limit."""

import os
from pathlib import Path

from interlock.services.anchors import Anchor
from interlock.tools._places import NotAFileError, open_file


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
