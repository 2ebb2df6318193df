"""_made: tell folders of generated or fetched files by what marks them, as their name alone says too little."""

from collections.abc import Collection

RESERVED = frozenset({"node_modules", "__pycache__", ".tox", ".nox"})
"""Names that only the tool uses that makes them."""
_INSIDE = frozenset({"CACHEDIR.TAG", "pyvenv.cfg", "CMakeCache.txt"})
"""Files in such a folder: the tag of caches (bford.info/cachedir), a virtual environment, a CMake build."""
_OWN = {"vendor": frozenset({"modules.txt", "autoload.php"})}
"""Folder → files in it that a package manager writes (Go, Composer)."""
_GRADLE = frozenset({"build.gradle", "build.gradle.kts"})
_BESIDE = {
    "target": frozenset({"Cargo.toml", "pom.xml", "build.sbt", "project.clj"}),
    "build": _GRADLE,
    "Pods": frozenset({"Podfile"}),
    "deps": frozenset({"mix.exs"}),
    "_build": frozenset({"mix.exs", "rebar.config", "dune-project"}),
}
"""Folder → files beside it of the build that fills it."""


_OUTPUTS = frozenset({"build", "dist", "out", "target", "coverage", "htmlcov"})
"""Folders that builds fill, and that people sometimes write in, too."""
_COMPILED = (".pyc", ".pyo", ".o", ".obj", ".class", ".egg-info")


def made_by_commands(paths: Collection[str], before: Collection[str], written: Collection[str]) -> set[str]:
    """Of a workspace's paths, those that builds and caches made: not in `before`, and not `written` by a file tool."""
    names: dict[str, set[str]] = {"": set()}
    for path in paths:
        folder = ""
        for part in path.split("/"):
            names.setdefault(folder, set()).add(part)
            folder = f"{folder}/{part}".lstrip("/")
    old = {path[:end] for path in before for end in _ends(path)}

    def made(path: str) -> bool:
        folders = [path[:end] for end in _ends(path)][:-1]
        return path.endswith(_COMPILED) or any(
            is_made(_last(folder), names.get(folder.rpartition("/")[0], ()), names.get(folder, ()))
            or folder.endswith(_COMPILED)
            or (_last(folder) in _OUTPUTS and folder not in old)
            for folder in folders
        )

    return {path for path in paths if path not in written and made(path)}


def _ends(path: str) -> list[int]:
    """Where each of the path's folders ends, and the path itself."""
    return [place for place, letter in enumerate(path) if letter == "/"] + [len(path)]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def is_made(name: str, beside: Collection[str], inside: Collection[str]) -> bool:
    """Whether a folder holds what a build or a package manager made, by the names beside it and in it."""
    marks = _INSIDE | _OWN.get(name, frozenset())
    return (
        name in RESERVED
        or not marks.isdisjoint(inside)
        or not _BESIDE.get(name, frozenset()).isdisjoint(beside)
    )
