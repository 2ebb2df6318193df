"""proof: what a search program found, read again where tools may read.

The program opens files by name, and on the way a name can lead elsewhere for a moment. So what it prints is a hint:
the lines that are shown are read by us, and must be the ones that it printed.
"""

import codecs
import os
from collections.abc import Collection, Iterable, Iterator
from io import BufferedReader
from itertools import groupby
from pathlib import Path

from interlock.state.tooling import PathRefused, Workspace
from interlock.tools._opening import LARGEST, open_directory, open_file, real_file
from interlock.tools.search.ripgrep import LINE_BYTES, Line

_COMPARED = 1000
"""Characters; the program cuts long lines."""
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_UNKNOWN = "\ufffd"
"""Stands for bytes that aren't UTF-8."""


def proven(lines: Iterable[Line], workspace: Workspace, *, ignored: bool) -> Iterator[Line]:
    """Those of the lines that are there; with `ignored` also in files that git ignores."""
    for found, group in groupby(lines, key=lambda line: line.path):
        path = _named(found, workspace) if _UNKNOWN in str(found) else found
        real = path and real_file(workspace, path, ignored=ignored)
        if path is None or real is None:
            continue
        rows = list(group)
        there = _lines(workspace, real, {row.number for row in rows})
        for row in rows:
            text = there.get(row.number)
            if text is not None and _plain(text).startswith(_plain(row.text[:_COMPARED])):
                yield row._replace(path=path, text=text)


def _plain(text: str) -> str:
    return text.replace(_UNKNOWN, "").removeprefix("\ufeff")


def _lines(workspace: Workspace, path: Path, numbers: Collection[int]) -> dict[int, str]:
    """Lines by number, long ones cut."""
    try:
        with workspace.place(path) as place, open_file(place) as file:
            encoding = _WIDE.get(file.peek(2)[:2])
            if encoding:
                text = file.read(LARGEST)[2:].decode(encoding, "replace")
                rows = ((n, row.removesuffix("\r")) for n, row in enumerate(text.split("\n"), 1))
            else:
                rows = _rows(file, max(numbers))
            return {number: row for number, row in rows if number in numbers}
    except OSError:  # gone meanwhile, or a link was put there
        return {}


def _rows(file: BufferedReader, last: int) -> Iterator[tuple[int, str]]:
    for number in range(1, last + 1):
        row = rest = file.readline(LINE_BYTES)
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES)
        if not row:
            return
        yield number, row.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


def _named(path: Path, workspace: Workspace) -> Path | None:
    """The path with names as they are on the disk, where they aren't UTF-8; the first that reads like it."""
    known = Path(path.anchor)
    for name in path.parts[1:]:
        real = name if _UNKNOWN not in name else _like(known, name, workspace)
        if real is None:
            return None
        known /= real
    return known


def _like(directory: Path, name: str, workspace: Workspace) -> str | None:
    try:
        with workspace.place(directory) as place, open_directory(place) as descriptor:
            names = os.listdir(descriptor)  # noqa: PTH208 - by descriptor
    except (OSError, PathRefused):
        return None
    return next((n for n in names if os.fsencode(n).decode("utf-8", "replace") == name), None)
