"""ignored: what a run's options say of the tests that its first snapshot doesn't hold."""

from collections.abc import Mapping
from typing import Any, NamedTuple

IGNORED = "ignored_tests"
"""The run's option that names the commit with tests that its first snapshot doesn't hold."""


class Ignored(NamedTuple):
    """Tests that no snapshot holds, as they were when the run began."""

    repository: str
    commit: str
    why: str = ""
    """Why there is no commit."""


def ignored_in(options: Mapping[str, Any]) -> Ignored | None:
    """Return what a run's options say of tests that its first snapshot doesn't hold; None: nobody looked."""
    found: Mapping[str, Any] | None = options.get(IGNORED)
    return Ignored(**found) if found else None
