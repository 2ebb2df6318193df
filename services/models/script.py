"""script: replies from a file, for the offline demo, users' own tests and `--fake-responses`.

The format: `docs/models.md#scripted-replies`. The rule: `docs/internals.md#replies-by-ordinal`.

The reply is chosen by what the run has recorded, not by what this process did: by its ordinal per (agent, role). So a
killed run continues where it was. Entries with `error` belong to the reply after them: the attempts of a request get
them in order, each once per process; a run that was killed continues after those it had met.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from pydantic import Field, JsonValue, TypeAdapter, ValidationError, field_validator

from interlock.services.models.request import OWN_ID, Chunk, MessageCache, ModelRequest, ParsedCall
from interlock.state.errors import ModelAuthError, ModelError, RunError, UserError
from interlock.state.messages import Frozen, Message, Opaque, Usage, estimate_message_tokens
from interlock.state.text import estimate_tokens, first_validation_error


class ScriptedCall(Frozen):
    """A tool call by the model."""

    name: str
    args: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    id: str | None = None
    """Set only if the provider assigned one; default `<ordinal>.<index>`."""
    signature: str | None = None


class ScriptedError(Frozen):
    """A failing connection attempt."""

    status: int | None = Field(default=None, ge=400, le=599)
    """HTTP status; null: the connection is lost; 413: the request is too long for the model."""
    retry_after: float | None = Field(default=None, ge=0)
    """Delay in seconds requested by the server."""
    message: str = ""


class ScriptEntry(Frozen):
    """One entry of a script."""

    role: str = "main"
    agent: str = ""
    """Path of the sub-agent that asks."""
    ordinal: int | None = None
    """Written by recordings: if two entries share an ordinal, the later one wins."""
    expect: str | None = None
    """Regular expression to find in the new part of the request."""
    text: str = ""
    thought: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    error: ScriptedError | None = None
    usage: Usage | None = None
    """Null: estimated."""
    delay_s: float = Field(default=0, ge=0)
    """Seconds before the first chunk."""
    chunks: int = Field(default=1, ge=1)
    """Number of chunks in which the text is streamed."""
    signature: str | None = None
    finish_reason: str | None = "stop"
    """Null: the stream ends without one."""
    problem: str | None = None
    opaque: Opaque | None = None
    """Written by recordings: thinking that the model's provider wants back."""

    @field_validator("expect")
    @classmethod
    def _check_expect_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value


def read_script(path: Path) -> Sequence[ScriptEntry]:
    """Read all entries. Raises `UserError` naming the file, the entry (from 0) and the field."""
    return _parse_entries(path, _read_script_text(path))


def _read_script_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"Script {str(path)!r} can't be read: {error}. Expected a YAML or JSON file."
        ) from error


@lru_cache(maxsize=2)
def _parse_entries(path: Path, text: str) -> Sequence[ScriptEntry]:
    """Return a script's entries; kept, as each prompt of a conversation asks for them."""
    try:
        return TypeAdapter(list[ScriptEntry]).validate_python(_parse_yaml_or_json(path, text))
    except ValidationError as error:
        where, what = first_validation_error(error)
        raise UserError(
            f"Script {str(path)!r}, at {where or 'the top'!r}: {what}. Expected a list of replies "
            "{role, expect, text, thought, tool_calls, error, usage: {input, output, cached, thoughts}, delay_s}."
        ) from error


def _parse_yaml_or_json(path: Path, text: str) -> Any:
    import yaml

    try:
        if path.suffix == ".json":
            return json.loads(text)
        loader = cast(Any, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        loaded = yaml.load(text, Loader=loader)
        return [] if loaded is None else loaded
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"Script {str(path)!r} isn't valid YAML or JSON: {line}.") from error


def to_script_entry(message: Message, **more: Any) -> ScriptEntry:
    """Return the entry for a reply's message; `more` holds the entry's other fields."""
    calls = (
        ScriptedCall(
            name=call.name,
            args=call.args,
            id=None if OWN_ID.fullmatch(call.id) else call.id,
            signature=call.signature,
        )
        for call in message.tool_calls
    )
    said = {"text": message.text, "thought": message.thought or "", "tool_calls": tuple(calls)}
    kept = {"signature": message.signature, "opaque": message.opaque}
    return ScriptEntry.model_validate({**said, **kept, **more})


def append_script_entry(path: Path, entry: ScriptEntry) -> None:
    """Append one entry in a single write: the file stays a valid list, even after a kill."""
    with path.open("ab", buffering=0) as file:
        file.write(_dump_yaml_entry(_entry_to_json(entry)).encode())


def write_script(path: Path, entries: Sequence[ScriptEntry]) -> None:
    """Write a whole script as JSON, which is read and written much faster than YAML."""
    path.write_text(json.dumps([_entry_to_json(entry) for entry in entries]), encoding="utf-8")


def _entry_to_json(entry: ScriptEntry) -> dict[str, Any]:
    return entry.model_dump(mode="json", exclude_defaults=True)


