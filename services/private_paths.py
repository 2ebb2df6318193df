"""private_paths: names that no tool reads or writes, wherever in the workspace they stand."""

import re
from pathlib import Path

_NAMES = frozenset({".git", ".env"})
"""`pipelines.md` §4; other names such as `.env.local` are fine."""
_CREDENTIALS = re.compile(r"gha-creds-.*\.json|\.git-credentials|\.netrc|id_(rsa|dsa|ecdsa|ed25519)")
"""Names of files that hold keys: those that CI writes, git's and curl's stores, private SSH keys."""


def is_private(name: str) -> bool:
    """One path segment; upper and lower case don't differ, as on file systems that ignore it."""
    folded = name.casefold()
    return folded in _NAMES or _CREDENTIALS.fullmatch(folded) is not None


def private_part(path: Path) -> str | None:
    """The first private segment of a path that is relative to its root."""
    return next((part for part in path.parts if is_private(part)), None)
