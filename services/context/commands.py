"""commands: custom commands, `commands/**/*.toml` of the user's folders and of a trusted project's."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.services.config.settings import FOLDERS
from interlock.state.context import CustomCommand

_LARGEST = 256_000
"""Bytes of a file."""


def command_files(base: Path) -> list[Path]:
    """Of one home or project, the folder that counts more last."""
    found = [base / folder / "commands" for folder in FOLDERS]
    return [path for folder in found for path in sorted(folder.rglob("*.toml")) if path.is_file()]


def load_commands(root: Path, home: Path, trusted: bool) -> tuple[dict[str, CustomCommand], list[str]]:
    """Name → command, and one line for each file that can't be used. Later folders win: the project's over the user's.

    `git/commit.toml` is `/git:commit`.
    """
    found: dict[str, CustomCommand] = {}
    problems: list[str] = []
    for base in (home, root) if trusted else (home,):
        for path in command_files(base):
            name = _name(path, base)
            try:
                found[name] = _read(path, name)
            except (OSError, ValueError, RecursionError) as error:
                problems.append(f"{path} was ignored: {' '.join(str(error).split())}")
    return found, problems


def _name(path: Path, base: Path) -> str:
    below = path.relative_to(base).parts[2:]
    return ":".join((*below[:-1], path.stem))


def _read(path: Path, name: str) -> CustomCommand:
    """Raises `ValueError` saying what is wrong."""
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST} bytes")
    values: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    prompt, description = values.get("prompt"), values.get("description", "")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"'prompt' is {prompt!r}, expected the text of the prompt")
    if not isinstance(description, str):
        raise ValueError(f"'description' is {description!r}, expected a text")
    return CustomCommand(name, prompt, description, str(path))
