"""output_paths: files of the state directory that tools may touch: kept outputs to read, the run's plans to write."""

import os
from pathlib import Path

from interlock.services.written_paths import followed

_SUFFIX = ".txt"
"""Of tool outputs that were kept whole; what else lies in `outputs/` is the run's own record."""


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
