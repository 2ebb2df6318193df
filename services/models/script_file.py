"""script_file: a script as a file: YAML or JSON, a list of replies."""

import json
import re
from pathlib import Path
from typing import Any, cast

from pydantic import Field, JsonValue, TypeAdapter, ValidationError, field_validator

from interlock.state.errors import UserError
from interlock.state.messages import Frozen
from interlock.state.models import Usage


class ScriptedCall(Frozen):
    """A tool call that the model asks for."""

    name: str
    args: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    id: str | None = None
    """Only where the provider gave one; else `<ordinal>.<index>`."""
    signature: str | None = None


class ScriptedError(Frozen):
    """A connection attempt that fails."""

    status: int | None = Field(default=None, ge=400, le=599)
    """HTTP status; null: the connection is lost."""
    retry_after: float | None = Field(default=None, ge=0)
    """Seconds that the server asks to wait."""
    message: str = ""


class Scripted(Frozen):
    """One entry of a script."""

    role: str = "main"
    agent: str = ""
    """Path of the sub-agent that asks."""
    ordinal: int | None = None
    """Written by recordings: of two entries with one ordinal the later counts."""
    expect: str | None = None
    """Regular expression, searched in what is new in the request."""
    text: str = ""
    thought: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    error: ScriptedError | None = None
    usage: Usage | None = None
    """Null: estimated."""
    delay_s: float = Field(default=0, ge=0)
    """Seconds before the first piece."""
    chunks: int = Field(default=1, ge=1)
    """Pieces that the text is streamed in."""
    signature: str | None = None
    finish_reason: str | None = "stop"
    """Null: the stream ends without one."""
    problem: str | None = None

    @field_validator("expect")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value


_ENTRIES = TypeAdapter(list[Scripted])


def read_script(path: Path) -> list[Scripted]:
    """All entries. Raises `UserError` naming the file, the entry (from 0) and the field."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"Script {str(path)!r} can't be read: {error}. Expected a YAML or JSON file."
        ) from error
    try:
        return _ENTRIES.validate_python(_parsed(path, text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"Script {str(path)!r}, at {where or 'the top'!r}: {first['msg']}. Expected a list of replies "
            "{role, expect, text, thought, tool_calls, error, usage, delay_s}."
        ) from error


def _parsed(path: Path, text: str) -> Any:
    import yaml

    try:
        if path.suffix == ".json":
            return json.loads(text)
        loader = cast(Any, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        loaded = yaml.load(text, Loader=loader)
        return [] if loaded is None else loaded
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"Script {str(path)!r} is no valid YAML or JSON: {line}.") from error


def write_entry(path: Path, entry: Scripted) -> None:
    """Append one entry in one write: the file is a readable list after every reply, also after a kill."""
    fields = entry.model_dump(mode="json", exclude_defaults=True)
    with path.open("ab", buffering=0) as file:
        file.write(_dumped(fields).encode())


def _dumped(fields: dict[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Texts as people read them; what YAML would fold or mistake for a line break (U+0085) escaped."""

    def text(dumper: Any, value: str) -> yaml.ScalarNode:
        readable = value.replace("\n", "").isprintable()
        style = "|" if readable and "\n" in value else None if readable else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump([fields], Dumper=Dumper, allow_unicode=True, sort_keys=False, width=100)
