"""sources: real source files of this machine, from which cases are made."""

import site
import sysconfig
from pathlib import Path
from random import Random

ENDINGS = (
    "*.py",
    "*.js",
    "*.ts",
    "*.c",
    "*.h",
    "*.pm",
    "*.pl",
    "*.css",
    "*.html",
    "*.md",
    "*.yaml",
    "*.go",
    "*.rs",
)
FOLDERS = ("/usr/share", "/usr/lib", "/usr/include", "/usr/local/lib/node_modules")
_LEAST_LINES, _MOST_LINES = 40, 400
_PER_ENDING = 60
_LOOKED_AT = 6_000
"""Paths examined per folder and extension; a walk over everything takes minutes."""


def texts(random: Random) -> list[str]:
    """Files of 40 to 400 lines, spread evenly over the languages found; LF, UTF-8, with a final newline."""
    folders = [Path(sysconfig.get_paths()["stdlib"]), *map(Path, site.getsitepackages()), *map(Path, FOLDERS)]
    found: list[str] = []
    for ending in ENDINGS:
        paths: list[Path] = []
        for folder in folders:
            if folder.is_dir():
                paths += _first(folder, ending)
        random.shuffle(paths)
        good: list[str] = []
        for path in paths:
            text = _usable(path)
            if text is not None:
                good.append(text)
            if len(good) == _PER_ENDING:
                break
        found += good
    return found


def _first(folder: Path, ending: str) -> list[Path]:
    paths: list[Path] = []
    for path in folder.rglob(ending):
        paths.append(path)
        if len(paths) == _LOOKED_AT:
            break
    return sorted(paths)


def _usable(path: Path) -> str | None:
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    lines = text.count("\n")
    plain = "\r" not in text and "\0" not in text and text.endswith("\n") and not text.startswith("\ufeff")
    return (
        text
        if plain and _LEAST_LINES <= lines <= _MOST_LINES and max(map(len, text.split("\n"))) < 400
        else None
    )
