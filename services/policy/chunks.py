"""chunks: a rule file cut into its tables, each with its line: a wrong one doesn't hide the others."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

_HEADER = re.compile(r"[ \t]*\[")
_AT = re.compile(r" ?\(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One table of an array of tables."""

    kind: str
    line: int
    table: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadChunk:
    """A piece that isn't TOML, or not a table where one belongs."""

    line: int
    error: str


def chunks_of(text: str) -> list[Chunk | BadChunk]:
    """The tables of `text` in order. A file that is wrong as a whole is read piece by piece."""
    try:
        whole = tomllib.loads(text)
    except ValueError:
        # RecursionError is one for `[[[[…`, but TOML's arrays can be nested, so it is met below too.
        return [c for line, piece in _pieces(text) for c in _one(line, piece)]
    except RecursionError:
        return [BadChunk(1, "nested too deeply")]
    tables = list(_tables(whole, 1))
    lines = [line for line, piece in _pieces(text) if _HEADER.match(piece) and not _inner(piece)]
    if len(lines) != len(tables):
        return tables
    return [_at(table, line) for table, line in zip(tables, lines, strict=True)]


def _inner(piece: str) -> bool:
    """`[rule.toolAnnotations]`: a part of the table before it."""
    return re.match(r"[ \t]*\[[ \t]*[^\[\]]*\.", piece) is not None


def _at(table: Chunk | BadChunk, line: int) -> Chunk | BadChunk:
    return Chunk(table.kind, line, table.table) if isinstance(table, Chunk) else BadChunk(line, table.error)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) from one table header to the next; a `[x.y]` header belongs to what precedes."""
    start, held = 1, list[str]()
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if _HEADER.match(line) and not _inner(line):
            if any(h.strip() for h in held):
                yield start, "".join(held)
            held = []
        if not held:
            start = number
        held.append(line)
    if any(h.strip() for h in held):
        yield start, "".join(held)


def _one(line: int, piece: str) -> Iterator[Chunk | BadChunk]:
    try:
        yield from _tables(tomllib.loads(piece), line)
    except RecursionError:
        yield BadChunk(line, "nested too deeply")
    except ValueError as error:
        place = _AT.search(str(error))
        at = line + int(place[1]) - 1 if place else line
        yield BadChunk(at, f"not TOML: {_AT.sub('', str(error))}")


def _tables(document: dict[str, Any], line: int) -> Iterator[Chunk | BadChunk]:
    for kind, value in document.items():
        entries = cast(list[object], value) if isinstance(value, list) else [value]
        for entry in entries:
            if isinstance(entry, dict) and isinstance(value, list):
                yield Chunk(kind, line, cast(dict[str, Any], entry))
            else:
                yield BadChunk(line, f"{kind!r} isn't known here, expected [[rule]] tables")
