"""server_files: MCP servers in other agents' files, as settings of ours: each program's keys, transports and variables.

To add a program: a row of `FORMATS`, and its path in `services/files/agent_files.toml`."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any, Literal, cast

from interlock.services.files.disk import read_file
from interlock.services.files.json_with_comments import parse_json_with_comments, reject_deep_nesting
from interlock.state.errors import ConfigError

Resolve = Callable[[str, "Place"], str | None]
"""Returns what a variable stands for; None if it isn't set."""
_TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
    "sse": "sse",
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
}
"""Other programs' words for a transport → ours. `remote` is HTTP or SSE, as without any."""
_COMMON = {name: name for name in ("command", "args", "env", "cwd", "url", "headers", "type", "disabled")}
_INERT = frozenset(
    {"description", "name", "title", "version", "gallery", "icon", "$schema", "dev", "watchPaths"}
)
"""Keys that change nothing here."""
_NEVER = {
    "trust": "only your own settings, and .gemini and .interlock of the folder, make a server's calls run unasked",
    "autoApprove": "a file of a repository lets nothing run unasked",
    "headersHelper": "Interlock runs no command for headers",
    "sandboxEnabled": "Interlock's own sandbox is tools.sandbox",
    "sandbox": "Interlock's own sandbox is tools.sandbox",
    "auth": "Interlock registers at the server by itself (interlock mcp auth)",
    "scopes": "Interlock asks the server for them (interlock mcp auth)",
    "oauth_resource": "Interlock asks the server for it (interlock mcp auth)",
    "alwaysLoad": "all tools of a server are offered at once",
    "startup_timeout_sec": "timeout says how long a run waits for a server",
    "startup_timeout_ms": "timeout says how long a run waits for a server",
    "required": "a run goes on without a server that doesn't start",
}
"""Keys that don't count here → why."""


@dataclass(frozen=True)
class Place:
    """Where a file of servers is, and what its variables may refer to."""

    folder: Path
    """The repository or workspace that it is in."""
    env: Mapping[str, str]
    home: Path
    workspace: Path
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """VS Code's inputs → what they ask for."""


def _resolve_claude_variable(text: str, place: Place) -> str | None:
    name, has_default, default = text.partition(":-")
    value = str(place.folder) if name == "CLAUDE_PROJECT_DIR" else place.env.get(name)
    return default if value is None and has_default else value


def _resolve_editor_variable(text: str, place: Place) -> str | None:
    fixed = {
        **dict.fromkeys(("workspaceFolder", "workspaceRoot"), str(place.folder)),
        "workspaceFolderBasename": place.folder.name,
        "userHome": str(place.home),
        **dict.fromkeys(("/", "pathSeparator"), "/"),
    }
    kind, _, name = text.partition(":")
    if kind == "env":
        return place.env.get(name)
    if kind == "input":
        return place.env.get(input_variable(name))
    return fixed.get(text)


def _resolve_opencode_variable(text: str, place: Place) -> str | None:
    kind, _, name = text.partition(":")
    return place.env.get(name, "") if kind == "env" else _read_text_in_folder(name, place)


def _read_text_in_folder(name: str, place: Place) -> str | None:
    """Return a file's text, stripped; None if it can't be read or isn't in the folder, links included."""
    try:
        file = (place.folder / name).resolve()
        return read_file(file).decode().strip() if file.is_relative_to(place.folder.resolve()) else None
    except (OSError, ValueError):
        return None


def input_variable(name: str) -> str:
    """Return the environment variable that answers one of VS Code's inputs: `api-key` is `API_KEY`."""
    return re.sub(r"\W", "_", name).upper()


_DOLLAR = re.compile(r"\$\{([^{}]+)\}")
_BRACES = re.compile(r"\{((?:env|file):[^{}]+)\}")


@dataclass(frozen=True)
class ServerFormat:
    """How one program writes servers."""

    section: str
    """The key that holds them by name."""
    keys: Mapping[str, str]
    """Its keys that count → ours."""
    variable: re.Pattern[str] | None = None
    resolve: Resolve = _resolve_editor_variable
    bare_url: Literal["sse", "http"] | None = None
    """What an address without a type speaks; None: HTTP, or SSE."""
    timeout_unit_ms: int = 1
    relative_to: str = "."
    """The folder, below the repository's, that relative folders of servers start at."""
    default_timeout_ms: float | None = None


