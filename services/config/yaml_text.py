"""yaml_text: YAML that people and projects wrote, parsed so that no file can hold the program."""

from collections.abc import Iterable
from typing import cast

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


def _check_events(events: Iterable[object]) -> None:
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("holds a YAML alias (*name): write the value out")
