"""file_effects: what a file of a folder would run, reach, allow or set, a line for each."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, cast

from interlock.services.config.claude_settings import read_claude_settings
from interlock.services.config.formats import parse_yaml
from interlock.services.config.server_files import find_server_format, read_server_tables
from interlock.services.config.settings import read_json_object
from interlock.services.files.disk import read_file
from interlock.services.hooks.hook_settings import ClaudeHookReader
from interlock.services.policy.claude_permissions import (
    PermissionEntry,
    is_claude_settings,
    read_permissions,
)
from interlock.services.secrets.environment import is_secret_name
from interlock.services.secrets.redaction import SHAPES
from interlock.state.errors import ConfigError
from interlock.state.names import LISTING
from interlock.state.text import dict_or_empty, join_up_to, list_or_empty

_TELLING = re.compile(
    r"command|script|hook|url|uri|endpoint|address|host|proxy|webhook|telemetry|header|env|allow|trust|path|director|sandbox",
    re.IGNORECASE,
)
"""Keys of settings that may run something, lead outside or allow something; they are shown first."""
_FIRST = ("type", "name", "command")
NOT_READ = "not read: "
"""How the line of keys begins that Interlock doesn't read."""
MOST_NAMED = 8
"""Maximum number of files or keys that one line names."""
_VARIABLE = re.compile(r"[${]")


def describe_file_effects(file: Path) -> Iterator[str]:
    """The lines of one file, without the secrets in them, or one that says why it can't be read."""
    try:
        yield from [SHAPES(line) for line in _describe_contents(file)]
    except (ConfigError, OSError, ValueError) as error:  # `tomllib` and UTF-8 raise a ValueError, too
        yield f"(can't be read: {error})"


def _describe_contents(file: Path) -> Iterable[str]:
    if find_server_format(file):
        return _describe_server_file(file)
    if is_claude_settings(str(file)):
        return _describe_claude_settings(file)
    if file.suffix == ".json":
        return _describe_settings(read_json_object(file) or {}, listing=file.name == LISTING)
    if file.suffix == ".py":
        return ["Python code, which runs with your rights"]
    text = read_file(file).decode("utf-8-sig")
    if file.suffix == ".toml":
        return _describe_rules(dict_or_empty(tomllib.loads(text)))
    if file.name == ".roomodes":
        return _describe_modes(dict_or_empty(parse_yaml(text)))
    return _describe_env_variables(text) if file.name == ".env" else []


def _describe_settings(data: Mapping[str, Any], *, listing: bool) -> Iterator[str]:
    for event, groups in dict_or_empty(data.get("hooks")).items():
        for group in list_or_empty(groups):
            for hook in map(dict_or_empty, list_or_empty(dict_or_empty(group).get("hooks"))):
                yield f"hook {event}: {hook.get('command', hook)}{_describe_other_keys(hook, _FIRST)}"
    for name, server in dict_or_empty(data.get("mcpServers")).items():
        yield f"MCP server {name}: {_describe_server(dict_or_empty(server))}"
    for name, place in dict_or_empty(data.get("graphs")).items() if listing else ():
        yield f"graph {name}: {dict_or_empty(place).get('path', place)}"
    shown = {"hooks", "mcpServers", *(["graphs"] if listing else [])}
    shown -= {name for name in shown if not isinstance(data.get(name), dict)}
    yield from _describe_values({key: value for key, value in data.items() if key not in shown})


def _describe_server_file(file: Path) -> Iterator[str]:
    servers, other_keys = read_server_tables(file)
    for name, server in servers.items():
        yield f"MCP server {name}: {_describe_server(server)}"
    if other_keys:
        yield f"{NOT_READ}{join_up_to(other_keys, MOST_NAMED)}"


def _describe_claude_settings(file: Path) -> Iterator[str]:
    found = read_claude_settings(file)
    if found is None or found.problem:
        yield f"({found.problem if found else 'it is gone'})"
        return
    text = read_file(file).decode("utf-8-sig")
    yield from _describe_settings({"hooks": found.hooks or {}}, listing=False)
    problems: list[str] = []
    list(ClaudeHookReader(str(file), problems).read_hooks(found.hooks or {}))
    yield from (line.removeprefix(f"{file}: ") for line in problems)
    permissions = read_permissions(text, str(file))
    yield from (_describe_permission(entry) for entry in permissions.entries)
    yield from (
        f"permissions.{key} doesn't count: {why or 'unknown'}" for key, why in permissions.unused.items()
    )
    for name, value in found.env.items():
        yield f"variable {name}{', a secret' if is_secret_name(name) else f'={value}'}"
    if found.enabled_servers is not None:
        yield f"of .mcp.json, only: {', '.join(found.enabled_servers) or 'no server'}"
    if found.unread:
        yield f"{NOT_READ}{join_up_to(found.unread, MOST_NAMED)}"


