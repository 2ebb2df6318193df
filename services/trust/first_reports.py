"""first_reports: what a person is told once, when a trusted folder first brings it: hooks and further memory files."""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.config.formats import edit_json_settings
from interlock.services.config.settings import read_json_object
from interlock.services.files.disk import read_file
from interlock.services.hooks.hook_settings import Hook
from interlock.services.hooks.scripts import find_code_files_and_folders
from interlock.services.trust.file_effects import MOST_NAMED
from interlock.services.trust.project_files import display_path
from interlock.state.errors import ConfigError
from interlock.state.text import estimate_tokens, join_up_to, list_or_empty

if TYPE_CHECKING:
    from interlock.services.context.memory import MemoryFile

_SEEN_HOOKS = Path(".interlock") / "seen_hooks.json"
"""Below the home directory: directory → hashes of hooks."""
_SEEN_MEMORY = Path(".interlock") / "seen_memory.json"
"""Below the home directory: directory → memory files that were reported."""


def record_and_report_new_hooks(root: Path, home: Path, hooks: Iterable[Hook]) -> list[str]:
    """Return a line for each project hook that is new or changed since it was last reported, and remember them.

    If that can't be saved, they are reported again the next time.
    """
    own = [hook for hook in hooks if Path(hook.source).is_relative_to(root)]
    marks = {_hook_fingerprint(hook, root): hook for hook in own}
    if not marks:
        return []
    before = _read_reported(home / _SEEN_HOOKS, root)
    new = [hook for mark, hook in marks.items() if mark not in before]
    if new:
        _record_reported(home / _SEEN_HOOKS, root, sorted(marks))
    return [
        f"{hook.source}: new or changed hook, which runs from now on: {hook.event}: {hook.display_name}"
        for hook in new
    ]


def record_and_report_more_memory(root: Path, home: Path, files: Iterable["MemoryFile"]) -> list[str]:
    """Return a line about the folder's memory files that conversations begin with beside its AGENTS.md or GEMINI.md,
    which alone were read once; only the first time, as for hooks."""
    used = [file for file in files if file.level == "project" and not file.unused]
    more = [file for file in used if file.path.name not in ("AGENTS.md", "AGENTS.override.md", "GEMINI.md")]
    if not more or len(more) == len(used):
        return []
    names = [display_path(file.path, root) for file in more]
    before = _read_reported(home / _SEEN_MEMORY, root)
    if all(name in before for name in names):
        return []
    _record_reported(home / _SEEN_MEMORY, root, names)
    beside = ", ".join(display_path(file.path, root) for file in used if file not in more)
    tokens = sum(estimate_tokens(file.text) for file in more)
    return [
        f"{join_up_to(names, MOST_NAMED)}: read beside {beside}, about {tokens:,} tokens more in each conversation."
        f' To leave them out, set context.fileName to ["AGENTS.md", "GEMINI.md"].'
    ]


def _read_reported(file: Path, root: Path) -> list[object]:
    return list_or_empty((read_json_object(file) or {}).get(os.path.realpath(root)))


def _record_reported(file: Path, root: Path, entries: list[str]) -> None:
    key = os.path.realpath(root)
    with suppress(ConfigError), edit_json_settings(file, key) as seen:  # unwritable home: reported every time
        seen[key] = entries


def _hook_fingerprint(hook: Hook, root: Path) -> str:
    """Hash the command and the scripts in the folder that it names, as a pull may change them."""
    digest = hashlib.sha256(f"{hook.event}\0{hook.name}\0{hook.command}".encode())
    for script in find_code_files_and_folders(hook.command, root):
        with suppress(OSError):  # unreadable: then its hook fails too
            digest.update(read_file(script))
    return digest.hexdigest()[:32]
