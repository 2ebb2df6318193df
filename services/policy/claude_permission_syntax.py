"""claude_permission_syntax: how Claude Code writes a permission: `Tool`, `Tool(what)` or `mcp__SERVER__TOOL`.

`claude_permissions.py` makes rules of a repository's permissions, and the import of a person's home those of theirs."""

import re
from typing import NamedTuple

_PERMISSION = re.compile(r"\s*([^()\s]+?)\s*(?:\((.*)\)\s*)?", re.DOTALL)
_WHOLE = ("", "*", "**", ":*")
"""What stands in brackets for each call of a tool."""
_HOST = re.compile(r"domain:((?:\*\.)?[A-Za-z0-9*.-]+)")
_SERVER = "mcp__"


class PermissionText(NamedTuple):
    """A permission, as it is written."""

    tool: str
    """The name, or a pattern of names, of a tool of Claude Code's."""
    scope: str
    """What stands in the brackets; empty: the whole tool."""


def parse_permission(entry: object) -> PermissionText | None:
    """Return the parts of an entry of a list; None if it is no permission."""
    found = _PERMISSION.fullmatch(entry) if isinstance(entry, str) else None
    if found is None:
        return None
    scope = (found[2] or "").strip()
    return PermissionText(found[1], "" if scope in _WHOLE else scope)


def split_server_tool(name: str) -> tuple[str, str] | None:
    """Return the server and the tool of `mcp__SERVER__TOOL`, the tool empty for `mcp__SERVER`; None for other tools."""
    if not name.startswith(_SERVER):
        return None
    server, _, tool = name.removeprefix(_SERVER).partition("__")
    return server, tool


def parse_host(scope: str) -> str | None:
    """Return the host of `domain:HOST`, in lower case, which may hold `*`; None if nothing of the kind stands there."""
    found = _HOST.fullmatch(scope)
    return found[1].lower().rstrip(".") if found and found[1].strip("*.") else None