def _dump_yaml_entry(fields: dict[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes readable texts, escaping what YAML would fold or mistake for a line break (U+0085)."""

    def text(dumper: Any, value: str) -> yaml.ScalarNode:
        readable = value.replace("\n", "").isprintable()
        style = "|" if readable and "\n" in value else None if readable else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump([fields], Dumper=Dumper, allow_unicode=True, sort_keys=False, width=100)


_CONVERSATION = "main"
"""The role every run needs; all others are helpers."""
_SHOWN = 600
"""Maximum characters of a request quoted in an error."""


class ScriptError(RunError):
    """The script has no answer to a request. Not a `ModelError`, so that no node takes it for a model failure.

    Helper roles that a script never mentions fail with `ModelError` instead: the run continues without them.
    """

    kind = "script"


class ScriptProvider:
    """Answers from one file, read at the first request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._replies: dict[tuple[str, str], list[list[ScriptEntry]]] | None = None
        self._met: dict[tuple[str, str, int], int] = {}
        self._sizes = MessageCache(estimate_message_tokens)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Play one entry. Raises `ScriptError` if there is none, or if the request doesn't match `expect`."""
        entry = self._take_next_entry(request)
        self._require_expected_request(entry, request)
        if entry.delay_s:
            await asyncio.sleep(entry.delay_s)
        if entry.error is not None:
            raise _to_model_error(entry.error, self._path)
        if entry.thought:
            yield Chunk(thought=entry.thought)
        for piece in _split_text(entry):
            yield Chunk(text=piece)
            await asyncio.sleep(0)
        yield self._build_last_chunk(entry, request)

    def _take_next_entry(self, request: ModelRequest) -> ScriptEntry:
        """Return the next unused error before the reply with this ordinal, else the reply."""
        key = (request.agent, request.role, request.ordinal)
        groups = self._load_reply_groups().get(key[:2], [])
        who = f"role {request.role!r}" + (f" of agent {request.agent!r}" if request.agent else "")
        if not groups and request.role != _CONVERSATION:
            raise ModelError(f"Script {str(self._path)!r} has no replies for {who}.")
        if request.ordinal >= len(groups):
            raise ScriptError(
                f"Script {str(self._path)!r} is used up: it has {len(groups)} replies for {who}, "
                f"reply {request.ordinal} was asked for (counted from 0). Add one to the file."
            )
        group = groups[request.ordinal]
        met = min(max(self._met.get(key, 0), request.attempt), len(group) - 1)
        self._met[key] = met + 1
        return group[met]

    def _load_reply_groups(self) -> dict[tuple[str, str], list[list[ScriptEntry]]]:
        if self._replies is None:
            self._replies = _group_errors_with_reply(read_script(self._path))
        return self._replies

    def _require_expected_request(self, entry: ScriptEntry, request: ModelRequest) -> None:
        if entry.expect is None:
            return
        text = text_after_last_answer(request)
        if re.search(entry.expect, text, re.DOTALL) is None:
            short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise ScriptError(
                f"Script {str(self._path)!r}, reply {request.ordinal} of role {request.role!r}: the request doesn't "
                f"match expect {entry.expect!r}; it says {short!r}."
            )

    def _build_last_chunk(self, entry: ScriptEntry, request: ModelRequest) -> Chunk:
        return Chunk(
            calls=tuple(ParsedCall(c.name, c.args, c.id, c.signature) for c in entry.tool_calls),
            signature=entry.signature,
            opaque=entry.opaque,
            finish_reason=entry.finish_reason,
            problem=entry.problem,
            usage=entry.usage or self._estimate_usage(entry, request),
        )

    def _estimate_usage(self, entry: ScriptEntry, request: ModelRequest) -> Usage:
        calls = "".join(f"{c.name}{c.args}" for c in entry.tool_calls)
        thoughts = estimate_tokens(entry.thought)
        tokens = estimate_tokens(entry.text) + estimate_tokens(calls)
        return Usage(input=sum(self._sizes(request.messages)), output=tokens + thoughts, thoughts=thoughts)


def text_after_last_answer(request: ModelRequest) -> str:
    """Return the text searched by `expect`: everything after the model's last answer, tool answers as `name: text`."""
    new: list[Message] = []
    for message in reversed(request.messages):
        if message.role in ("assistant", "system"):
            break
        new.append(message)
    return "\n".join(f"{m.name}: {m.text}" if m.role == "tool" else m.text for m in reversed(new))


def _group_errors_with_reply(
    entries: Sequence[ScriptEntry],
) -> dict[tuple[str, str], list[list[ScriptEntry]]]:
    """Group by (agent, role) and ordinal: errors followed by their reply. Trailing errors form their own group."""
    grouped: dict[tuple[str, str], list[list[ScriptEntry]]] = {}
    waiting: dict[tuple[str, str], list[ScriptEntry]] = {}
    for entry in entries:
        who = (entry.agent, entry.role)
        waiting.setdefault(who, []).append(entry)
        if entry.error is None:
            groups, group = grouped.setdefault(who, []), waiting.pop(who)
            if entry.ordinal is not None and entry.ordinal < len(groups):
                groups[entry.ordinal] = group  # recorded again after a kill: the later one is in the chain
            else:
                groups.append(group)
    for who, errors in waiting.items():
        grouped.setdefault(who, []).append(errors)
    return grouped


def _split_text(entry: ScriptEntry) -> list[str]:
    """Split the text into `chunks` pieces of about equal length."""
    size = -(-len(entry.text) // entry.chunks)
    return [entry.text[i : i + size] for i in range(0, len(entry.text), size)] if size else []


_TOO_LONG = 413


def _to_model_error(error: ScriptedError, path: Path) -> ModelError:
    """Build the error for a status; without one, a lost connection."""
    text = error.message or f"scripted by {path.name}"
    if error.status is None:
        return ModelError(f"The model could not be reached: {text}.", retryable=True)
    says = f"The model answered {error.status}: {text}."
    if error.status in (401, 403):
        return ModelAuthError(says, status=error.status)
    return ModelError(
        says,
        status=error.status,
        retryable=error.status in (408, 429, 499) or error.status >= 500,
        retry_after_s=error.retry_after,
        terminal=error.status == 404,
        overflow=error.status == _TOO_LONG,
    )