_FATES = {
    "rule": "",
    "hides": " (hides the file from tools)",
    "needless": " (needless: {why})",
    "skipped": " (doesn't count: {why})",
    "asks": " (asks instead: {why})",
}


def _describe_permission(entry: PermissionEntry) -> str:
    return f"permission {entry.decision} {entry.text}{_FATES[entry.fate].format(why=entry.why)}"


def _describe_server(server: Mapping[str, Any]) -> str:
    where = server.get("httpUrl") or server.get("url")
    command = server.get("command", "?")
    words = cast("list[Any]", command) if isinstance(command, list) else [command]
    line = [where] if where else [*words, *list_or_empty(server.get("args"))]
    free = ["every tool"] if server.get("trust") else [*map(str, list_or_empty(server.get("alwaysAllow")))]
    said = ("httpUrl" if server.get("httpUrl") else "url",) if where else ("command", "args")
    asks = f" (doesn't ask: {', '.join(free)})" if free else ""
    return " ".join(map(str, line)) + asks + _describe_other_keys(server, (*said, "trust", "alwaysAllow"))


def _describe_other_keys(entry: Mapping[str, Any], described_keys: Iterable[str]) -> str:
    """What else stands there, as `env`, headers and a folder do."""
    rest = [
        f"{name}={_format_value(value, name)}"
        for name, value in _iterate_leaves(entry)
        if name.partition(".")[0] not in described_keys
    ]
    return f" ({'; '.join(rest)})" if rest else ""


_MODE_TEXTS = ("slug", "name", "description", "roleDefinition", "customInstructions", "whenToUse", "source")
"""Keys of a mode that are its name, or text for the model."""


def _describe_modes(data: Mapping[str, Any]) -> Iterator[str]:
    """Of Roo Code's modes: which groups of tools each has, and whatever else it sets."""
    for mode in map(dict_or_empty, list_or_empty(data.get("customModes"))):
        tools = json.dumps(mode.get("groups", []), ensure_ascii=False)
        yield f"mode {mode.get('slug', '?')}: tools {tools}{_describe_other_keys(mode, (*_MODE_TEXTS, 'groups'))}"
    yield from _describe_values({key: value for key, value in data.items() if key != "customModes"})


def _describe_rules(data: Mapping[str, Any]) -> Iterator[str]:
    """Of a file of rules."""
    for rule in map(dict_or_empty, list_or_empty(data.get("rule"))):
        about = [
            f"{name}={_format_value(value)}" for name, value in _iterate_leaves(rule) if name != "decision"
        ]
        yield f"rule {rule.get('decision', '?')}: {'; '.join(about)}"
    yield from _describe_values({key: value for key, value in data.items() if key != "rule"})


def _describe_env_variables(text: str) -> Iterator[str]:
    from dotenv.parser import parse_stream

    for binding in parse_stream(StringIO(text)):
        if binding.key:
            hidden = is_secret_name(binding.key)
            yield f"variable {binding.key}" + (", a secret" if hidden else f"={binding.value or ''}")


def _describe_values(data: Mapping[str, Any]) -> list[str]:
    """A line for each value, those first that may run, reach or allow something."""
    found = [(name, value) for name, value in _iterate_leaves(data)]
    found.sort(key=lambda one: _TELLING.search(one[0]) is None)
    return [f"setting {name}: {_format_value(value, name)}" for name, value in found]


def _iterate_leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in data.items():
        name = f"{prefix}{key}"
        inner: Any = value
        if isinstance(value, list) and any(isinstance(one, dict | list) for one in cast("list[Any]", value)):
            inner = {str(place): one for place, one in enumerate(cast("list[Any]", value))}
        if isinstance(inner, dict) and inner:
            yield from _iterate_leaves(cast("dict[str, Any]", inner), f"{name}.")
        else:
            yield name, value


def _format_value(value: object, name: str = "") -> str:
    """Return a value as shown; of a secret only that it is one, unless it is a variable."""
    if is_secret_name(name.rpartition(".")[2]) and isinstance(value, str) and not _VARIABLE.search(value):
        return "a secret"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
