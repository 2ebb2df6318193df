"""json_calls: calls as JSON in a model's text: one object a message, or what models write by habit, and its schema.

The object has a `call`, and `text` beside it if the model likes; or only `text`, the answer. The schema of the next one
is narrowed by what the model has seen and done: small models invent the text of files, name lines that don't exist, and
repeat themselves. Only files that were read can be edited, at lines that they have, and never a test, unless the task
says so; a tool whose call was repeated isn't offered until something has changed. A call that writes a file names only
its path (`services/models/json_calls.py`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.state.names import WAIT
from interlock.tools.tag_calls import render_message_as_text

JsonCall = tuple[str, dict[str, Any]]
"""Tool and arguments."""


def tool_signature_and_description(tool: ToolDeclaration) -> str:
    """Return a tool as `- name(file_path: string, limit?: integer): what it does`."""
    required = tool.parameters.get("required", ())
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    left_out = (WAIT, *WRITES.get(tool.name, ("", ""))[1:])
    listed = ", ".join(
        f"{name}{'' if name in required else '?'}: {_schema_type_name(schema)}"
        for name, schema in properties.items()
        if name not in left_out
    )
    return f"- {tool.name}({listed}): {tool.description}"


def _schema_type_name(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "any"))
    return f"[{_schema_type_name(schema.get('items', {}))}]" if kind == "array" else kind


def render_message_as_json(message: Message) -> Message:
    """Return a message as the model itself writes it: an object with its call; results are texts of the user's."""
    if message.role != "assistant":
        return render_message_as_text(message)
    objects = [
        _render_json_object(message.text if not index else "", call)
        for index, call in enumerate(message.tool_calls)
    ]
    text = "\n".join(objects or [_render_json_object(message.text, None)])
    return message.model_copy(update={"content": text, "tool_calls": (), "signature": None})


def _render_json_object(text: str, call: ToolCall | None) -> str:
    made = {"call": {"name": call.name, "args": call.args}} if call else {}
    said = {"text": text} if text or not call else {}
    return json.dumps({**made, **said}, ensure_ascii=False)


