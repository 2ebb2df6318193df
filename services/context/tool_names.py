"""tool_names: names that other programs' files give to tools, as ours."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from interlock.services.context.front_matter import to_list
from interlock.state.names import ELSEWHERE, mcp_tool_name
from interlock.tools.table import ALIASES, TOOLS

_SEARCH = ("grep_search", "glob", "list_directory", "codebase_search")
_EDIT = ("replace", "write_file")
_SHELL = ("run_shell_command",)
_READ = ("read_file", "read_many_files")
_OUR_TOOLS_BY_NAME: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *(
                "bash",
                "shell",
                "execute",
                "terminal",
                "powershell",
                "local_shell",
                "shell_command",
                "runcommands",
            ),
            *("runinterminal", "run_in_terminal", "runincommandline", "runtasks", "runtests", "exec"),
        ),
        _SHELL,
    ),
    **dict.fromkeys(("read", "view", "readfile", "open", "cat", "notebookread", "read_files"), _READ),
    **dict.fromkeys(
        (
            *(
                "edit",
                "editfiles",
                "apply_patch",
                "patch",
                "str_replace",
                "str_replace_editor",
                "editnotebook",
            ),
            *("edit_file", "insert_edit_into_file", "replace_string_in_file"),
        ),
        _EDIT,
    ),
    **dict.fromkeys(
        ("write", "create", "createfile", "create_file", "new", "createdirectory"), ("write_file",)
    ),
    **dict.fromkeys(
        (
            "search",
            "codebase",
            "textsearch",
            "filesearch",
            "grep",
            "find",
            "semantic_search",
            "searchresults",
        ),
        _SEARCH,
    ),
    **dict.fromkeys(("glob", "ls", "list", "listdirectory", "list_dir"), ("glob", "list_directory")),
    **dict.fromkeys(("web", "fetch", "webfetch", "fetch_webpage"), ("web_fetch",)),
    **dict.fromkeys(("websearch", "googlesearch", "google_web_search"), ("web_search",)),
    **dict.fromkeys(
        ("todo", "todos", "todowrite", "todoread", "update_plan", "manage_todo_list"), ("write_todos",)
    ),
    **dict.fromkeys(("agent", "task", "runsubagent", "custom-agent"), ("invoke_agent",)),
    **dict.fromkeys(("askuserquestion", "question", "askquestions"), ("ask_user",)),
    "skill": ("activate_skill", "find_skills"),
    "exitplanmode": ("exit_plan_mode",),
}
"""Name in lower case → our tools. Spellings that Claude Code and gemini-cli take are in `state/names.py`."""
_VSCODE_GROUPS = frozenset(
    {"execute", "read", "edit", "search", "web", "agent", "todo", "todos", "vscode", "new"}
)
"""First part of a name in VS Code that isn't a server's: `edit/editFiles`."""
_SERVER = re.compile(r"mcp__(?P<server>.+?)(?:__(?P<tool>.+))?")


def resolve_tool_names(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return our names of tools, and the names that no tool here has. A server's tools are `mcp_SERVER_TOOL`."""
    found: dict[str, None] = {}
    unknown: list[str] = []
    for name in names:
        if ours := _resolve_tool_name(name.partition("(")[0].strip()):
            found |= dict.fromkeys(ours)
        elif name not in ELSEWHERE:
            unknown.append(name)
    return [*found], unknown


class ToolFields(NamedTuple):
    """What a skill or command says of tools."""

    denied: tuple[str, ...]
    """Our names of tools that may not be called."""
    allowed: tuple[str, ...]
    """What may be called without asking, in Claude Code's words; empty if the file isn't the user's own."""
    notes: list[str]
    """What doesn't count, for people."""


_BETWEEN_TOOLS = ", \t\n"


def read_tool_fields(fields: Mapping[str, Any], *, in_home: bool) -> ToolFields:
    """Return what a skill or command forbids and allows. `in_home`: it is the user's own file."""
    notes: list[str] = []
    allowed = to_list(fields.get("allowed-tools"), separators=_BETWEEN_TOOLS)
    if allowed and not in_home:
        notes.append(f"allowed-tools of a repository grants nothing: {', '.join(allowed)}")
    denied, unknown = resolve_tool_names(to_list(fields.get("disallowed-tools"), separators=_BETWEEN_TOOLS))
    if unknown:
        notes.append(f"disallowed-tools names no tool here: {', '.join(unknown)}")
    return ToolFields(tuple(denied), tuple(allowed) if in_home else (), notes)


def _resolve_tool_name(name: str) -> tuple[str, ...]:
    if name in TOOLS or (name.startswith("mcp_") and not name.startswith("mcp__")):
        return (name,)
    if name in ALIASES:
        return (ALIASES[name],)
    if known := _OUR_TOOLS_BY_NAME.get(name.casefold()):
        return known
    if server := _SERVER.fullmatch(name):
        return (_format_server_tool(server["server"], server["tool"] or "*"),)
    first, slash, last = name.rpartition("/")
    if not slash:
        return ()
    if first.casefold() in _VSCODE_GROUPS:
        return _OUR_TOOLS_BY_NAME.get(last.casefold(), ())
    return (_format_server_tool(first, last),)


def _format_server_tool(server: str, tool: str) -> str:
    return "mcp_*" if server == "*" else f"mcp_{server}_*" if tool == "*" else mcp_tool_name(server, tool)
