"""table: which language servers check a file, where they are installed, and the folder that each works in."""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

from interlock.state.settings import LanguageServer
from interlock.state.text import dict_or_empty

_LOCAL_PROGRAMS = ("node_modules/.bin", ".venv/bin", "venv/bin", "vendor/bin")
"""Where projects keep programs of their own, relative to a folder of theirs."""
_PYTHON = "{python}"


@cache
def load_server_table() -> Mapping[str, LanguageServer]:
    """Return the servers that come with Interlock, by name, in the order in which they are preferred."""
    rows = _load_toml("servers.toml")
    return {
        name: LanguageServer.model_validate({**row, "suffixes": row["suffixes"].split()})
        for name, row in rows.items()
    }


@cache
def _load_languages() -> Mapping[str, str]:
    return _load_toml("languages.toml")


def _load_toml(name: str) -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


def merge_server_settings(changes: Mapping[str, LanguageServer]) -> dict[str, LanguageServer]:
    """Return the servers that count, in the order in which they are preferred: those that settings add, then the table.

    Settings for a server of the table change only the fields, and keys in them, that they name.
    """
    table = load_server_table()
    added = {name: server for name, server in changes.items() if name not in table}
    changed = {
        name: _change_server(server, changes[name]) if name in changes else server
        for name, server in table.items()
    }
    return {name: server for name, server in {**added, **changed}.items() if not server.disabled}


def _change_server(server: LanguageServer, changes: LanguageServer) -> LanguageServer:
    return LanguageServer.model_validate(
        _merge_objects(server.model_dump(), changes.model_dump(exclude_unset=True))
    )


def _merge_objects(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merge_objects(dict_or_empty(old.get(key)), objects)
        for key, value in new.items()
        if (objects := dict_or_empty(value))
    }
    return {**old, **new, **both}


def language_of(path: Path) -> str:
    """Return the name that the protocol gives the language of a file, by its suffix."""
    suffix = path.suffix.lower().removeprefix(".")
    return _load_languages().get(suffix, suffix)


@dataclass(frozen=True)
class InstalledServer:
    """A server that can be started for a file."""

    name: str
    command: tuple[str, ...]
    """The path of its program, and its arguments."""
    folder: Path
    """The project that it works in."""
    server: LanguageServer

    def settings(self) -> dict[str, Any]:
        """Return what it is told when it asks for its settings."""
        return _fill_in(self.server.settings, _find_project_python(self.folder))


@dataclass(frozen=True)
class ServerFinder:
    """Finds what is installed. Nothing is started or downloaded."""

    servers: Mapping[str, LanguageServer]
    roots: Sequence[Path]
    """The workspace and included folders: a project is looked for no higher."""
    search_path: str
    """The PATH that programs are looked for on."""

    def has_server_for(self, path: Path) -> bool:
        """Return whether any server checks files of this name, installed or not."""
        suffix = path.suffix.lower()
        return bool(suffix) and any(suffix in server.suffixes for server in self.servers.values())

    def find_servers(self, path: Path) -> list[InstalledServer]:
        """Return the servers that check a file: the first that is installed of each role. Looks at the disk."""
        found: dict[str, InstalledServer] = {}
        for name, server in self.servers.items():
            wanted = path.suffix.lower() in server.suffixes and server.role not in found
            if wanted and (installed := self._find_installed(name, server, path)):
                found[server.role] = installed
        return [*found.values()]

    def list_installed(self) -> list[InstalledServer]:
        """Return every server that could be started in the first root. For `doctor`."""
        files = ((name, server, self.roots[0] / "file") for name, server in self.servers.items())
        return [one for name, server, path in files if (one := self._find_installed(name, server, path))]

    def _find_installed(self, name: str, server: LanguageServer, path: Path) -> InstalledServer | None:
        above = [*self._list_folders_above(path)]
        marked = (folder for folder in above if any((folder / mark).exists() for mark in server.roots))
        root = next(marked, None)
        if (root is None and server.needs_root) or not server.command or not above:
            return None
        folder = root or above[-1]
        below = [at for at in above if folder.is_relative_to(at)]
        if server.needs and not any((at / server.needs).exists() for at in below):
            return None
        program = self._find_program(server.command[0], above)
        return InstalledServer(name, (program, *server.command[1:]), folder, server) if program else None

    def _list_folders_above(self, path: Path) -> Iterator[Path]:
        """Yield the folders of a file up to its root, the nearest first; nothing if it is in no root."""
        root = max(
            (r for r in self.roots if path.is_relative_to(r)), key=lambda r: len(r.parts), default=None
        )
        if root:
            for folder in path.parents:
                yield folder
                if folder == root:
                    return

    def _find_program(self, name: str, folders: Sequence[Path]) -> str | None:
        if os.sep in name:
            return which(name)
        local = os.pathsep.join(str(folder / at) for folder in folders for at in _LOCAL_PROGRAMS)
        return which(name, path=f"{local}{os.pathsep}{self.search_path}")


def _find_project_python(folder: Path) -> str:
    found = (folder / at / "bin/python" for at in (".venv", "venv"))
    return next((str(path) for path in found if path.exists()), "")


def _fill_in(value: Any, python: str) -> Any:
    if isinstance(value, dict):
        filled: dict[str, Any] = {key: _fill_in(part, python) for key, part in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return {key: part for key, part in filled.items() if part is not None}
    if value == _PYTHON:
        return python or None
    return value
