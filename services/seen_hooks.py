"""seen_hooks: which hooks of a trusted folder have run there before, so that a new one is told of once."""

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from interlock.services.files import locked, replace_file
from interlock.services.hooks.definition import Hook
from interlock.services.settings_file import read_object

SEEN_FILE = Path(".interlock") / "seen_hooks.json"
"""Below the home directory: directory → hashes of hooks."""


def new_hooks(root: Path, home: Path, hooks: Iterable[Hook]) -> list[str]:
    """One line for each hook of the project's that is new or changed since it was last told of; remembers them.

    Where that can't be written, it is told again the next time.
    """
    own = [hook for hook in hooks if Path(hook.source).is_relative_to(root)]
    marks = {_mark(hook, root): hook for hook in own}
    if not marks:
        return []
    file, key = home / SEEN_FILE, os.path.realpath(root)
    before = (read_object(file) or {}).get(key, [])
    new = [hook for mark, hook in marks.items() if mark not in before]
    if new:
        _remember(file, key, sorted(marks))
    return [
        f"{hook.source}: new or changed hook, which runs from now on: {hook.event}: {hook.title}"
        for hook in new
    ]


def _remember(file: Path, key: str, marks: list[str]) -> None:
    try:
        with locked(file.parent):
            text = json.dumps({**(read_object(file) or {}), key: marks}, indent=2) + "\n"
            replace_file(Path(os.path.realpath(file)), text.encode())
    except OSError:  # a home that can't be written: told every time
        return


def _mark(hook: Hook, root: Path) -> str:
    """Of the command and of the scripts in the folder that it names: a pull changes those."""
    digest = hashlib.sha256(f"{hook.event}\0{hook.name}\0{hook.command}".encode())
    for script in scripts_of(hook.command, root):
        with suppress(OSError):  # not to be read: then its hook fails, too
            digest.update(script.read_bytes())
    return digest.hexdigest()[:32]


def scripts_of(command: str, root: Path) -> Iterator[Path]:
    """Files of the folder that a command line names."""
    for word in _words(command):
        script = root / word
        with suppress(OSError, ValueError):  # no path
            if script.is_file() and script.resolve().is_relative_to(root):
                yield script


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    roots = (
        "$GEMINI_PROJECT_DIR/",
        "${GEMINI_PROJECT_DIR}/",
        "$CLAUDE_PROJECT_DIR/",
        "${CLAUDE_PROJECT_DIR}/",
    )
    return [next((w.removeprefix(r) for r in roots if w.startswith(r)), w) for w in words]