FORMATS: Mapping[str, ServerFormat] = {
    ".codex/config.toml": ServerFormat(
        section="mcp_servers",
        keys={
            **{name: name for name in ("command", "args", "env", "cwd", "url")},
            "http_headers": "headers",
            "enabled_tools": "includeTools",
            "disabled_tools": "excludeTools",
            "tool_timeout_sec": "timeout",
            "enabled": "disabled",
            "env_vars": "env",
            "env_http_headers": "headers",
            "bearer_token_env_var": "headers",
        },
        bare_url="http",
        timeout_unit_ms=1000,
        relative_to=".codex",
    ),
    **dict.fromkeys(
        ("opencode.json", "opencode.jsonc"),
        ServerFormat(
            section="mcp",
            keys={**_COMMON, "environment": "env", "enabled": "disabled", "timeout": "timeout"},
            variable=_BRACES,
            resolve=_resolve_opencode_variable,
        ),
    ),
    ".cursor/mcp.json": ServerFormat("mcpServers", {**_COMMON, "envFile": "envFile"}, _DOLLAR),
    ".vscode/mcp.json": ServerFormat("servers", {**_COMMON, "envFile": "envFile"}, _DOLLAR),
    ".roo/mcp.json": ServerFormat(
        "mcpServers",
        {**_COMMON, "timeout": "timeout", "alwaysAllow": "alwaysAllow", "disabledTools": "excludeTools"},
        _DOLLAR,
        bare_url="sse",
        timeout_unit_ms=1000,
        default_timeout_ms=60_000,
    ),
    ".mcp.json": ServerFormat(
        "mcpServers",
        {
            **_COMMON,
            **{
                name: name
                for name in ("httpUrl", "timeout", "includeTools", "excludeTools", "alwaysAllow", "oauth")
            },
        },
        _DOLLAR,
        _resolve_claude_variable,
    ),
}
"""Path below a folder → its format. Of servers with one name, that of the later file counts."""


@dataclass
class ServerFile:
    """The servers of one file, in gemini-cli's keys, not validated yet."""

    path: Path
    servers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    unset: list[str] = field(default_factory=list[str])
    """Variables that are named and not set; they stay as written."""
    problems: list[str] = field(default_factory=list[str])
    """One line each: what of the file can't be used. A server that it is about is left out."""
    unused: dict[str, str] = field(default_factory=dict[str, str])
    """Dotted keys that don't count → why; empty: unknown."""


def find_server_files(
    folders: Iterable[Path], workspace: Path, home: Path, env: Mapping[str, str]
) -> Iterator[ServerFile]:
    """Yield the files of servers in each folder, those that give way first."""
    for folder in folders:
        place = Place(folder, env, home, workspace)
        for name, format in FORMATS.items():
            if found := read_server_file(folder / name, format, place):
                yield found


def read_server_file(file: Path, format: ServerFormat, place: Place) -> ServerFile | None:
    """Read a file of servers; None if there is no such file. Never raises: problems are in the result."""
    found = ServerFile(file)
    try:
        data = _read_object(file)
        servers: object = data.get(format.section, {})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, ConfigError) as error:
        found.problems.append(f"{file}: can't be read ({error}). Its MCP servers are ignored.")
        return found
    if not isinstance(servers, dict):
        found.problems.append(f"{file}: {format.section} is {servers!r:.60}, expected an object.")
        return found
    place = replace(place, inputs=_read_input_descriptions(data.get("inputs")))
    for name, server in cast("dict[str, object]", servers).items():
        if not isinstance(server, dict):
            found.problems.append(
                f"{file}: {format.section}.{name} is {server!r:.60}, expected an object. It is ignored."
            )
            continue
        _add_server(found, name, cast("dict[str, Any]", server), format, place)
    return found


def _read_object(file: Path) -> dict[str, Any]:
    """Raises `OSError` and `ValueError`."""
    text = read_file(file).decode("utf-8-sig")
    if file.suffix == ".toml":
        return _parse_toml(text)
    data: object = parse_json_with_comments(text) if text.strip() else {}
    if not isinstance(data, dict):
        raise ValueError("expected an object")
    return cast("dict[str, Any]", data)


def _parse_toml(text: str) -> dict[str, Any]:
    """Raises `ValueError`."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    reject_deep_nesting(data)
    return data


def _read_input_descriptions(inputs: object) -> dict[str, str]:
    entries = cast("list[object]", inputs) if isinstance(inputs, list) else []
    described = (cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict))
    return {str(entry.get("id")): str(entry.get("description") or entry.get("id")) for entry in described}


def find_server_format(file: Path) -> ServerFormat | None:
    """Return how a file at this path holds servers; None if it isn't one of other agents'."""
    return next((format for name, format in FORMATS.items() if str(file).endswith(f"/{name}")), None)


def read_server_tables(file: Path) -> tuple[Mapping[str, Mapping[str, Any]], list[str]]:
    """Return the servers of another agent's file as written, and its other keys. Raises `OSError`, `ValueError`."""
    format, data = find_server_format(file), _read_object(file)
    section = format.section if format else ""
    servers = cast("dict[str, object]", found) if isinstance(found := data.get(section), dict) else {}
    tables = {name: cast("dict[str, Any]", one) for name, one in servers.items() if isinstance(one, dict)}
    return tables, [key for key in data if key not in (section, "inputs", "$schema")]


