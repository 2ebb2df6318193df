"""settings: all sources of settings, merged by precedence (`cli.md`, Files)."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from interlock.services.config.formats import parse_json
from interlock.services.files.protected import SETTINGS_FOLDERS
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
        value = parse_json(text)
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


FOLDERS = SETTINGS_FOLDERS
_JOINED = frozenset(
    {
        "tools.exclude",
        "mcp.excluded",
        "tools.confirmationRequired",
        "context.includeDirectories",
        "hooksConfig.disabled",
        "security.environmentVariableRedaction.blocked",
    }
)
"""Lists that add up over the sources, so that a project can't take back a user's exclusion (as in gemini-cli)."""
_SERVERS = "mcpServers."
"""A server is replaced as a whole: what one source trusts isn't what another one starts."""


@dataclass(frozen=True)
class HookLayer:
    """What one source says of hooks, not yet checked."""

    source: str
    """The file, or `flags`."""
    hooks: Any
    config: Mapping[str, Any]
    """Its `hooksConfig`, which is checked."""
    project: bool


_SWITCH = {"1": True, "true": True, "0": False, "false": False}
"""As gemini-cli reads GEMINI_SANDBOX; anything else is the name of a sandbox."""


@dataclass(frozen=True)
class LoadedSettings:
    """Settings, and where they come from."""

    settings: Settings
    files: list[Path]
    """Read, lowest precedence first."""
    ignored: list[Path]
    """Project files that exist but don't count, because the folder isn't trusted."""
    unknown: list[tuple[str, str]]
    """(file, dotted key) of keys that no setting has, nor one like it (others are warned of); they are kept."""
    warnings: list[str]
    hooks: list[HookLayer]
    """Of each source that says anything of hooks, lowest precedence first."""


def project_paths(workspace: Path, home: Path, name: str) -> list[Path]:
    """`name` in each settings folder of the workspace; none that is the user's own, as in the home directory."""
    own = {os.path.realpath(home / folder / name) for folder in FOLDERS}
    paths = [workspace / folder / name for folder in FOLDERS]
    return [path for path in paths if os.path.realpath(path) not in own]


def load_settings(
    *, workspace: Path, home: Path, env: Mapping[str, str], overrides: Mapping[str, Any], trusted: bool
) -> LoadedSettings:
    """Defaults < user < MCP files < project < environment < `overrides` (nested like a file: `{"model": {"name": …}}`).

    Raises `ConfigError`, naming file and place, for what can't be read, isn't JSON or has a wrong type.
    """
    user = [home / folder / "settings.json" for folder in FOLDERS]
    project = project_paths(workspace, home, "settings.json")
    wanted = [*user, *project] if trusted else user
    read = [(file, layer) for file in wanted if (layer := read_layer(file, env)) is not None]
    layers = [layer for file, layer in read if file not in project]
    warnings: list[str] = []
    if trusted:
        layers += _server_layers(workspace, env, warnings)
    layers += [_without_users_own(layer, warnings) for file, layer in read if file in project]
    layers += [check_layer("environment", _from_environment(env)), check_layer("flags", overrides)]
    defaults = Settings.model_validate({}).model_dump(by_alias=True)
    return LoadedSettings(
        settings=Settings.model_validate(reduce(_merge, (layer.data for layer in layers), defaults)),
        files=[file for file, _ in read],
        ignored=[] if trusted else [file for file in project if os.path.lexists(file)],
        unknown=[(layer.source, key) for layer in layers for key, near in layer.unknown.items() if not near],
        warnings=[*warnings, *(line for layer in layers for line in _warnings(layer))],
        hooks=_hooks(layers, {str(file) for file in project}),
    )


def _without_users_own(layer: Layer, warnings: list[str]) -> Layer:
    """A project can't have the user notified its own way, not even one that is trusted."""
    general = layer.data.get("general", {})
    if "notify" not in general:
        return layer
    warnings.append(
        f"{layer.source}: general.notify counts only in ~/.interlock/settings.json; it is left out."
    )
    kept = {key: value for key, value in general.items() if key != "notify"}
    return replace(layer, data={**layer.data, "general": kept})


def _warnings(layer: Layer) -> Iterator[str]:
    yield from (f"{layer.source}: ${name} is not set." for name in layer.unset)
    for key, near in layer.unknown.items():
        if near:
            yield f"{layer.source}: no setting is called {key!r}. Did you mean {near!r}?"


def _hooks(layers: list[Layer], project: Collection[str]) -> list[HookLayer]:
    return [
        HookLayer(
            layer.source,
            layer.data.get("hooks", {}),
            layer.data.get("hooksConfig", {}),
            layer.source in project,
        )
        for layer in layers
        if layer.data.keys() & {"hooks", "hooksConfig"}
    ]


def _merge(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before: Any = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict) and prefix != _SERVERS:
            merged[key] = _merge(cast(dict[str, Any], before), cast(dict[str, Any], value), f"{prefix}{key}.")
        elif prefix + key in _JOINED:
            merged[key] = list(dict.fromkeys(cast(list[str], before or []) + cast(list[str], value)))
        else:
            merged[key] = value
    return merged


def _server_layers(workspace: Path, env: Mapping[str, str], warnings: list[str]) -> Iterator[Layer]:
    """Roo's file, then Claude Code's. What is wrong with a file or a server is a warning, and the rest counts."""
    for file, is_roos in ((workspace / ".roo" / "mcp.json", True), (workspace / ".mcp.json", False)):
        try:
            servers = (read_object(file) or {}).get("mcpServers", {})
        except ConfigError as error:
            warnings.append(f"{error} Its MCP servers are left out.")
            continue
        if not isinstance(servers, dict):
            warnings.append(f"{file}: mcpServers is {shown(servers)}, expected an object.")
            continue
        unset: list[str] = []
        good: dict[str, Any] = {}
        for name, server in cast(dict[str, Any], servers).items():
            if is_roos and isinstance(server, dict):
                server = _from_roo(cast(dict[str, Any], server), workspace)
            try:
                one = {"mcpServers": {name: expand(server, env, unset)}}
                good |= check_layer(str(file), one).data["mcpServers"]
            except ConfigError as error:
                warnings.append(f"{error} The server is left out.")
        yield Layer(str(file), {"mcpServers": good}, unset=unset)


def _from_roo(server: dict[str, Any], workspace: Path) -> dict[str, Any]:
    """Its time-out is in seconds, an address is SSE where nothing else is said, and variables are `${env:NAME}`."""
    text = json.dumps(server).replace("${workspaceFolder}", json.dumps(str(workspace))[1:-1])
    made: dict[str, Any] = json.loads(re.sub(r"\$\{env:(\w+)\}", r"${\1}", text))
    if isinstance(seconds := made.get("timeout", 60), int | float):
        made["timeout"] = seconds * 1000
    if "url" in made:
        made.setdefault("type", "sse")
    if "disabledTools" in made:
        made["excludeTools"] = made.pop("disabledTools")
    return made


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    model = env.get("GEMINI_MODEL")
    found: dict[str, Any] = {"model": {"name": model}} if model else {}
    if sandbox := env.get("INTERLOCK_SANDBOX") or env.get("GEMINI_SANDBOX"):
        found["tools"] = {"sandbox": _SWITCH.get(sandbox.strip().lower(), sandbox)}
    return found
