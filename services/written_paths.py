"""written_paths: a path as models and people write it, and files of the state directory that tools may touch."""

import os
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from interlock.state.tooling import PathRefused

_UNNAMEABLE = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates but for those that stand for a byte that isn't UTF-8."""
_SUFFIX = ".txt"
"""Of tool outputs that were kept whole; what else lies in `outputs/` is the run's own record."""
_TRIES = 20
"""To follow a path whose links come and go."""


def written_path(path: str, root: Path) -> Path:
    """The path that is meant, neither followed nor checked; relative ones are below `root`. Raises `PathRefused`."""
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    if not path.strip():
        raise PathRefused("the path is empty; name a file or directory of the workspace.")
    if "\0" in path:
        raise PathRefused(f"{path!r} holds a NUL character; write the path without it.")
    if _UNNAMEABLE.search(path):
        raise PathRefused(f"{path!r} holds half a character, which no file has in its name; write it whole.")
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises where there is no home
    elif path.startswith("@") and len(path) > 1 and not os.path.lexists(root / path):
        path = path[1:]  # models copy the mark of a file reference
    return root / path


def followed(path: str | Path) -> Path:
    """The real path. Raises `PathRefused` where links come and go faster than they can be read."""
    for _ in range(_TRIES):
        with suppress(OSError):
            return Path(os.path.realpath(path))
    raise PathRefused(f"{str(path)!r} changes all the time; wait until what changes it has ended.")


def kept_output(outputs: Path | None, path: str) -> Path | None:
    """The real path, if `path` names a tool output that was kept whole; never a directory, never a link elsewhere."""
    if outputs is None or not path.endswith(_SUFFIX) or "\0" in path:
        return None
    real = followed(path)
    inside = real.parent == Path(os.path.realpath(outputs)) and real.suffix == _SUFFIX
    return real if inside and os.path.isfile(real) else None  # noqa: PTH113 - Path.is_file raises for long names


def plan_path(plans: Path | None, path: str) -> Path | None:
    """The real path, if `path` names a Markdown file of the run's plans folder, there already or not."""
    if plans is None or not path.endswith(".md") or "\0" in path or not Path(path).is_absolute():
        return None
    folder, real = followed(plans), followed(path)
    return real if folder in real.parents and real.suffix == ".md" else None
