"""settings: merges all sources of settings by precedence (`docs/internals.md#order-of-settings`)."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, TypeGuard, cast, get_args

from pydantic import BaseModel, ValidationError

from interlock.services.config.claude_settings import ClaudeSettings, read_claude_settings
from interlock.services.config.server_files import ServerFile, find_server_files, place_server_folder
from interlock.services.files.claude_denials import CLAUDE_SETTINGS
from interlock.services.files.disk import read_file
from interlock.services.files.json_with_comments import parse_json_with_comments
from interlock.services.files.protected import SETTINGS_FOLDERS
from interlock.services.files.stamps import path_exists, real_path
from interlock.state.entry_points import is_part_installed, missing_folder_message
from interlock.state.errors import ConfigError
from interlock.state.names import ALIASES, GEMINI_KEYS, TIERS, guess_provider
from interlock.state.settings import ModelSettings, ReadSettings, Settings
from interlock.state.text import clean_json, dict_or_empty

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
"""pydantic's error type → the JSON term for it; for other types, pydantic's own wording is used."""
_PYDANTIC = re.compile("^(Input should be |Value error, )")
_LIKE = 0.85
"""Similarity above which an unknown key counts as a typo of a known one: about one wrong letter in four."""
_SHOWN = 60
"""Maximum characters of a wrong value shown in an error."""


@dataclass(frozen=True)
class SettingsLayer:
    """Settings from one source, with keys spelled as in settings files."""

    source: str
    """The file, `environment` or `flags`; named in errors."""
    data: dict[str, Any]
    unknown: dict[str, str] = field(default_factory=dict[str, str])
    """Unknown dotted keys → the key probably meant, or empty if none is similar."""
    unset: list[str] = field(default_factory=list[str])
    """Variables that are referenced but not set; the references are left as written."""


def read_json_object(file: Path) -> dict[str, Any] | None:
    """Read the JSON object in `file`; None if it doesn't exist. Raises `ConfigError` with file, line and column."""
    try:
        text = read_file(file).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{file}: can't be read ({error.strerror}); expected a JSON file.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8.") from None
    if not text.strip():
        return {}
    try:
        value = parse_json_with_comments(text)
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        raise ConfigError(f"{place}: not JSON: {error.msg}. Correct it there.") from None
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: holds {format_value_for_error(value)}, expected a JSON object.")
    return cast(dict[str, Any], clean_json(value))  # pyright: ignore[reportUnknownArgumentType]


def read_settings_file(file: Path, env: Mapping[str, str]) -> SettingsLayer | None:
    """Read, expand and check a settings file; None if there is no such file. Raises `ConfigError`."""
    data = read_json_object(file)
    if data is None:
        return None
    unset: list[str] = []
    # A hook's command is expanded by the shell that runs it, where a value can't become code.
    expanded = {k: v if k == "hooks" else expand_variables(v, env, unset) for k, v in data.items()}
    return build_settings_layer(str(file), expanded, unset)


def build_settings_layer(
    source: str, data: Mapping[str, Any], unset: list[str] | None = None
) -> SettingsLayer:
    """Normalize keys, collect unknown ones and check types. Raises `ConfigError` naming source and key."""
    unknown: dict[str, str] = {}
    spelled = _normalize_keys(data, Settings, "", unknown)
    try:
        Settings.model_validate(spelled, strict=True)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(source, spelled, error)) from None
    return SettingsLayer(source, spelled, unknown, unset or [])


def _normalize_keys(
    data: Mapping[str, Any], model: type[BaseModel], prefix: str, unknown: dict[str, str]
) -> dict[str, Any]:
    names = {alias: f for n, f in model.model_fields.items() for alias in (n, f.alias or n)}
    spelled: dict[str, Any] = {}
    for key, value in data.items():
        known = names.get(key)
        if known is None:
            near = _find_similar_key(key, [known.alias or name for name, known in model.model_fields.items()])
            unknown[prefix + key] = near and prefix + near
            spelled[key] = value
            continue
        section, named = known.annotation, get_args(known.annotation)[1:]
        if _is_section(section):
            value = _normalize_section(value, section, f"{prefix}{key}.", unknown)
        elif named and _is_section(named[0]) and isinstance(value, Mapping):  # such as servers, by name
            entries = cast(Mapping[str, Any], value).items()
            value = {n: _normalize_section(v, named[0], f"{prefix}{key}.{n}.", unknown) for n, v in entries}
        spelled[known.alias or key] = value
    return spelled


