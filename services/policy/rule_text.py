"""rule_text: the text of a rule file, if nobody else could have written it."""

import os
import stat
from pathlib import Path

from interlock.services.policy.rule import ADMIN, SHIPPED, WORKSPACE

_LARGEST = 1_000_000
"""Bytes of a rule file."""
_READABLE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Not blocking: a pipe that lies there must not hold the run."""


class RuleTextError(ValueError):
    """A rule file that doesn't count; the text says why."""


def read_rules(path: Path, tier: int) -> str:
    """Raises `RuleTextError`.

    A file of the user, an extension or the admin doesn't count when others may write it or its folder: they would
    decide what is allowed. Who trusts a workspace trusts whoever may write in it.
    """
    try:
        handle = os.open(path, _READABLE)
        with open(handle, "rb") as file:  # noqa: PTH123 - the file that is checked is the one that is read
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise RuleTextError("can't be read: it is no file")
            if tier not in (SHIPPED, WORKSPACE):
                _check(found, tier, "it")
                _check(os.stat(os.path.dirname(os.path.realpath(path))), tier, "its folder")  # noqa: PTH116, PTH120
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise RuleTextError(f"can't be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise RuleTextError(f"can't be read: over {_LARGEST} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleTextError(f"can't be read: not UTF-8 (byte {error.start})") from None


def _check(found: os.stat_result, tier: int, what: str) -> None:
    mode, sticky = found.st_mode, stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    others = stat.S_IWOTH | (stat.S_IWGRP if tier == ADMIN else 0)
    if mode & others and not sticky:
        raise RuleTextError(f"doesn't count: others may write {what} (mode {stat.S_IMODE(mode):04o})")
    if tier == ADMIN and found.st_uid not in (0, os.geteuid()):
        raise RuleTextError(f"doesn't count: {what} belongs to another user (uid {found.st_uid})")
