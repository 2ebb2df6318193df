"""_argument_names: names that models use for an argument instead of the tool's own; the tool's own count."""

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import TypeVar

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
"""Names that mean the same, for tools that have one of them."""
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
V = TypeVar("V")


@cache
def own_fields() -> Mapping[str, frozenset[str]]:
    """Tool, or its other name → its arguments."""
    from interlock.tools.table import TOOLS

    return {
        name: frozenset(tool.args.model_fields)
        for tool in TOOLS.values()
        for name in (tool.name, *tool.aliases)
    }


def other_names(fields: Collection[str]) -> frozenset[str]:
    """Further names under which a tool with these arguments accepts them."""
    same = (name for group in _SAME if len({*group} & {*fields}) == 1 for name in group)
    return frozenset(same) - {*fields}


def own_names(tool: str, args: Mapping[str, V]) -> dict[str, V]:
    """The arguments under the tool's own names. What could mean two of them, or is given twice, stays as it is."""
    fields = own_fields().get(tool)
    if fields is None or fields.issuperset(args):
        return dict(args)
    meant = {name: name if name in fields else _meant(name, fields - args.keys()) for name in args}
    places = [*meant.values()]
    return {(own if own and places.count(own) == 1 else name): args[name] for name, own in meant.items()}


def _meant(name: str, fields: Collection[str]) -> str:
    """The one field that a name can mean; empty: there is none, or several."""
    name = _CAPITAL.sub("_", name).lower().replace("-", "_")
    if name in fields:
        return name
    found = {field for group in _SAME if name in group for field in group if field in fields}
    return found.pop() if len(found) == 1 else ""
