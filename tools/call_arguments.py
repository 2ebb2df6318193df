"""call_arguments: a call's arguments under the tool's own names, and, of a call written in tags, typed."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import SkipJsonSchema

from interlock.state.messages import ToolDeclaration
from interlock.tools.tag_calls import TaggedCall, TagParser

_SAME = (
    ("file_path", "path", "file", "filename", "file_name", "filepath", "target_file", "absolute_path"),
    (
        *("dir_path", "path", "directory", "directory_path", "dir", "folder", "cwd", "workdir"),
        "working_directory",
    ),
    ("old_string", "old_text", "old_str", "old_code", "old", "search"),
    ("new_string", "new_text", "new_str", "new_code", "new", "replace", "replacement"),
    ("command", "cmd", "shell_command", "command_line", "bash"),
    ("content", "contents", "file_content", "file_contents", "file_text", "text", "code"),
    ("pattern", "regex", "regexp", "query", "search", "search_term", "glob"),
    ("query", "search_query", "search_term", "q", "pattern"),
    ("url", "uri", "link"),
    ("start_line", "line_start", "from_line"),
    ("end_line", "line_end", "to_line"),
    ("result", "answer", "summary"),
    ("plan_filename", "plan_file", "plan_path", "plan_name"),
    ("agent_name", "agent", "subagent", "subagent_type", "subagent_name"),
)
"""Names that models use for an argument, for tools that have one of them as their own."""
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_WORDS = {"true": True, "false": False}
_HIDDEN = cast("type[object]", SkipJsonSchema)
V = TypeVar("V")


@cache
def _args_models_by_tool() -> Mapping[str, type[BaseModel]]:
    """Return the args model of each tool, by its name and its aliases."""
    from interlock.tools.table import TOOLS

    return {name: tool.args for tool in TOOLS.values() for name in (tool.name, *tool.aliases)}


def _alternative_argument_names(fields: Collection[str]) -> frozenset[str]:
    """Return further names under which a tool with these arguments accepts them."""
    same = (name for group in _SAME if len({*group} & {*fields}) == 1 for name in group)
    return frozenset(same) - {*fields}


def normalize_argument_names(tool: str, args: Mapping[str, V]) -> dict[str, V]:
    """Return the arguments under the tool's own names. What could mean two of them, or is given twice, stays as
    it is."""
    if tool not in _args_models_by_tool() or (
        fields := {*_args_models_by_tool()[tool].model_fields}
    ).issuperset(args):
        return dict(args)
    meant = {
        name: name if name in fields else _match_field_or_empty(name, fields - args.keys()) for name in args
    }
    places = [*meant.values()]
    return {(own if own and places.count(own) == 1 else name): args[name] for name, own in meant.items()}


def _match_field_or_empty(name: str, fields: Collection[str]) -> str:
    """Return the one field that a name can mean; empty: there is none, or several."""
    name = _CAPITAL.sub("_", name).lower().replace("-", "_")
    if name in fields:
        return name
    found = {field for group in _SAME if name in group for field in group if field in fields}
    return found.pop() if len(found) == 1 else ""


def _visible_parameter_names(args_model: type[BaseModel]) -> list[str]:
    """Return the parameters that its schema has: building 40 schemas would add 2 % to a run's start."""
    fields = args_model.model_fields.items()
    return [f.alias or name for name, f in fields if not any(isinstance(m, _HIDDEN) for m in f.metadata)]


class TaggedTools:
    """The tools that a message may call by tags: those on offer, and others, whose calls are refused later."""

    def __init__(self, offered: Sequence[ToolDeclaration], withheld: Sequence[ToolDeclaration] = ()) -> None:
        self._schemas = {tool.name: tool.parameters for tool in (*withheld, *offered)}
        self._offered = {tool.name for tool in offered}

    def make_parser(self) -> TagParser:
        """Return a parser that knows these tools' parameters."""
        own = {name: _visible_parameter_names(args) for name, args in _args_models_by_tool().items()}
        known = own | {name: schema.get("properties", {}) for name, schema in self._schemas.items()}
        return TagParser(
            {name: _accepted_parameter_names(parameters) for name, parameters in known.items()}, self._offered
        )

    def resolve_call(self, call: TaggedCall) -> tuple[str, dict[str, JsonValue]]:
        """Return the call's tool and arguments, typed by its schema."""
        name, params = call
        if name == "read_file" and (files := _parse_file_elements(params)):
            if len(files) == 1:
                params = files[0]
            elif "read_many_files" in self._offered and all(len(file) == 1 for file in files):
                return "read_many_files", {"include": [file["path"] for file in files]}
        wrapped = "<path>" in params.get("file", "")
        schema = self._schemas.get(name) or _args_models_by_tool()[name].model_json_schema()
        return name, convert_arguments(params if wrapped else normalize_argument_names(name, params), schema)


_FILE = re.compile(r"\s*<file>\s*<path>([^<>]*)</path>\s*((?:<line_range>[^<>]*</line_range>\s*)?)</file>\s*")
_RANGE = re.compile(r"<line_range>\s*(\d{1,9})\s*-\s*(\d{1,9})\s*</line_range>\s*")


def _parse_file_elements(params: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the files of Roo Code's `<args><file>…</file>…</args>`, each with a line range at most; empty: it is
    none."""
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


def _accepted_parameter_names(parameters: Iterable[str]) -> frozenset[str]:
    """Return parameter names with those that models trained on other tools use, and `args` and `file`, which hold
    files."""
    names = frozenset(parameters)
    return names | {"args", "file"} | _alternative_argument_names(names)


def convert_arguments(params: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return values converted per the tool's JSON Schema; those that can't be stay text, which the tool rejects by
    name."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: _convert_value(text, properties.get(name, {})) for name, text in params.items()}


def _convert_value(text: str, schema: Mapping[str, Any]) -> JsonValue:
    """Return a text as a value of the schema's type; the text itself if it can't be one."""
    for option in schema.get("anyOf", [schema]):
        kind = option.get("type", "string")
        if kind == "string":
            return text
        if kind == "boolean" and text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if kind in ("integer", "number") and _INTEGER.fullmatch(text):
            return int(text)
        if kind in ("number", "array", "object") and (found := _parse_json_of_type(text, kind)) is not None:
            return found
    return text


def _parse_json_of_type(text: str, json_type: str) -> JsonValue:
    """Return the JSON value of a text if it is of this kind, else None."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    wanted = {"number": (int, float), "array": list, "object": dict}[json_type]
    return value if isinstance(value, wanted) and not isinstance(value, bool) else None
