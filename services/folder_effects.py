"""folder_effects: lists what a folder's files would run, reach, allow or change once the folder is trusted.

Nothing is left out: what isn't known to run or lead outside is a setting that is shown, too.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, cast

from interlock.services.config.formats import parse_yaml, split_front_matter
from interlock.services.config.settings import read_json_object
from interlock.services.files.disk import read_file
from interlock.services.secrets.environment import is_secret_name
from interlock.state.command import split_template
from interlock.state.errors import ConfigError
from interlock.state.names import LISTING
from interlock.state.text import as_object

_TELLING = re.compile(
    r"command|script|hook|url|uri|endpoint|address|host|proxy|webhook|telemetry|header|env|allow|trust|path|director|sandbox",
    re.IGNORECASE,
)
"""Keys of settings that may run something, lead outside or allow something; they are shown first."""
_FIRST = ("type", "name", "command")


def describe_file(file: Path) -> Iterator[str]:
    """The lines of one file, or one that says why it can't be read."""
    try:
        yield from [*_describe_contents(file)]
    except (ConfigError, OSError, ValueError) as error:  # `tomllib` and UTF-8 raise a ValueError, too
        yield f"(can't be read: {error})"


def _describe_contents(file: Path) -> Iterable[str]:
    if file.suffix == ".json":
        return _describe_settings(read_json_object(file) or {}, listing=file.name == LISTING)
    if file.suffix == ".py":
        return ["Python code, which runs with your rights"]
    text = read_file(file).decode("utf-8-sig")
    if file.suffix == ".toml":
        return _describe_toml(as_object(tomllib.loads(text)))
    if file.suffix == ".md":
        front = split_front_matter(text)[0]
        return _setting_lines({key: value for key, value in front.items() if key != "description"})
    if file.name == ".roomodes":
        return _setting_lines(as_object(parse_yaml(text)))
    return _describe_variables(text) if file.name == ".env" else []


def _describe_settings(data: Mapping[str, Any], *, listing: bool) -> Iterator[str]:
    for event, groups in as_object(data.get("hooks")).items():
        for group in _to_list(groups):
            for hook in map(as_object, _to_list(as_object(group).get("hooks"))):
                yield f"hook {event}: {hook.get('command', hook)}{_describe_other_keys(hook, _FIRST)}"
    for name, server in as_object(data.get("mcpServers")).items():
        yield f"MCP server {name}: {_describe_server(as_object(server))}"
    for name, place in as_object(data.get("graphs")).items() if listing else ():
        yield f"graph {name}: {as_object(place).get('path', place)}"
    shown = {"hooks", "mcpServers", *(["graphs"] if listing else [])}
    shown -= {name for name in shown if not isinstance(data.get(name), dict)}
    yield from _setting_lines({key: value for key, value in data.items() if key not in shown})


def _describe_server(server: Mapping[str, Any]) -> str:
    where = server.get("httpUrl") or server.get("url")
    line = [where] if where else [server.get("command", "?"), *_to_list(server.get("args"))]
    free = ["every tool"] if server.get("trust") else [*map(str, _to_list(server.get("alwaysAllow")))]
    said = ("httpUrl" if server.get("httpUrl") else "url",) if where else ("command", "args")
    asks = f" (doesn't ask: {', '.join(free)})" if free else ""
    return " ".join(map(str, line)) + asks + _describe_other_keys(server, (*said, "trust", "alwaysAllow"))


def _describe_other_keys(given: Mapping[str, Any], shown: Iterable[str]) -> str:
    """What else stands there, as `env`, headers and a folder do."""
    rest = [
        f"{name}={_format_value(value)}"
        for name, value in _iterate_leaves(given)
        if name.partition(".")[0] not in shown
    ]
    return f" ({'; '.join(rest)})" if rest else ""


def _describe_toml(data: Mapping[str, Any]) -> Iterator[str]:
    """Of a file of rules, or of a command."""
    for rule in map(as_object, _to_list(data.get("rule"))):
        about = [
            f"{name}={_format_value(value)}" for name, value in _iterate_leaves(rule) if name != "decision"
        ]
        yield f"rule {rule.get('decision', '?')}: {'; '.join(about)}"
    if isinstance(prompt := data.get("prompt"), str):
        yield from (f"runs !{{{piece.text}}}" for piece in split_template(prompt) if piece.kind == "shell")
    known = {"rule", "prompt", "description"}
    yield from _setting_lines({key: value for key, value in data.items() if key not in known})


def _describe_variables(text: str) -> Iterator[str]:
    from dotenv.parser import parse_stream

    for binding in parse_stream(StringIO(text)):
        if binding.key:
            hidden = is_secret_name(binding.key)
            yield f"variable {binding.key}" + (", a secret" if hidden else f"={binding.value or ''}")


def _setting_lines(data: Mapping[str, Any]) -> list[str]:
    """A line for each value, those first that may run, reach or allow something."""
    found = [(name, value) for name, value in _iterate_leaves(data)]
    found.sort(key=lambda one: _TELLING.search(one[0]) is None)
    return [f"setting {name}: {_format_value(value)}" for name, value in found]


def _iterate_leaves(data: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in data.items():
        name = f"{above}{key}"
        inner: Any = value
        if isinstance(value, list) and any(isinstance(one, dict | list) for one in cast("list[Any]", value)):
            inner = {str(place): one for place, one in enumerate(cast("list[Any]", value))}
        if isinstance(inner, dict) and inner:
            yield from _iterate_leaves(cast("dict[str, Any]", inner), f"{name}.")
        else:
            yield name, value


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _to_list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
