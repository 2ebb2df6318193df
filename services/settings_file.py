"""settings_file: one settings file: read, variables expanded, keys checked against what is known."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from interlock.services import jsonc
from interlock.state.errors import ConfigError
from interlock.state.settings import Settings
from interlock.state.text import clean_json

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::-([^}]*))?\})")
_EXPECTED = {
    "model_type": "an object",
    "dict_type": "an object",
    "list_type": "an array",
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
}
"""pydantic's error type → what JSON calls it; where none is given here, pydantic's own words do."""
_LIKE = 0.85
"""Likeness from which an unknown key is a mistyped known one: one letter too many or too few in four."""
_SHOWN = 60
"""Characters of a wrong value that an error shows."""


@dataclass(frozen=True)
class Layer:
    """What one source says, keys as settings files spell them."""

    source: str
    """The file, `environment` or `flags`; errors name it."""
    data: dict[str, Any]
    unknown: dict[str, str] = field(default_factory=dict[str, str])
    """Dotted keys that no setting has → the key that was probably meant; empty: none is like it."""
    unset: list[str] = field(default_factory=list[str])
    """Variables that were named but aren't set; they stay as they were written."""


def read_object(file: Path) -> dict[str, Any] | None:
    """The JSON object in `file`; None: no such file. Raises `ConfigError` with file, line and column."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{file}: can't be read ({error.strerror}); expected a JSON file.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8.") from None
    if not text.strip():
        return {}
    try:
        value = jsonc.parse(text)
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        raise ConfigError(f"{place}: not JSON: {error.msg}. Correct it there.") from None
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: holds {shown(value)}, expected a JSON object.")
    return cast(dict[str, Any], clean_json(value))  # pyright: ignore[reportUnknownArgumentType]


def read_layer(file: Path, env: Mapping[str, str]) -> Layer | None:
    """A settings file, expanded and checked; None: no such file. Raises `ConfigError`."""
    data = read_object(file)
    if data is None:
        return None
    unset: list[str] = []
    # A hook's command is expanded by the shell that runs it, where a value can't become code.
    expanded = {k: v if k == "hooks" else expand(v, env, unset) for k, v in data.items()}
    return check_layer(str(file), expanded, unset)


def check_layer(source: str, data: Mapping[str, Any], unset: list[str] | None = None) -> Layer:
    """Spell keys as files do, find unknown ones, hold the types. Raises `ConfigError` naming source and key."""
    unknown: dict[str, str] = {}
    spelled = _spell(data, Settings, "", unknown)
    try:
        Settings.model_validate(spelled, strict=True)
    except ValidationError as error:
        raise ConfigError(explain(source, spelled, error)) from None
    return Layer(source, spelled, unknown, unset or [])


def _spell(
    data: Mapping[str, Any], model: type[BaseModel], prefix: str, unknown: dict[str, str]
) -> dict[str, Any]:
    names = {alias: f for n, f in model.model_fields.items() for alias in (n, f.alias or n)}
    spelled: dict[str, Any] = {}
    for key, value in data.items():
        known = names.get(key)
        if known is None:
            near = _nearest(key, [known.alias or name for name, known in model.model_fields.items()])
            unknown[prefix + key] = near and prefix + near
            spelled[key] = value
            continue
        section = known.annotation
        if isinstance(value, Mapping) and isinstance(section, type) and issubclass(section, BaseModel):
            value = _spell(cast(Mapping[str, Any], value), section, f"{prefix}{key}.", unknown)
        spelled[known.alias or key] = value
    return spelled


def _nearest(key: str, known: list[str]) -> str:
    """A key of gemini-cli that means nothing here isn't like any of ours; a slip of the finger is."""
    folded = {name.lower(): name for name in known}
    typed = key.replace("_", "").replace("-", "").lower()
    swapped = [name for name in folded if sorted(name) == sorted(typed)]
    found = swapped or get_close_matches(typed, folded, 1, _LIKE)
    return folded[found[0]] if found else ""


def expand(value: Any, env: Mapping[str, str], unset: list[str]) -> Any:
    """`$NAME`, `${NAME}` and `${NAME:-default}` in every string; names that aren't set stay, and go to `unset`."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match, env, unset), value)
    if isinstance(value, list):
        return [expand(v, env, unset) for v in cast(list[Any], value)]
    if isinstance(value, dict):
        return {k: expand(v, env, unset) for k, v in cast(dict[str, Any], value).items()}
    return value


def _variable(match: re.Match[str], env: Mapping[str, str], unset: list[str]) -> str:
    name = match[1] or match[2]
    if name in env:
        return env[name]
    if match[3] is not None:
        return match[3]
    unset.append(name)
    return match[0]


def explain(source: str, data: Mapping[str, Any], error: ValidationError, prefix: str = "") -> str:
    """The first wrong key, below `prefix`, with every type that it may have; how many more there are."""
    expected: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for problem in error.errors(include_url=False, include_context=False):
        key, value = _place(data, problem["loc"])
        values[key] = value
        what = _EXPECTED.get(problem["type"], problem["msg"].removeprefix("Input should be "))
        if what not in expected.setdefault(key, []):
            expected[key].append(what)
    key = next(iter(expected))
    more = f" ({len(expected) - 1} more like it.)" if len(expected) > 1 else ""
    return f"{source}: {prefix}{key} is {shown(values[key])}, expected {' or '.join(expected[key])}.{more}"


def _place(data: Any, location: tuple[int | str, ...]) -> tuple[str, Any]:
    """Dotted key and value; a union's branch at the end of a location is no key."""
    keys: list[str] = []
    for step in location:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            break
        keys.append(str(step))
    return ".".join(keys), data


def shown(value: object) -> str:
    """A wrong value, as errors show it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
