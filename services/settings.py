"""settings: all sources of settings, merged by precedence (`cli.md`, Files)."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, cast

from interlock.services.protected_paths import SETTINGS_FOLDERS
from interlock.services.settings_file import Layer, check_layer, read_layer
from interlock.state.settings import Settings

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


def load_settings(
    *, workspace: Path, home: Path, env: Mapping[str, str], overrides: Mapping[str, Any], trusted: bool
) -> LoadedSettings:
    """Defaults < user < project < environment < `overrides` (nested like a file: `{"model": {"name": …}}`).

    Raises `ConfigError`, naming file and place, for what can't be read, isn't JSON or has a wrong type.
    """
    user = [home / folder / "settings.json" for folder in FOLDERS]
    # In the home directory itself the two levels are one and the same file.
    project = [f for f in (workspace / folder / "settings.json" for folder in FOLDERS) if not _among(f, user)]
    wanted = [*user, *project] if trusted else user
    read = [(file, layer) for file in wanted if (layer := read_layer(file, env)) is not None]
    layers = [layer for _, layer in read]
    layers += [check_layer("environment", _from_environment(env)), check_layer("flags", overrides)]
    return LoadedSettings(
        settings=_merged(layers),
        files=[file for file, _ in read],
        ignored=[] if trusted else [file for file in project if os.path.lexists(file)],
        unknown=[(layer.source, key) for layer in layers for key, near in layer.unknown.items() if not near],
        warnings=[line for layer in layers for line in _warnings(layer)],
        hooks=_hooks(layers, {str(file) for file in project}),
    )


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


def _merged(layers: list[Layer]) -> Settings:
    defaults = Settings.model_validate({}).model_dump(by_alias=True)
    return Settings.model_validate(reduce(_merge, (layer.data for layer in layers), defaults))


def _merge(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before: Any = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merge(cast(dict[str, Any], before), cast(dict[str, Any], value), f"{prefix}{key}.")
        elif prefix + key in _JOINED:
            merged[key] = list(dict.fromkeys(cast(list[str], before or []) + cast(list[str], value)))
        else:
            merged[key] = value
    return merged


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    model = env.get("GEMINI_MODEL")
    found: dict[str, Any] = {"model": {"name": model}} if model else {}
    if sandbox := env.get("INTERLOCK_SANDBOX") or env.get("GEMINI_SANDBOX"):
        found["tools"] = {"sandbox": _SWITCH.get(sandbox.strip().lower(), sandbox)}
    return found


def _among(file: Path, others: list[Path]) -> bool:
    return os.path.realpath(file) in {os.path.realpath(other) for other in others}
