"""trust: whether a person has said that a folder's own settings, hooks, policies and servers may count."""

import os
from pathlib import Path

from interlock.services.settings_file import read_object
from interlock.state.errors import ConfigError

TRUST_FILE = Path(".interlock") / "trusted.json"
"""Below the home directory: a JSON object, directory → "trusted" | "untrusted"."""


def is_trusted(path: Path, home: Path) -> bool:
    """What the longest directory that holds `path` says; without one, False. Raises `ConfigError` for a bad file."""
    file = home / TRUST_FILE
    answers = {_directory(key, home, file): _answer(key, value, file) for key, value in _entries(file)}
    target = Path(os.path.realpath(path))
    for directory in (target, *target.parents):
        if directory in answers:
            return answers[directory]
    return False


def _entries(file: Path) -> list[tuple[str, object]]:
    found = read_object(file)
    return [] if found is None else list(found.items())


def _directory(key: str, home: Path, file: Path) -> Path:
    directory = home / key[2:] if key.startswith("~/") else home if key == "~" else Path(key)
    if not directory.is_absolute():
        raise ConfigError(f"{file}: {key!r} is not an absolute path; write one, or one that begins with ~/.")
    return Path(os.path.realpath(directory))


def _answer(key: str, value: object, file: Path) -> bool:
    if value not in ("trusted", "untrusted"):
        raise ConfigError(f"{file}: {key!r} is {value!r}, expected 'trusted' or 'untrusted'.")
    return value == "trusted"