def _is_section(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _normalize_section(value: Any, section: type[BaseModel], prefix: str, unknown: dict[str, str]) -> Any:
    """Values of another type are refused later."""
    known = isinstance(value, Mapping)
    return _normalize_keys(cast(Mapping[str, Any], value), section, prefix, unknown) if known else value


def _find_similar_key(key: str, known: list[str]) -> str:
    """Return the known key of which `key` looks like a typo; gemini-cli keys that we don't support resemble none."""
    folded = {name.lower(): name for name in known}
    typed = key.replace("_", "").replace("-", "").lower()
    swapped = [name for name in folded if sorted(name) == sorted(typed)]
    found = swapped or get_close_matches(typed, folded, 1, _LIKE)
    return folded[found[0]] if found else ""


def expand_variables(value: Any, env: Mapping[str, str], unset: list[str]) -> Any:
    """Expand `$NAME`, `${NAME}` and `${NAME:-default}` in every string; unset names stay and are added to `unset`."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _expand_variable_match(match, env, unset), value)
    if isinstance(value, list):
        return [expand_variables(v, env, unset) for v in cast(list[Any], value)]
    if isinstance(value, dict):
        return {k: expand_variables(v, env, unset) for k, v in cast(dict[str, Any], value).items()}
    return value


def _expand_variable_match(match: re.Match[str], env: Mapping[str, str], unset: list[str]) -> str:
    name = match[1] or match[2]
    if name in env:
        return env[name]
    if match[3] is not None:
        return match[3]
    unset.append(name)
    return match[0]


def describe_validation_error(
    source: str, data: Mapping[str, Any], error: ValidationError, prefix: str = ""
) -> str:
    """Describe the first wrong key, prefixed with `prefix`, with all types it accepts, and count the others."""
    expected: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for problem in error.errors(include_url=False, include_context=False):
        key, value = _locate_value(data, problem["loc"])
        values[key] = value
        what = _EXPECTED.get(problem["type"], _PYDANTIC.sub("", problem["msg"]))
        if problem["type"] == "missing":
            what = f"{problem['loc'][-1]!r} in it"
        if what not in expected.setdefault(key, []):
            expected[key].append(what)
    key = next(iter(expected))
    more = f" ({len(expected) - 1} more like it.)" if len(expected) > 1 else ""
    there = format_value_for_error(values[key])
    return f"{source}: {prefix}{key} is {there}, expected {' or '.join(expected[key])}.{more}"


def _locate_value(data: Any, location: tuple[int | str, ...]) -> tuple[str, Any]:
    """Return the dotted key and its value, ignoring a union branch at the end of the location."""
    keys: list[str] = []
    for step in location:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            break
        keys.append(str(step))
    return ".".join(keys), data


def format_value_for_error(value: object) -> str:
    """Format a wrong value for an error message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


FOLDERS = SETTINGS_FOLDERS
_JOINED = frozenset(
    {
        *("tools.exclude", "mcp.excluded", "tools.confirmationRequired", "context.includeDirectories"),
        *("hooksConfig.disabled", "security.environmentVariableRedaction.blocked"),
    }
)
"""Lists that are concatenated across sources, so that a project can't undo a user's exclusion (as in gemini-cli)."""
_SERVERS = "mcpServers."
"""A server is replaced as a whole, so that trust given by one source never applies to another's command."""


@dataclass(frozen=True)
class HookLayer:
    """Hook settings from one source, not yet validated."""

    source: str
    """The file, or `flags`."""
    hooks: Any
    config: Mapping[str, Any]
    """The `hooksConfig` section, already validated."""
    project: bool
    is_claudes: bool = False
    """It is Claude Code's file, with its events, matchers and time-outs."""


_SWITCH = {"1": True, "true": True, "0": False, "false": False}
"""How gemini-cli reads GEMINI_SANDBOX; any other value is a sandbox name."""


@dataclass(frozen=True)
class LoadedSettings:
    """Merged settings and where they come from."""

    settings: Settings
    files: list[Path]
    """Files read, lowest precedence first."""
    ignored: list[Path]
    """Existing project files that were skipped because the folder isn't trusted."""
    unknown: list[tuple[str, str]]
    """(file, dotted key) of unknown keys that resemble no setting (the others produce warnings); they are preserved."""
    warnings: list[str]
    hooks: list[HookLayer]
    """One per source with hook settings, lowest precedence first."""
    project_env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that a trusted project sets for commands, hooks and servers, where the environment hasn't them."""
    server_files: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """File of a trusted project → its MCP servers that count."""
    notes: Sequence[str] = ()
    """What `interlock doctor` says of these files, and no run."""


def project_settings_paths(workspace: Path, home: Path, name: str) -> list[Path]:
    """Return `name` in each settings folder of the workspace that isn't also the user's, as in the home directory."""
    own = {real_path(home / folder / name) for folder in FOLDERS}
    paths = [workspace / folder / name for folder in FOLDERS]
    return [path for path in paths if real_path(path) not in own]


def load_settings(
    *,
    workspace: Path,
    home: Path,
    env: Mapping[str, str],
    overrides: Mapping[str, Any],
    trusted: bool,
    repository: Path | None = None,
) -> LoadedSettings:
    """Merge defaults < user < MCP files < project < environment < `overrides` (nested like a file).

    `repository`: the root, if it is trusted, of the repository around the workspace; its servers count, too.
    Raises `ConfigError`, naming file and place, for unreadable files, invalid JSON and wrong types.
    """
    user = [home / folder / "settings.json" for folder in FOLDERS]
    project = project_settings_paths(workspace, home, "settings.json")
    wanted = [*user, *project] if trusted else user
    read = [(file, layer) for file in wanted if (layer := read_settings_file(file, env)) is not None]
    layers = [layer for file, layer in read if file not in project]
    flags = build_settings_layer(FLAGS, overrides)
    counts = _read_switches_of_user([*layers, flags])
    warnings: list[str] = []
    notes: list[str] = []
    claudes: list[ClaudeSettings] = []
    server_files: dict[str, list[str]] = {}
    if trusted:
        around = [] if repository in (None, workspace) else [repository]
        ours = [layer for top in around for layer in _repository_server_layers(top, env)]
        claudes = [*_find_claude_settings(workspace, home)]
        files = [*find_server_files([*around, workspace], workspace, home, env)] if counts.servers else []
        for found in files:
            if found.path.name == ".mcp.json":
                _disable_servers_nobody_chose(found, claudes, notes)
        theirs = [*_server_file_layers(files, notes, warnings)]
        below = [_drop_user_only_keys(layer, warnings) for file, layer in read if file in project]
        own = _drop_repeated_servers([*ours, *theirs, *below], notes)
        layers += own
        server_files = {layer.source: [*layer.data.get("mcpServers", {})] for layer in own}
    layers += [
        build_settings_layer("environment", _settings_from_environment(env)),
        flags,
    ]
    defaults = Settings.model_validate({}).model_dump(by_alias=True)
    settings = Settings.model_validate(reduce(_merge_settings, (layer.data for layer in layers), defaults))
    names = [str(layer.data.get("model", {}).get("name") or "auto") for layer in reversed(layers)]
    model, said = apply_vendor_aliases(settings.model, names, env)
    changed: dict[str, Any] = {"model": model}
    if settings.mcp_servers and not is_part_installed("mcp"):
        changed["mcp_servers"] = {}
        warnings.append(missing_folder_message("mcpServers need", "services/mcp"))
    return LoadedSettings(
        settings=settings.model_copy(update=changed),
        files=[file for file, _ in read],
        ignored=[] if trusted else [file for file in project if path_exists(file)],
        unknown=[(layer.source, key) for layer in layers for key, near in layer.unknown.items() if not near],
        warnings=[
            *warnings,
            *(line for layer in layers for line in _layer_warnings(layer)),
            *filter(None, [said]),
        ],
        hooks=[
            *(
                HookLayer(str(one.path), one.hooks, {}, project=True, is_claudes=True)
                for one in claudes
                if one.hooks and counts.hooks
            ),
            *_hook_layers(layers, {str(file) for file in project}),
        ],
        server_files=server_files,
        project_env={k: v for one in claudes for k, v in one.env.items()} if counts.environment else {},
        notes=[*notes, *(line for one in claudes for line in _notes_on_claude_settings(one, counts))],
    )


FLAGS = "flags"
"""Source of what came with the run."""
_USERS_OWN = (
    *("general.notify", "start", "telemetry", "store", "fleet"),
    *(f"context.read.{kind}" for kind in ("servers", "hooks", "permissions", "environment", "ignore")),
)
"""A project can't choose how the user is notified, what stays running, where records are sent, how long they are kept,
what a worker trusts, and whether what other agents' files run, allow, deny and hide counts."""


def _drop_user_only_keys(layer: SettingsLayer, warnings: list[str]) -> SettingsLayer:
    """Drop these, even of a trusted project."""
    data = layer.data
    for key in _USERS_OWN:
        *sections, name = key.split(".")
        if name in reduce(lambda outer, section: dict_or_empty(outer.get(section)), sections, data):
            warnings.append(f"{layer.source}: {key} counts only in ~/.interlock/settings.json; ignored here.")
            data = _without_key(data, sections, name)
    return replace(layer, data=data)


def _without_key(data: dict[str, Any], sections: Sequence[str], name: str) -> dict[str, Any]:
    if not sections:
        return {key: value for key, value in data.items() if key != name}
    return {**data, sections[0]: _without_key(data[sections[0]], sections[1:], name)}


def _read_switches_of_user(layers: Sequence[SettingsLayer]) -> ReadSettings:
    given = (dict_or_empty(dict_or_empty(layer.data.get("context")).get("read")) for layer in layers)
    return ReadSettings.model_validate(reduce(_merge_settings, given, {}))


def _layer_warnings(layer: SettingsLayer) -> Iterator[str]:
    yield from (f"{layer.source}: ${name} is not set." for name in layer.unset)
    for key, near in layer.unknown.items():
        if near:
            yield f"{layer.source}: unknown setting {key!r}. Did you mean {near!r}?"


def _hook_layers(layers: list[SettingsLayer], project_sources: Collection[str]) -> list[HookLayer]:
    return [
        HookLayer(
            layer.source,
            layer.data.get("hooks", {}),
            layer.data.get("hooksConfig", {}),
            layer.source in project_sources,
        )
        for layer in layers
        if layer.data.keys() & {"hooks", "hooksConfig"}
    ]


def _merge_settings(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before: Any = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict) and prefix != _SERVERS:
            merged[key] = _merge_settings(
                cast(dict[str, Any], before), cast(dict[str, Any], value), f"{prefix}{key}."
            )
        elif prefix + key in _JOINED:
            merged[key] = list(dict.fromkeys(cast(list[str], before or []) + cast(list[str], value)))
        else:
            merged[key] = value
    return merged


def _server_file_layers(
    files: Sequence[ServerFile], notes: list[str], warnings: list[str]
) -> Iterator[SettingsLayer]:
    """Yield the servers of other agents' files. A bad server produces a warning and is skipped."""
    for found in files:
        warnings += found.problems
        notes += [f"{found.path}: {key} doesn't count: {why}." for key, why in found.unused.items() if why]
        good: dict[str, Any] = {}
        unknown = {key: "" for key, why in found.unused.items() if not why}
        for name, server in found.servers.items():
            try:
                layer = build_settings_layer(str(found.path), {"mcpServers": {name: server}})
            except ConfigError as error:
                warnings.append(f"{error} The server is ignored.")
                continue
            good |= layer.data["mcpServers"]
            unknown |= layer.unknown
        yield SettingsLayer(str(found.path), {"mcpServers": good}, unknown, found.unset)


def _find_claude_settings(workspace: Path, home: Path) -> Iterator[ClaudeSettings]:
    """Yield Claude Code's settings of the workspace, the one that gives way first; not the user's own."""
    for name in CLAUDE_SETTINGS:
        is_users = real_path(workspace / name) == real_path(home / name)
        if not is_users and (found := read_claude_settings(workspace / name)):
            yield found


def _notes_on_claude_settings(found: ClaudeSettings, counts: ReadSettings) -> Iterator[str]:
    if found.problem:
        asks = ", and everything asks" if counts.permissions else ""
        yield f"{found.path}: {found.problem}; none of it counts{asks}."
    yield from (f"{found.path}: env.{name} doesn't count: {why}." for name, why in found.unused_env.items())


def _disable_servers_nobody_chose(
    found: ServerFile, claudes: Sequence[ClaudeSettings], notes: list[str]
) -> None:
    """Disable the servers of `.mcp.json` that Claude Code's settings reject, or don't list if they list some."""
    chosen = [one.enabled_servers for one in claudes if one.enabled_servers is not None]
    enabled = {name for names in chosen for name in names}
    rejected = {name for one in claudes for name in one.disabled_servers}
    for name, server in found.servers.items():
        if name in rejected or (chosen and name not in enabled):
            server["disabled"] = True
            key = (
                "disabledMcpjsonServers names it"
                if name in rejected
                else "enabledMcpjsonServers doesn't name it"
            )
            notes.append(f"{found.path}: MCP server {name!r} is disabled: {key} in Claude Code's settings.")


def _repository_server_layers(repository: Path, env: Mapping[str, str]) -> Iterator[SettingsLayer]:
    """Yield the servers in our settings files of the repository around a workspace below its root."""
    for folder in FOLDERS:
        layer = read_settings_file(repository / folder / "settings.json", env)
        if layer is not None and (servers := layer.data.get("mcpServers")):
            own = {
                name: {**server, "cwd": place_server_folder(repository, server.get("cwd", ""))}
                if server.get("command")
                else server
                for name, server in servers.items()
            }
            yield SettingsLayer(layer.source, {"mcpServers": own})


def _drop_repeated_servers(layers: list[SettingsLayer], notes: list[str]) -> list[SettingsLayer]:
    """Return the layers, each server once: of one name, and of one program or address, the last counts."""
    kept: list[SettingsLayer] = []
    sources: dict[str, str] = {}
    definitions: dict[str, tuple[str, str]] = {}
    for layer in reversed(layers):
        servers = cast("dict[str, Any]", layer.data.get("mcpServers", {}))
        own: dict[str, Any] = {}
        given_way: dict[str, list[str]] = {}
        for name, server in servers.items():
            what = json.dumps({**server, "timeout": 0}, sort_keys=True, default=str)
            other, where = definitions.get(what, ("", ""))
            if name in sources:
                given_way.setdefault(sources[name], []).append(repr(name))
            elif other and where != layer.source:
                notes.append(f"{layer.source}: {name!r} doesn't count: it is {other!r} of {where}.")
            else:
                sources[name], definitions[what] = layer.source, (name, layer.source)
                own[name] = server
        for where, names in given_way.items():
            verb = "doesn't" if len(names) == 1 else "don't"
            notes.append(f"{layer.source}: {', '.join(names)} {verb} count: {where} comes first.")
        kept.append(replace(layer, data={**layer.data, "mcpServers": own}) if servers else layer)
    return kept[::-1]


_SWITCHES = {"enabled", "logPrompts", "useCollector"}
_TELEMETRY = {
    "GEMINI_TELEMETRY_ENABLED": "enabled",
    "GEMINI_TELEMETRY_TARGET": "target",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "otlpEndpoint",
    "GEMINI_TELEMETRY_OTLP_ENDPOINT": "otlpEndpoint",
    "GEMINI_TELEMETRY_OTLP_PROTOCOL": "otlpProtocol",
    "GEMINI_TELEMETRY_LOG_PROMPTS": "logPrompts",
    "GEMINI_TELEMETRY_OUTFILE": "outfile",
    "GEMINI_TELEMETRY_USE_COLLECTOR": "useCollector",
}
"""gemini-cli's variables, the stronger last."""


def _settings_from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    model = env.get("GEMINI_MODEL")
    found: dict[str, Any] = {"model": {"name": model}} if model else {}
    if sandbox := env.get("INTERLOCK_SANDBOX") or env.get("GEMINI_SANDBOX"):
        found["tools"] = {"sandbox": _SWITCH.get(sandbox.strip().lower(), sandbox)}
    if telemetry := {key: env[name] for name, key in _TELEMETRY.items() if env.get(name)}:
        switches = {key: telemetry[key].lower() in ("true", "1") for key in _SWITCHES & telemetry.keys()}
        found["telemetry"] = {**telemetry, **switches}
    return found


_KEYS = {"gemini": GEMINI_KEYS, "anthropic": ("ANTHROPIC_API_KEY",), "openai": ("OPENAI_API_KEY",)}
"""Vendor → the variables of its key; the first with a key is the default vendor."""
_NAMES = {"anthropic": "Claude", "openai": "GPT"}
_ANY = ("auto", *ALIASES)
"""Names that say how large the model is, and not whose."""


def apply_vendor_aliases(
    model: ModelSettings, names: Sequence[str], env: Mapping[str, str]
) -> tuple[ModelSettings, str]:
    """Return the settings with `pro` and `flash` of the default vendor, and what to say about it (empty: nothing).

    `names`: the model names that were set, the strongest first. An alias that is set keeps its meaning.
    """
    named = next((vendor for name in names if (vendor := _vendor_of_model(model, name))), "")
    vendor = named or _first_vendor_with_key_or_gemini(env)
    tiers = TIERS.get(vendor)
    kept = {alias for alias, target in model.aliases.items() if target != ALIASES.get(alias)}
    if not tiers or kept >= {*tiers}:
        return model, ""
    aliases = {**model.aliases, **{alias: name for alias, name in tiers.items() if alias not in kept}}
    changed = model.model_copy(update={"aliases": aliases})
    if named or model.name != "auto" or model.aliases.get("auto"):
        return changed, ""
    return changed, (
        f"No Gemini key; {_KEYS[vendor][0]} is set, so Interlock uses {_NAMES[vendor]}: "
        f"{aliases['pro'].partition(':')[2]} or {aliases['flash'].partition(':')[2]}, chosen for each prompt."
    )


def _vendor_of_model(model: ModelSettings, name: str) -> str:
    """Return whose model a name is; empty if it only says how large."""
    seen: set[str] = set()
    while name not in seen and (target := model.aliases.get(name)) and target != ALIASES.get(name):
        seen.add(name)
        name = target
    return "" if name in _ANY else guess_provider(name)


def _first_vendor_with_key_or_gemini(env: Mapping[str, str]) -> str:
    for vendor, keys in _KEYS.items():
        if any(env.get(key) for key in keys) and not _is_openai_key_for_other_server(vendor, env):
            return vendor
    return "gemini"


def _is_openai_key_for_other_server(vendor: str, env: Mapping[str, str]) -> bool:
    """Return whether OpenAI's key is one for a server of other models, such as llama.cpp."""
    return vendor == "openai" and env.get("OPENAI_BASE_URL", "").startswith("http://")
