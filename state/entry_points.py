"""entry_points: what rooms of ours and other installed packages register, by group and name (`docs/plugins.md`).

A room that not everybody needs registers in a file of its own, `entry_points.txt`, in the form in which packaging keeps
the entry points of an installed package: to read those of all packages takes 6 ms where there are 150. What is in a
room's file goes with its folder. Nothing is imported until somebody loads an entry.
"""

import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

_ROOMS = Path(__file__).parent.parent


class EntryPoint(NamedTuple):
    """A name, and the object that it stands for."""

    group: str
    name: str
    value: str
    """`module:attribute`; without an attribute, the module itself."""

    @property
    def module(self) -> str:
        return self.value.partition(":")[0]

    def load(self) -> Any:
        """Import the object. Raises what its module raises, and `AttributeError` if the module lacks it."""
        module, attribute = import_module(self.module), self.value.partition(":")[2]
        return attrgetter(attribute)(module) if attribute else module


def find_entry_points(group: str) -> list[EntryPoint]:
    """Return a group's entries: those of other packages, then ours, which win where a name must be the only one."""
    return [
        *_find_installed_entry_points(group, tuple(sys.path)),
        *_load_bundled_entry_points().get(group, {}).values(),
    ]


def find_entry_point(group: str, name: str) -> EntryPoint | None:
    """Return one entry of a group; other packages are read only if no room of ours has the name."""
    installed = (one for one in _find_installed_entry_points(group, tuple(sys.path)) if one.name == name)
    return _load_bundled_entry_points().get(group, {}).get(name) or next(installed, None)


def is_part_installed(name: str) -> bool:
    """Whether the folder of a part that not everybody needs is here; it registers as `interlock.parts`."""
    return find_entry_point("interlock.parts", name) is not None


def missing_folder_message(subject_and_verb: str, folder: str) -> str:
    """Return the line that says what an installation without a room can't do. `subject_and_verb` ends with a verb."""
    return (
        f"{subject_and_verb} the folder interlock/{folder}/, which this installation lacks. "
        "Install Interlock again to get it."
    )


@cache
def _load_bundled_entry_points() -> dict[str, dict[str, EntryPoint]]:
    found: dict[str, dict[str, EntryPoint]] = {}
    for file in sorted((*_ROOMS.glob("*/entry_points.txt"), *_ROOMS.glob("*/*/entry_points.txt"))):
        for entry in _parse_entry_points(file.read_text(encoding="utf-8")):
            found.setdefault(entry.group, {})[entry.name] = entry
    return found


def _parse_entry_points(text: str) -> Iterator[EntryPoint]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if line.startswith("["):
            group = line.strip("[]")
        elif equals and not line.startswith("#"):
            yield EntryPoint(group, name.strip(), value.strip())


@cache
def _find_installed_entry_points(group: str, _path: tuple[str, ...]) -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return [
        EntryPoint(group, one.name, f"{one.module}:{one.attr}" if one.attr else one.module)
        for one in entry_points(group=group)
    ]
