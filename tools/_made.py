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


def is_made(name: str, beside: Collection[str], inside: Collection[str]) -> bool:
    """Whether a folder holds what a build or a package manager made, by the names beside it and in it."""
    marks = _INSIDE | _OWN.get(name, frozenset())
    return (
        name in RESERVED
        or not marks.isdisjoint(inside)
        or not _BESIDE.get(name, frozenset()).isdisjoint(beside)
    )