def _add_server(
    found: ServerFile, name: str, server: dict[str, Any], format: ServerFormat, place: Place
) -> None:
    made = _convert_keys(found, name, server, format, place)
    problem = _convert_values(made, format, place)
    unset: list[str] = []
    if problem is None:
        expanded = _expand_variables(made, format, place, unset)
        asked = [text.removeprefix("input:") for text in unset if text.startswith("input:")]
        files = [text for text in unset if text.startswith("file:")]
        if asked:
            needed = (
                f"{place.inputs.get(name, name)!r} as {input_variable(name)}" for name in dict.fromkeys(asked)
            )
            problem = f"it asks for what environment variables can hold: set {', '.join(needed)}"
        elif files:
            problem = f"{{{files[0]}}} can't be read, or isn't a file of this repository"
        else:
            if unread := _merge_variables_of_file(expanded, place):
                found.unused[f"{format.section}.{name}.envFile"] = unread
            found.servers[name] = expanded
            found.unset += [text.removeprefix("env:") for text in unset]
    if problem is not None:
        found.problems.append(f"{found.path}: MCP server {name!r}: {problem}. The server is ignored.")


def _merge_variables_of_file(server: dict[str, Any], place: Place) -> str:
    """Put the variables of `envFile` below those of `env`, in place; return why they don't count, or nothing."""
    if (named := server.pop("envFile", None)) is None:
        return ""
    from dotenv import dotenv_values

    text = _read_text_in_folder(named, place) if isinstance(named, str) else None
    if text is None:
        return f"{named!r} can't be read, or isn't a file of this repository"
    found = {
        key: value or "" for key, value in dotenv_values(stream=StringIO(text), interpolate=False).items()
    }
    own: object = server.get("env") or {}
    server["env"] = {**found, **cast("dict[str, Any]", own)} if isinstance(own, dict) else own
    return ""


def _convert_keys(
    found: ServerFile, name: str, server: Mapping[str, Any], format: ServerFormat, place: Place
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in server.items():
        ours = format.keys.get(key)
        if ours is None:
            if key not in _INERT:
                found.unused[f"{format.section}.{name}.{key}"] = _NEVER.get(key, "")
        elif key == "enabled":
            made["disabled"] = not value if isinstance(value, bool) else value
        elif ours in ("env", "headers"):
            held = key in ("env_vars", "env_http_headers", "bearer_token_env_var")
            added = _fill_from_environment(key, value, found, place) if held else value
            both = [
                cast("dict[str, Any]", one) for one in (made.get(ours, {}), added) if isinstance(one, dict)
            ]
            made[ours] = {**both[0], **both[1]} if len(both) == 2 else value
        else:
            made[ours] = value
    return made


def _fill_from_environment(key: str, value: object, found: ServerFile, place: Place) -> dict[str, str]:
    """Return Codex's variables and headers whose values are in the environment."""
    wanted: dict[str, object] = {}
    if key == "env_vars" and isinstance(value, list):
        names = (
            cast("dict[str, object]", one).get("name") if isinstance(one, dict) else one
            for one in cast("list[object]", value)
        )
        wanted = {str(name): name for name in names}
    elif key == "env_http_headers" and isinstance(value, dict):
        wanted = cast("dict[str, object]", value)
    elif key == "bearer_token_env_var":
        wanted = {"Authorization": value}
    found.unset += [str(name) for name in wanted.values() if str(name) not in place.env]
    start = "Bearer " if key == "bearer_token_env_var" else ""
    return {ours: start + place.env[str(name)] for ours, name in wanted.items() if str(name) in place.env}


def _convert_values(made: dict[str, Any], format: ServerFormat, place: Place) -> str | None:
    """Convert transport, command, folder and time-out in place; return what can't be."""
    kind = made.get("type")
    if isinstance(kind, str) and kind not in _TRANSPORTS and kind != "remote":
        return f"type {kind!r} isn't known, expected stdio, http or sse"
    if kind == "remote":
        del made["type"]
    elif isinstance(kind, str):
        made["type"] = _TRANSPORTS[kind]
    elif "url" in made and format.bare_url is not None:
        made["type"] = format.bare_url
    command = made.get("command")
    if isinstance(command, list) and command:
        words, args = cast("list[Any]", command), made.get("args", [])
        made["command"] = words[0]
        made["args"] = [*words[1:], *cast("list[Any]", args)] if isinstance(args, list) else args
    seconds = made.get("timeout")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        made["timeout"] = seconds * format.timeout_unit_ms
    elif format.default_timeout_ms is not None and "timeout" not in made:
        made["timeout"] = format.default_timeout_ms
    folder = made.get("cwd", "")
    base = place.folder / (format.relative_to if folder else ".")
    moved = made.get("command") and base != place.workspace and isinstance(folder, str)
    if moved:
        made["cwd"] = place_server_folder(base, folder)
    return None


def place_server_folder(base: Path, folder: str) -> str:
    """Return the folder that a server starts in, below `base` unless it begins with `~` or a variable."""
    return folder if folder.startswith(("$", "{", "~")) else str(base / folder)


def _expand_variables(value: Any, format: ServerFormat, place: Place, unset: list[str]) -> Any:
    if isinstance(value, str) and format.variable is not None:

        def resolve(match: re.Match[str]) -> str:
            known = format.resolve(match[1], place)
            if known is None:
                unset.append(match[1])
            return match[0] if known is None else known

        return format.variable.sub(resolve, value)
    if isinstance(value, list):
        return [_expand_variables(one, format, place, unset) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            key: _expand_variables(one, format, place, unset)
            for key, one in cast("dict[str, Any]", value).items()
        }
    return value
