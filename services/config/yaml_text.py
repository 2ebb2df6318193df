"""yaml_text: YAML that people and projects wrote, parsed so that no file can hold the program."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*$\r?\n?(.*)\Z", re.DOTALL | re.MULTILINE)
_DEEPEST = 64
"""Levels of nesting; a JSON Schema has a dozen."""


def parse(text: str) -> object:
    """The value. Raises `ValueError` saying what is wrong: no YAML, an alias (it can unfold without end), or nesting
    whose parse costs its square."""
    import yaml

    try:
        _check_events(cast("Iterable[object]", yaml.parse(text)))  # pyright: ignore[reportUnknownMemberType]
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from error


def front_matter(text: str, parsed: Callable[[str], object] = parse) -> tuple[Mapping[str, Any], str]:
    """What stands between two lines `---` at a file's top, and the rest. Raises `ValueError` saying what is wrong."""
    parts = _FRONT.match(text)
    if parts is None:
        raise ValueError("expected YAML front matter between two lines '---' at the top")
    try:
        front = parsed(parts[1])
    except ValueError as error:
        raise ValueError(f"its front matter: {error}") from error
    if not isinstance(front, dict):
        raise ValueError("its front matter is no mapping of names to values")
    return cast(Mapping[str, Any], front), parts[2]


def _check_events(events: Iterable[object]) -> None:
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("holds a YAML alias (*name): write the value out")
