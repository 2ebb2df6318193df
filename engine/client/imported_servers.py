"""imported_servers: MCP servers of another agent's home folder, as settings of ours that hold no secrets.

Values of `env`, of headers and of addresses, and what stands after an option such as `--api-key`, become `${NAME}`,
unless a value can be read by anybody: a number, a yes or no, a path, an address without a key in it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from interlock.services.config.server_files import FORMATS, Place, read_server_file
from interlock.services.secrets.environment import is_secret_name
from interlock.services.secrets.redaction import find_secret_shapes
from interlock.state.settings import Settings
from interlock.state.text import first_validation_error

CLAUDE, CODEX, OPENCODE, ROO = ".mcp.json", ".codex/config.toml", "opencode.json", ".roo/mcp.json"
"""Programs' names in `FORMATS`."""
_VARIABLE = re.compile(r"\$\{(\w+)(:-[^}]*)?\}")
_OPEN_WORD = re.compile(
    r"true|false|yes|no|on|off|none|null|-?\d{1,6}(\.\d+)?|debug|info|warn(ing)?|error|production|development|test|stdio|http"
    r"|[a-z]{2}([-_][A-Z]{2})?(\.UTF-8)?|utf-?8",
    re.IGNORECASE,
)
_OPEN_HEADERS = frozenset(
    {"accept", "accept-language", "content-type", "user-agent", "x-mcp-readonly", "x-mcp-toolsets"}
)
_BEFORE_SECRET = re.compile(r"(?i)(bearer|token|basic|apikey|api-key)\s+")
_LONG_WORD = re.compile(r"[A-Za-z0-9_\-+=.~]{16,}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")


class ImportedServer(NamedTuple):
    name: str
    settings: dict[str, Any]
    variables: tuple[str, ...]
    """Named in the settings."""
    hidden: tuple[str, ...]
    """Those of them that stand for a value of the file."""
    problem: str = ""
    """Why it can't be used; empty: it can."""


class _AnyVariable(dict[str, str]):
    """An environment in which each variable stands for its own name."""

    def __missing__(self, name: str) -> str:
        return f"${{{name}}}"

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002 - as a mapping's
        return self[key]


def read_imported_servers(file: Path, format_name: str, home: Path) -> Iterator[ImportedServer]:
    """Yield the servers of a file in one program's format, without secrets. Never raises."""
    format = FORMATS[format_name]
    if format_name in (CLAUDE, OPENCODE):
        format = replace(format, resolve=_keep_variable)
    found = read_server_file(file, format, Place(home, _AnyVariable(), home, home))
    if found is None:
        return
    values: dict[str, str] = {}
    for name, server in found.servers.items():
        made = _SecretFree(name, values)
        settings = made.hide_secrets(server)
        problem = _find_problem(name, settings, home)
        yield ImportedServer(
            name, settings, tuple(dict.fromkeys(made.variables)), tuple(made.hidden), problem
        )
    for text in found.problems:
        shown = text.removeprefix(f"{file}: ").removesuffix(" The server is ignored.")
        yield ImportedServer("", {}, (), (), shown)


def _keep_variable(text: str, place: Place) -> str:  # noqa: ARG001 - as a format's
    """Return a variable in our spelling; a file that holds a secret, as a variable that isn't named yet."""
    kind, sign, name = text.partition(":")
    if sign and name.startswith("-") and not _is_open(name[1:]):  # ${NAME:-SECRET}
        return f"${{{kind}}}"
    return "${}" if kind == "file" else f"${{{name}}}" if kind == "env" else f"${{{text}}}"


def _find_problem(name: str, settings: dict[str, Any], folder: Path) -> str:
    from interlock.services.mcp import build_server_specs

    try:
        made = Settings.model_validate({"mcpServers": {name: settings}})
    except ValidationError as error:
        where, what = first_validation_error(error)
        return f"{where.removeprefix(f'mcpServers.{name}.')}: {what}"
    return build_server_specs(made, folder)[name].problem


