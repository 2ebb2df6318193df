"""_json_schema: the JSON Schema of a model's next answer, narrowed by what the model has seen and done.

Small models invent the text of files, name lines that don't exist, and repeat themselves. The schema leaves no room for
that: only files that were read can be edited, at lines that they have; a tool isn't offered after a call that repeats
an earlier one without a change in between.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.state.names import WAIT

_ENDS = frozenset({"attempt_completion", "complete_task"})
"""Tools whose call ends the work: where one is offered, every message calls a tool."""
_READ, _EDIT = "read_file", "replace"
_WRITES = {"write_file": "file_path", "write_to_file": "path"}
_SEARCHES = frozenset({"grep_search", "search_files"})
_LOOKS = frozenset({_READ, "list_directory"}) | _SEARCHES
_RANGE = frozenset({"start_line", "end_line"})
_MOST_LINES, _MOST_IN_BLOCK = 300, 20
"""In longer files, and for longer blocks, `old_string` is free."""
_SHORT, _OPENS = 40, (":", "{")
"""Lines of a file that a small model can write anew, and what a line that opens a block ends with."""
_MOST_BESIDE = 200
"""Characters beside a call: before it calls anything, a small model tells at length what it has done."""


class _Seen:
    """What the model knows of files, and what it did since something may have changed."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.files: dict[str, str | None] = {}
        """Path → text; None: only a part is known."""
        self.needs_range = False
        """A file was shown in part, or a search named lines."""
        self.since: list[ToolCall] = []
        """Calls since one that may have changed something: an edit, or a command not seen in this list."""
        made = {call.id: call for message in messages for call in message.tool_calls}
        for message in messages:
            if message.role == "tool" and (call := made.get(message.tool_call_id or "")):
                self._add(call, message)

    def _add(self, call: ToolCall, result: Message) -> None:
        args = {name: value for name, value in call.args.items() if isinstance(value, str)}
        path = args.get(_WRITES.get(call.name, "file_path"), "")
        worked = result.status == "success"
        if call.name not in _LOOKS and not any(_same(call, earlier) for earlier in self.since):
            self.since = []
        self.since.append(call)
        if call.name == _READ and worked:
            whole = not result.text.startswith("[")
            self.needs_range |= not whole
            self.files[path] = result.text if whole else None
        elif call.name in _SEARCHES:
            self.needs_range |= worked
        elif call.name in _WRITES and worked:
            self.files[path], self.since = args.get("content"), []
        elif call.name == _EDIT and path in self.files:
            self.files[path] = _edited(self.files[path], args) if worked else None
            self.since = [] if worked else self.since

    @property
    def repeated(self) -> str | None:
        """The tool of the last call, if that call was made before and nothing has changed since."""
        if not self.since:
            return None
        *earlier, last = self.since
        return last.name if any(_same(last, call) for call in earlier) else None


def _same(call: ToolCall, other: ToolCall) -> bool:
    return (call.name, call.args) == (other.name, other.args)


def _edited(text: str | None, args: Mapping[str, str]) -> str | None:
    old, new = args.get("old_string", ""), args.get("new_string", "")
    return text.replace(old, new) if text is not None and text.count(old) == 1 else None


def schema_of(tools: Sequence[ToolDeclaration], messages: Sequence[Message] = ()) -> dict[str, Any]:
    """The JSON Schema of the next answer."""
    seen = _Seen(messages)
    offered = [tool for tool in tools if tool.name != seen.repeated]
    calls = [schema for tool in offered for schema in _call_schemas(tool, seen)]
    called = _closed(
        {"call": {"anyOf": calls}, "text": {"type": "string", "maxLength": _MOST_BESIDE}}, ["call"]
    )
    answers = [] if ends_with(tools) else [_closed({"text": {"type": "string"}})]
    return {"anyOf": [called, *answers]}


def _call_schemas(tool: ToolDeclaration, seen: _Seen) -> Iterator[dict[str, Any]]:
    known = {k: v for k, v in tool.parameters.get("properties", {}).items() if k != WAIT}
    if tool.name == _READ and not seen.needs_range:
        known = {k: v for k, v in known.items() if k not in _RANGE}
    required = tool.parameters.get("required", ())
    if tool.name != _EDIT:
        yield _call_schema(tool.name, known, required)
        return
    for path, text in seen.files.items():
        places = _places(text or "")
        old = {"old_string": {**known["old_string"], "enum": places}} if places else {}
        one = {**known, "file_path": {**known["file_path"], "enum": [path]}, **old}
        yield _call_schema(tool.name, one, required)


def _places(text: str) -> list[str]:
    """What can be replaced in a file: each line and block that stands there once.

    In a short file no line that opens a block: a small model prefers it, and then writes the block again with its
    fault. `write_file` changes such lines.
    """
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        return []
    if len(lines) <= _SHORT:
        return [
            line
            for line in lines
            if line.strip() and not line.rstrip().endswith(_OPENS) and text.count(line) == 1
        ]
    blocks = [block.strip("\n") for block in text.split("\n\n") if block.count("\n") < _MOST_IN_BLOCK]
    return [part for part in dict.fromkeys([*lines, *blocks]) if part.strip() and text.count(part) == 1]


def _call_schema(name: str, properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return _closed({"name": {"type": "string", "enum": [name]}, "args": _closed(properties, required)})


def _closed(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    """An object of these properties and no others; `required`: None means all."""
    needed = [*properties] if required is None else [*required]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def ends_with(tools: Sequence[ToolDeclaration]) -> str | None:
    """The tool whose call ends the work, if there is one."""
    return next((tool.name for tool in tools if tool.name in _ENDS), None)