_FENCED = re.compile(r"```\w*\s*\n(.*?)\n?[ \t]*```|<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


def split_json_calls(text: str, tools: Sequence[ToolDeclaration]) -> tuple[str, tuple[JsonCall, ...]]:
    """Separate a text from the calls in it: the whole of it, or each in a fence."""
    names = {tool.name for tool in tools}
    if bare := parse_call_object(parse_json_object(text), names):
        return "", (bare,)
    calls: list[JsonCall] = []

    def taken(match: re.Match[str]) -> str:
        call = parse_call_object(parse_json_object(match[1] or match[2] or ""), names)
        if call is None:
            return match[0]
        calls.append(call)
        return ""

    rest = _FENCED.sub(taken, text)
    return (rest.strip() if calls else rest), tuple(calls)


def parse_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is, else None."""
    try:
        found = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def parse_call_object(value: Any, tool_names: set[str]) -> JsonCall | None:
    """Return the call in a value `{"name": …, "args" | "arguments" | "parameters": {…}}`, or inside `function` or
    `call`; else None."""
    if not isinstance(value, dict):
        return None
    found = cast(dict[str, Any], value)
    inner = found.get("function", found.get("call"))
    if isinstance(inner, dict):
        found = cast(dict[str, Any], inner)
    name = found.get("name", found.get("tool"))
    args = next((found[key] for key in ("args", "arguments", "parameters", "input") if key in found), None)
    args = parse_json_object(args) if isinstance(args, str) else args
    if not isinstance(name, str) or name not in tool_names or not isinstance(args, dict):
        return None
    return name, cast(dict[str, Any], args)


_ENDS = frozenset({"attempt_completion", "complete_task"})
"""Tools whose call ends the work: where one is offered, every message calls a tool."""
_READ, _EDIT = "read_file", "replace"
WRITES: Mapping[str, tuple[str, str]] = {
    "write_file": ("file_path", "content"),
    "write_to_file": ("path", "content"),
}
"""Tools that write a whole file → their arguments for its path and its text."""
_SEARCHES = frozenset({"grep_search", "search_files"})
_LOOKS = frozenset({_READ, "list_directory"}) | _SEARCHES
_FAILED = re.compile(r"^(?:Exit Code|Signal): ", re.MULTILINE)
"""A command that failed; its call succeeds nevertheless."""
_RANGE = frozenset({"start_line", "end_line"})
MOST_WHOLE = 80
"""Lines of a file that is written anew: as code a 1.5B model found 6 of ten repairs at once, inside JSON 2 or 3."""
MOST_LINES, _MOST_IN_BLOCK = 300, 20
"""In longer files, and for longer blocks, `old_string` is free."""
_MOST_BESIDE = 200
"""Characters beside a call: before it calls anything, a small model tells at length what it has done."""


class RepairFileRules(Protocol):
    """The files of a workspace, as a repair sees them."""

    def is_test(self, path: str) -> bool:
        """Return whether a file is a test or decides which tests run."""
        ...

    def is_test_change_requested(self, task: str) -> bool:
        """Return whether a task says that tests are to be written or changed."""
        ...

    def find_modules_to_repair(self, output: str, tests: Mapping[str, str]) -> Sequence[str]:
        """Return the repository's own modules that an output names, and those that tests (path → text) import."""
        ...


class AllowedWrites(NamedTuple):
    """What a call may write as a whole."""

    paths: tuple[str, ...] = ()
    """The only ones, the likeliest first; empty: any that isn't `spared`."""
    others_allowed: bool = True
    """Others, too, that aren't `spared`: the task may be about a new file."""
    read_first: tuple[str, ...] = ()
    """Nothing may be written before one of these was read."""
    is_protected: Callable[[str], bool] = lambda _: False
    """Whether a file may not be written."""


_NEW = re.compile(r"\b(?:write|create|add|new|generate|make a)\b", re.IGNORECASE)


def allowed_writes(messages: Sequence[Message], files: RepairFileRules | None) -> AllowedWrites:
    """Return what the next call may write: not the test that fails, but what it tests."""
    task = "\n".join(m.text for m in messages if m.role == "user" and m.origin in ("person", "agent"))
    if files is None or files.is_test_change_requested(task):
        return AllowedWrites()
    seen = ModelKnowledge(messages)
    tests = {path: text or "" for path, text in seen.files.items() if files.is_test(path)}
    known = [path for path in seen.files if path not in tests]
    named = files.find_modules_to_repair(seen.last_output[1] if seen.last_output else "", tests)
    first = [path for path in named if path in known]
    unread = () if known else tuple(named)
    more = not known or _NEW.search(task) is not None
    return AllowedWrites(tuple(dict.fromkeys([*first, *known])), more, unread, files.is_test)


class ModelKnowledge:
    """What the model knows of files, and what it did since something may have changed."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.files: dict[str, str | None] = {}
        """Path → text; None: only a part is known."""
        self.needs_range = False
        """A file was shown in part, or a search named lines."""
        self.last_output: tuple[str, str] | None = None
        """The last command and what it printed, if no file was changed since."""
        self.calls_since_change: list[ToolCall] = []
        """Calls since one that may have changed something: an edit, or a command that worked and isn't in this list."""
        made = {call.id: call for message in messages for call in message.tool_calls}
        for message in messages:
            if message.role == "tool" and (call := made.get(message.tool_call_id or "")):
                self._record_result(call, message)

    def _record_result(self, call: ToolCall, result: Message) -> None:
        args = {name: value for name, value in call.args.items() if isinstance(value, str)}
        where, what = WRITES.get(call.name, ("file_path", ""))
        path = args.get(where, "")
        worked = result.status == "success"
        may_change = worked and call.name not in _LOOKS | _ENDS and not _FAILED.search(result.text)
        if may_change and not any(_is_same_call(call, earlier) for earlier in self.calls_since_change):
            self.calls_since_change = []
        self.calls_since_change.append(call)
        if call.name == _READ and worked:
            whole = not result.text.startswith("[")
            self.needs_range |= not whole
            self.files[path] = result.text if whole else None
        elif call.name in _SEARCHES:
            self.needs_range |= worked
        elif call.name in WRITES and worked:
            self.files[path] = args.get(what)
            self.calls_since_change, self.last_output = [], None
        elif call.name == _EDIT and path in self.files:
            self.files[path] = _apply_edit_if_unique(self.files[path], args) if worked else None
            self.calls_since_change, self.last_output = (
                ([], None) if worked else (self.calls_since_change, self.last_output)
            )
        elif "command" in args:
            self.last_output = (args["command"], result.text)

    @property
    def repeated_tool_names(self) -> set[str]:
        """The tools of calls that were made twice although nothing has changed since."""
        calls = self.calls_since_change
        return {
            call.name
            for n, call in enumerate(calls)
            if any(_is_same_call(call, other) for other in calls[:n])
        }


def _is_same_call(call: ToolCall, other: ToolCall) -> bool:
    return (call.name, call.args) == (other.name, other.args)


def _apply_edit_if_unique(text: str | None, args: Mapping[str, str]) -> str | None:
    """Return the text after an edit that has one place in it, else None."""
    old, new = args.get("old_string", ""), args.get("new_string", "")
    return text.replace(old, new) if text is not None and text.count(old) == 1 else None


def build_answer_schema(
    tools: Sequence[ToolDeclaration], messages: Sequence[Message] = (), files: RepairFileRules | None = None
) -> dict[str, Any]:
    """Return the JSON Schema of the next answer."""
    seen, may = ModelKnowledge(messages), allowed_writes(messages, files)
    offered = [tool for tool in tools if tool.name not in seen.repeated_tool_names]
    calls = [schema for tool in offered for schema in _tool_call_schemas(tool, seen, may)]
    called = _closed_object_schema(
        {"call": {"anyOf": calls}, "text": {"type": "string", "maxLength": _MOST_BESIDE}}, ["call"]
    )
    answers = (
        [] if find_completion_tool_name(tools) else [_closed_object_schema({"text": {"type": "string"}})]
    )
    return {"anyOf": [called, *answers]}


def _tool_call_schemas(
    tool: ToolDeclaration, knowledge: ModelKnowledge, allowed: AllowedWrites
) -> Iterator[dict[str, Any]]:
    """Yield the schemas of calls of a tool that the model may make next."""
    known = {k: v for k, v in tool.parameters.get("properties", {}).items() if k != WAIT}
    if tool.name == _READ and not knowledge.needs_range:
        known = {k: v for k, v in known.items() if k not in _RANGE}
    required = tool.parameters.get("required", ())
    if tool.name in WRITES:
        path, _ = WRITES[tool.name]
        if allowed.paths:
            yield _named_call_schema(tool.name, {path: {**known[path], "enum": [*allowed.paths]}}, [path])
        if allowed.others_allowed and not allowed.read_first:
            yield _named_call_schema(tool.name, {path: known[path]}, [path])
        return
    if tool.name == _READ and allowed.read_first:
        known = {**known, "file_path": {**known["file_path"], "enum": [*allowed.read_first]}}
    if tool.name != _EDIT:
        yield _named_call_schema(tool.name, known, required)
        return
    for path, text in knowledge.files.items():
        if allowed.is_protected(path) or (text is not None and text.count("\n") < MOST_WHOLE):
            continue
        places = _unique_lines_and_blocks(text or "")
        old = {"old_string": {**known["old_string"], "enum": places}} if places else {}
        one = {**known, "file_path": {**known["file_path"], "enum": [path]}, **old}
        yield _named_call_schema(tool.name, one, required)


def _unique_lines_and_blocks(text: str) -> list[str]:
    """Return each line and block that stands in a short file once."""
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        return []
    blocks = [block.strip("\n") for block in text.split("\n\n") if block.count("\n") < _MOST_IN_BLOCK]
    return [part for part in dict.fromkeys([*lines, *blocks]) if part.strip() and text.count(part) == 1]


def _named_call_schema(name: str, properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return _closed_object_schema(
        {"name": {"type": "string", "enum": [name]}, "args": _closed_object_schema(properties, required)}
    )


def _closed_object_schema(
    properties: Mapping[str, Any], required: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others; `required`: None means all."""
    needed = [*properties] if required is None else [*required]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def find_completion_tool_name(tools: Sequence[ToolDeclaration]) -> str | None:
    """Return the name of the tool whose call ends the work, if one is offered."""
    return next((tool.name for tool in tools if tool.name in _ENDS), None)
