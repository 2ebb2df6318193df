"""processors: finds and loads users' own nodes in our workflows.

A file named in settings, or an entry point of `interlock.processors`, holds `PROCESSORS = {PLACE: [node, …]}`; inside a
workspace it counts only if that is trusted.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from interlock.engine.workflows import MisdeclaredError, executed, installed, line_of
from interlock.graphs._additions import COMPRESS, PLACES, Processor, with_processors
from interlock.graphs._pipeline import Pipeline
from interlock.state.errors import THEIR_ERRORS, ConfigError, SetupError
from interlock.state.node import spec_of
from interlock.state.settings import Settings

_PROCESSORS_GROUP = "interlock.processors"

_HOW_PROCESSORS = "expected `PROCESSORS = {PLACE: [node, …]}` with the places " + ", ".join(PLACES)
_TALKING = ("main", "task")
"""Workflows that have these places."""


def processor_files(settings: Settings, root: Path, home: Path, trusted: bool) -> list[Path]:
    """Real paths; relative ones start at the workspace. Files inside it count only if it is trusted."""
    paths = (Path(os.path.realpath(path)) for path in settings.processor_files(root, home))
    return [path for path in paths if trusted or not path.is_relative_to(root)]


def placed(chosen: Pipeline, files: Sequence[Path]) -> Pipeline:
    """Return the workflow with its active processors. Raises `ConfigError`: one line with file, line, expected."""
    if chosen.name not in _TALKING:
        return chosen
    found = [p for source in (*map(_processors_in, files), *_installed_processors()) for p in source]
    if twice := next((p.name for p in found if sum(p.name == o.name for o in found) > 1), None):
        raise ConfigError(
            f"Two processors are called {twice!r} (place and function). Rename one of the functions."
        )
    if not found:
        return chosen
    try:
        made = with_processors(chosen, tuple(found))
        made.declared()  # checks that every node fits the state
        return made
    except SetupError as error:
        raise ConfigError(f"A processor doesn't fit {chosen.name!r}: {error}") from error


def _installed_processors() -> Iterator[list[Processor]]:
    for point in installed(_PROCESSORS_GROUP):
        try:
            yield [*_declared_processors(point.load())]
        except THEIR_ERRORS as error:
            what = " ".join(str(error).split())
            raise ConfigError(
                f"Entry point {point.value} of {_PROCESSORS_GROUP}: {type(error).__name__}: {what}; {_HOW_PROCESSORS}."
            ) from error


def _processors_in(file: Path) -> list[Processor]:
    try:
        code = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file}: can't be read ({error.strerror}); setting `processors` names it."
        ) from None
    return _loaded_processors(file, code)


@cache
def _loaded_processors(file: Path, code: bytes) -> list[Processor]:
    """Cached by content."""
    try:
        return [*_declared_processors(executed(file, code).__dict__.get("PROCESSORS"))]
    except THEIR_ERRORS as error:
        line = line_of(file, code, error, "PROCESSORS")
        kind = "" if isinstance(error, MisdeclaredError) else f"{type(error).__name__}: "
        raise ConfigError(
            f"{file}:{line}: {kind}{' '.join(str(error).split())}; {_HOW_PROCESSORS}."
        ) from error


def _declared_processors(found: Any) -> Iterator[Processor]:
    if not isinstance(found, Mapping):
        raise MisdeclaredError(f"PROCESSORS is {found!r}" if found is not None else "there is no PROCESSORS")
    for place, nodes in cast(Mapping[Any, Any], found).items():
        if place not in PLACES:
            raise MisdeclaredError(f"there is no place {place!r}")
        several = isinstance(nodes, list | tuple)
        for node in cast(Sequence[Any], nodes) if several else [nodes]:
            yield _processor(place, node)


def _processor(place: str, node: Any) -> Processor:
    if node == COMPRESS:
        if place != "after_tool":
            raise MisdeclaredError(f"{COMPRESS!r} may stand at after_tool, not at {place}")
        return Processor(place, f"{place}_{COMPRESS}", None)
    spec = spec_of(node) if callable(node) else None
    if spec is None or spec.labels or not node.__name__.isidentifier():
        raise MisdeclaredError(f"{node!r} at {place} is no function under @node without labels")
    return Processor(place, f"{place}_{node.__name__}", cast(Any, node))
