"""kept: the options of a run that its later drives have, too."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from interlock.engine.options import Options

_KEPT = (
    "model",
    "approval_mode",
    "prompt_profile",
    "overrides",
    "include_directories",
    "allowed_tools",
    "policy_files",
    "limits",
    "record_to",
    "fake",
    "system_prompt",
    "append_system_prompt",
    "ide_context",
    "sandbox",
    "rights",
    "source",
    "context",
    "guard",
    "task_path",
    "repository",
    "submitted",
)
"""Options a resumed run keeps unless overridden. Not `skip_trust`: a later drive may meet other files."""
_OF_HOST = ("include_directories", "policy_files", "record_to", "fake", "ide_context", "source")
"""Those that name files of the host that started the run. A run on a git repository names none of a worker's."""

_FOR_WORKERS = {
    "model": ("disableLoopDetection", "thinking"),
    "tools": ("exclude",),
    "hooks": ("AfterAgent",),
}
"""Settings of a run that a worker obeys: others could name its files, its programs, or who gets its keys."""


def kept_options(options: Options) -> dict[str, Any]:
    """The options persisted in a run's row, JSON-like."""
    kept: dict[str, Any] = {}
    for name in _KEPT:
        value: Any = getattr(options, name)
        if isinstance(value, tuple):
            value = [str(item) for item in cast(tuple[Any, ...], value)]
        kept[name] = str(value) if isinstance(value, Path) else value
    return kept


def restored(options: Options, kept: Mapping[str, Any], workspace: str) -> Options:
    """The run's persisted options, overridden by those passed now."""
    changes: dict[str, Any] = {"workspace": options.workspace or Path(workspace)}
    left = _OF_HOST if kept.get("repository") else ()
    for name in (name for name in _KEPT if name not in left):
        mine, old = getattr(options, name), kept.get(name)
        if mine or not old:
            continue
        if name in ("include_directories", "policy_files"):
            old = tuple(Path(item) for item in old)
        elif name == "overrides" and left:
            old = {
                k: {n: v for n, v in old[k].items() if n in known}
                for k, known in _FOR_WORKERS.items()
                if k in old
            }
        elif name == "allowed_tools":
            old = tuple(old)
        elif name in ("record_to", "fake", "ide_context"):
            old = Path(old)
        changes[name] = old
    if options.limits and kept.get("limits"):
        changes["limits"] = {**kept["limits"], **options.limits}
    return replace(options, **changes)
