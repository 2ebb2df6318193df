"""_tagged_calls: the tools that a model may call by tags, and their arguments out of a call's text."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import SkipJsonSchema

from interlock.state.messages import ToolDeclaration
from interlock.tools._argument_names import other_names, own_names
from interlock.tools._tags import TaggedCall, TagParser

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_WORDS = {"true": True, "false": False}
_HIDDEN = cast("type[object]", SkipJsonSchema)


@cache
def _own() -> Mapping[str, type[BaseModel]]:
    from interlock.tools.table import TOOLS

    return {name: tool.args for tool in TOOLS.values() for name in (tool.name, *tool.aliases)}


def _in_schema(args: type[BaseModel]) -> list[str]:
    """The parameters that its schema has: building 40 schemas would add 2 % to a run's start."""
    fields = args.model_fields.items()
    return [f.alias or name for name, f in fields if not any(isinstance(m, _HIDDEN) for m in f.metadata)]


class TaggedTools:
    """The tools that a message may call by tags: those on offer, and others, whose calls are refused later."""

    def __init__(self, offered: Sequence[ToolDeclaration], withheld: Sequence[ToolDeclaration] = ()) -> None:
        self._schemas = {tool.name: tool.parameters for tool in (*withheld, *offered)}
        self._offered = {tool.name for tool in offered}

    def parser(self) -> TagParser:
        own = {name: _in_schema(args) for name, args in _own().items()}
        known = own | {name: schema.get("properties", {}) for name, schema in self._schemas.items()}
        return TagParser({name: _names(parameters) for name, parameters in known.items()}, self._offered)

    def read(self, call: TaggedCall) -> tuple[str, dict[str, JsonValue]]:
        """The call's tool and arguments, typed by its schema."""
        name, params = call
        if name == "read_file" and (files := _files(params)):
            if len(files) == 1:
                params = files[0]
            elif "read_many_files" in self._offered and all(len(file) == 1 for file in files):
                return "read_many_files", {"include": [file["path"] for file in files]}
        wrapped = "<path>" in params.get("file", "")
        schema = self._schemas.get(name) or _own()[name].model_json_schema()
        return name, arguments(params if wrapped else own_names(name, params), schema)


_FILE = re.compile(r"\s*<file>\s*<path>([^<>]*)</path>\s*((?:<line_range>[^<>]*</line_range>\s*)?)</file>\s*")
_RANGE = re.compile(r"<line_range>\s*(\d{1,9})\s*-\s*(\d{1,9})\s*</line_range>\s*")


def _files(params: Mapping[str, str]) -> list[dict[str, str]]:
    """The files of Roo Code's `<args><file>…</file>…</args>`, each with a line range at most; empty: it is none."""
    found: list[dict[str, str]] = []
    text, at = params.get("args", ""), 0
    while at < len(text):
        file = _FILE.match(text, at) if len(params) == 1 else None
        lines = _RANGE.fullmatch(file[2]) if file else None
        if file is None or (file[2] and not lines):
            return []
        ends = {"start_line": lines[1], "end_line": lines[2]} if lines else {}
        found.append({"path": file[1].strip(), **ends})
        at = file.end()
    return found


def _names(parameters: Iterable[str]) -> frozenset[str]:
    """Includes what models trained on other tools use whatever they are told, and `args` and `file` around several
    files, of which none may be dropped unnoticed."""
    names = frozenset(parameters)
    return names | {"args", "file"} | other_names(names)


def arguments(params: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Values converted per the tool's JSON Schema; those that can't be stay text, which the tool rejects by name."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: _typed(text, properties.get(name, {})) for name, text in params.items()}


def _typed(text: str, schema: Mapping[str, Any]) -> JsonValue:
    for option in schema.get("anyOf", [schema]):
        kind = option.get("type", "string")
        if kind == "string":
            return text
        if kind == "boolean" and text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if kind in ("integer", "number") and _INTEGER.fullmatch(text):
            return int(text)
        if kind in ("number", "array", "object") and (found := _json(text, kind)) is not None:
            return found
    return text


def _json(text: str, kind: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    wanted = {"number": (int, float), "array": list, "object": dict}[kind]
    return value if isinstance(value, wanted) and not isinstance(value, bool) else None
