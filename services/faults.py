"""faults: what a database or a disk says when it fails, as one line with what to do."""

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.state.errors import BusyError, StoreError

BUSY_TIMEOUT_S = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BROKEN = (errno.EIO, errno.EROFS)


@contextmanager
def explained(path: Path, kind: type[Exception]) -> Generator[None]:
    """Convert a database's errors, which are of this kind, and those of the disk to one line that says what to do."""
    try:
        yield
    except kind as error:
        raise explain(error, path) from error
    except OSError as error:
        if error.errno not in (*_FULL, *_BROKEN):
            raise
        raise explain_disk(error, path) from error


def explain(error: Exception, path: Path) -> StoreError | BusyError:
    text, shown = str(error), repr(str(path))
    if "locked" in text or "busy" in text:
        return BusyError(
            f"The store {shown} is busy: another process has written to it for {BUSY_TIMEOUT_S:.0f} s. "
            "See which with: interlock runs --status running"
        )
    if "full" in text:
        return _no_space(shown)
    if "readonly" in text or "unable to open" in text:
        return StoreError(
            f"Can't write the store {shown}: {text}. Check its permissions, or set INTERLOCK_HOME."
        )
    if "malformed" in text or "not a database" in text:
        return StoreError(
            f"The store {shown} is damaged ({text}). Move it away to start anew, "
            "or recover it with: sqlite3 interlock.db .recover"
        )
    if "disk I/O" in text:
        return StoreError(
            f"The disk failed under the store {shown} ({text}). Check that it has space and can be written, "
            "then: interlock resume latest"
        )
    return StoreError(f"The store {shown} failed: {text}. Check it with: interlock doctor --store")


def explain_disk(error: OSError, path: Path) -> StoreError:
    """Describe a full or broken disk, naming the file involved."""
    shown = repr(str(error.filename or path))
    if error.errno in _FULL:
        return _no_space(shown)
    return StoreError(
        f"Can't write {shown}: {error.strerror}. Check the disk, then: interlock resume latest; "
        "or choose another state directory with INTERLOCK_HOME."
    )


def _no_space(shown: str) -> StoreError:
    return StoreError(
        f"No space left to write {shown}. Free some, then: interlock resume latest; "
        "or choose another state directory with INTERLOCK_HOME."
    )
