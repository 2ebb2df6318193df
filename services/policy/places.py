"""places: where rule files lie, each place with its tier."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from interlock.services.config.settings import FOLDERS
from interlock.services.policy.rule import ADMIN, EXTENSION, USER, WORKSPACE

ADMIN_FOLDERS = (Path("/etc/gemini-cli/policies"), Path("/etc/interlock/policies"))
_RULES = "policies"
_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class Places:
    """What decides where rules are looked for."""

    root: Path
    """The workspace."""
    home: Path
    trusted: bool
    """Whether the workspace's own rules count."""
    admin: Sequence[Path] = ADMIN_FOLDERS
    named: Sequence[Path] = ()
    """Files of `--policy`: the user's tier."""


def rule_files(places: Places) -> list[tuple[Path, int]]:
    """The rule files with their tiers. A folder that can't be listed is named itself: reading it says why."""
    folders = [
        *((folder, EXTENSION) for folder in _extensions(places.home)),
        *((folder, WORKSPACE) for folder in (_workspace(places) if places.trusted else ())),
        *((places.home / name / _RULES, USER) for name in FOLDERS),
        *((folder, ADMIN) for folder in places.admin),
    ]
    found = [(file, tier) for folder, tier in folders for file in _listed(folder, _SUFFIX)]
    return [*found, *((file, USER) for file in places.named)]


def ignored_files(places: Places) -> list[Path]:
    """The workspace's rule files, where they don't count because nobody trusted it."""
    return [] if places.trusted else [file for f in _workspace(places) for file in _listed(f, _SUFFIX)]


def user_folder(home: Path) -> Path:
    """Where always-choices are saved."""
    return home / FOLDERS[-1] / _RULES


def _workspace(places: Places) -> list[Path]:
    """In the home directory itself the two levels are one and the same folder: the user's."""
    mine = {os.path.realpath(places.home / name / _RULES) for name in FOLDERS}
    folders = [places.root / name / _RULES for name in FOLDERS]
    return [folder for folder in folders if os.path.realpath(folder) not in mine]


def _extensions(home: Path) -> Iterator[Path]:
    for name in FOLDERS:
        for extension in _listed(home / name / "extensions", ""):
            yield extension / _RULES if extension.is_dir() else extension


def _listed(folder: Path, suffix: str) -> list[Path]:
    """Entries by name; the folder itself when it is there and can't be listed."""
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.name.endswith(suffix) and not e.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return [folder] if os.path.isfile(folder) and suffix else []  # noqa: PTH113 - may raise for a loop
    except OSError:
        return [folder]
    return [folder / name for name in sorted(names)]