class _SecretFree:
    """Replaces the secrets of one server."""

    def __init__(self, server: str, values: dict[str, str]) -> None:
        """`values`: variable → the value that it stands for, of all servers."""
        self._values = values
        self._prefix = _NOT_IN_NAMES.sub("_", server).strip("_").upper() or "SERVER"
        self.variables: list[str] = []
        self.hidden: list[str] = []

    def hide_secrets(self, server: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in server.items():
            if key == "disabled" and not value:
                continue
            if key == "env" and isinstance(value, dict):
                table = cast("dict[str, Any]", value)
                made[key] = {name: self._env_value(name, one) for name, one in table.items()}
            elif key == "headers" and isinstance(value, dict):
                table = cast("dict[str, Any]", value)
                made[key] = {name: self._header_value(name, one) for name, one in table.items()}
            elif key == "args" and isinstance(value, list):
                made[key] = [*self._arguments(cast("list[Any]", value))]
            else:
                made[key] = self._other_value(key, value)
        return made

    def _env_value(self, name: str, value: Any) -> Any:
        if not isinstance(value, str) or self._note_variables(value):
            return value
        return value if not is_secret_name(name) and _is_open(value) else self._variable(name, value)

    def _header_value(self, name: str, value: Any) -> Any:
        if not isinstance(value, str) or name.casefold() in _OPEN_HEADERS or self._note_variables(value):
            return value
        before = _BEFORE_SECRET.match(value)
        kind = "TOKEN" if name.casefold() == "authorization" else name
        return (before[0] if before else "") + self._variable(f"{self._prefix}_{kind}", value)

    def _arguments(self, arguments: list[Any]) -> Iterator[Any]:
        option = ""
        for value in arguments:
            if not isinstance(value, str):
                yield value
                continue
            name, sign, after = value.partition("=")
            if value.startswith("-"):
                hides = sign and (is_secret_name(name.lstrip("-")) or not _is_open_text(after))
                yield f"{name}={self._argument(name, after)}" if hides else value
                option = "" if sign else value
                continue
            yield self._argument(option, value)
            option = ""

    def _argument(self, option: str, value: str) -> str:
        """Return the value of an option, or a word."""
        if self._note_variables(value):
            return value
        name, sign, after = value.partition("=")
        if sign and re.fullmatch(r"[A-Za-z_]\w*", name):  # -e NAME=VALUE
            return f"{name}={self._env_value(name, after)}"
        header, colon, rest = value.partition(":")
        if option in ("--header", "-H") and colon:
            return f"{header}: {self._header_value(header, rest.strip())}"
        if option and is_secret_name(option.lstrip("-")):
            return self._variable(f"{self._prefix}_{option.lstrip('-')}", value)
        return self._other_text(option.lstrip("-") or "ARGUMENT", value)

    def _other_value(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            return {name: self._other_value(name, one) for name, one in table.items()}
        if isinstance(value, list):
            return [self._other_value(key, one) for one in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        if is_secret_name(key):
            return value if self._note_variables(value) else self._variable(f"{self._prefix}_{key}", value)
        return self._other_text(key, value)

    def _other_text(self, key: str, value: str) -> str:
        if "://" in value:
            return self._address(value)
        self._note_variables(value)
        for span in sorted(find_secret_shapes(value), reverse=True):
            secret = value[span.start : span.end]
            value = value[: span.start] + self._variable(f"{self._prefix}_{key}", secret) + value[span.end :]
        return self._variable(f"{self._prefix}_{key}", value) if _looks_random(value) else value

    def _address(self, value: str) -> str:
        """Return an address without a password, and without keys in its path and its parameters."""
        try:
            parts = urlsplit(value)
        except ValueError:
            return self._variable(f"{self._prefix}_URL", value)
        text = value
        if parts.password and not _VARIABLE.search(parts.password):
            hidden = self._variable(f"{self._prefix}_PASSWORD", parts.password)
            text = text.replace(f":{parts.password}@", f":{hidden}@", 1)
        elif parts.username and (any(find_secret_shapes(parts.username)) or _looks_random(parts.username)):
            hidden = self._variable(f"{self._prefix}_TOKEN", parts.username)
            text = text.replace(f"{parts.username}@", f"{hidden}@", 1)
        for pair in parts.query.split("&"):
            name, _, one = pair.partition("=")
            if (
                one
                and not _VARIABLE.search(one)
                and (is_secret_name(name) or not _is_open_text(unquote(one)))
            ):
                text = text.replace(pair, f"{name}={self._variable(f'{self._prefix}_{name}', one)}", 1)
        for segment in parts.path.split("/"):
            if _looks_random(segment):
                hidden = self._variable(f"{self._prefix}_KEY", segment)
                text = text.replace(f"/{segment}", f"/{hidden}", 1)
        self.variables += _names_without_default(text)
        return text

    def _note_variables(self, value: str) -> bool:
        """Note the variables in a text; return whether it holds nothing else that could be a secret."""
        if value == "${}":
            return False
        self.variables += _names_without_default(value)
        rest = _BEFORE_SECRET.sub("", _VARIABLE.sub("", value)).strip()
        return "${" in value and rest != value.strip() and (not rest or _is_open(rest))

    def _variable(self, name: str, value: str) -> str:
        """Return a variable in place of a value; none that stands for another value."""
        made = _NOT_IN_NAMES.sub("_", name).strip("_").upper() or f"{self._prefix}_KEY"
        made = f"_{made}" if made[0].isdigit() else made
        if self._values.setdefault(made, value) != value:
            made = f"{self._prefix}_{made.removeprefix(f'{self._prefix}_')}"
            while self._values.setdefault(made, value) != value:
                made += "_2"
        self.variables.append(made)
        self.hidden.append(made)
        return f"${{{made}}}"


def _names_without_default(text: str) -> list[str]:
    return [found[1] for found in _VARIABLE.finditer(text) if found[2] is None]


def _is_open(value: str) -> bool:
    """Return whether a value of a variable is none that somebody would keep to themselves."""
    return bool(_OPEN_WORD.fullmatch(value)) or (
        value.startswith(("/", "~/", "./", "http://", "https://", "ws://", "wss://")) and _is_open_text(value)
    )


def _is_open_text(value: str) -> bool:
    if "://" in value:
        parts = urlsplit(value)
        if parts.password or parts.query or "@" in parts.netloc:
            return False
    return not any(find_secret_shapes(value)) and not any(map(_looks_random, re.split(r"[/\s,:?&=@]", value)))


def _looks_random(word: str) -> bool:
    """Return whether a word looks like a key: long, with letters and digits mixed."""
    if not _LONG_WORD.fullmatch(word) or _VARIABLE.search(word):
        return False
    changes = sum(a.isdigit() != b.isdigit() for a, b in pairwise(word))
    return (
        changes >= 3
        and any(c.isalpha() for c in word)
        and not re.fullmatch(r"[\w.+-]*@?\d+(\.\d+)+[\w.-]*", word)
    )
