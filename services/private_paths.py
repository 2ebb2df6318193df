"""private_paths: names that no tool reads or writes, wherever in the workspace they stand."""

import os
import re
import stat
import unicodedata
from functools import lru_cache
from pathlib import Path

_NAMES = frozenset({".git", ".env", "git~1", "env~1"})
"""`pipelines.md` §4, and their short names on Windows' file systems; other names such as `.env.local` are fine."""
_KEPT = (".env", ".netrc", ".git-credentials", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")
"""Private files with one fixed name."""
_CREDENTIALS = re.compile(
    r"gha-creds-.*\.json|\.git-credentials|\.netrc|id_(rsa|dsa|ecdsa|ed25519)", re.DOTALL
)
"""Names of files that hold keys: those that CI writes, git's and curl's stores, private SSH keys."""
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""Characters that some file systems pass over, besides those of the category Cf (joiners, direction marks, …)."""


def folded(name: str) -> str:
    """The same for all spellings of a name that some file system takes for one: upper and lower case, composed and
    decomposed, full width, characters without width, dots and blanks at the end, a stream after a colon."""
    if not name.isascii():
        name = _plain(name)
    return name.partition(":")[0].rstrip(". ").casefold()


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    seen = (c for c in unicodedata.normalize("NFKC", name.casefold()) if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", _IGNORABLE.sub("", "".join(seen)))


def is_private(name: str) -> bool:
    """One path segment."""
    known = folded(name)
    return known in _NAMES or _CREDENTIALS.fullmatch(known) is not None


def private_part(path: Path) -> str | None:
    """The first private segment of a path that is relative to its root."""
    return next((part for part in path.parts if is_private(part)), None)


def private_twin(path: Path, root: Path) -> str | None:
    """A private file beside `path` or above it, up to `root`, that is the same file: a hard link under another name.

    Only these are looked at, and only for files with several names. A link to a file elsewhere can't be told from the
    links that package managers make by the thousand; whoever can make one could have copied the file as well.
    """
    status = _status(path)
    if status is None or status.st_nlink == 1 or not stat.S_ISREG(status.st_mode):
        return None
    above = [d for d in path.parents if d.is_relative_to(root)]
    twins = (str(d / name) for d in above for name in _KEPT)
    return next((t for t in twins if (s := _status(t)) and os.path.samestat(s, status)), None)


def _status(path: Path | str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
