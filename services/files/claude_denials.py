"""claude_denials: the files that Claude Code's `Read(…)` denials keep from agents, as lines of an ignore file."""

import os
import re
from pathlib import Path
from typing import Any, cast

from interlock.services.files.json_with_comments import parse_json_with_comments

CLAUDE_SETTINGS = (".claude/settings.json", ".claude/settings.local.json")
"""Claude Code's settings in a workspace."""
_READ = re.compile(r"\s*Read\((.*)\)\s*", re.DOTALL)


def denied_read_patterns(text: str, folder: Path) -> list[str]:
    """Return the lines that hide, below `folder`, what the settings in `text` deny to read; of broken JSON none, which
    the rules of that file report."""
    try:
        value: Any = parse_json_with_comments(text)
    except ValueError:
        return []
    for key in ("permissions", "deny"):
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    entries = cast("list[object]", value) if isinstance(value, list) else []
    read = (_READ.fullmatch(entry) for entry in entries if isinstance(entry, str))
    return [
        line for found in read if found and (line := to_ignore_line(found[1].strip(), folder, restricts=True))
    ]


def to_ignore_line(pattern: str, folder: Path, *, restricts: bool) -> str | None:
    """Return the line of an ignore file of `folder` that matches what a path of Claude Code's rules matches; None if
    that is nothing below `folder`.

    `//x` is absolute, `~/x` of the home directory, `/x` and `./x` of the folder. `x/y` is anywhere below it if the rule
    restricts, else only at its top.
    """
    if pattern.startswith("~/"):
        pattern = "/" + os.path.expanduser("~") + pattern[1:]  # noqa: PTH111 - as text
    if pattern.startswith("//"):
        return _relative_to_folder(pattern[1:], str(folder))
    if pattern.startswith("./"):
        pattern = pattern[1:]
    if not pattern.strip("/") or pattern.startswith(("!", "#", "../")):
        return None
    if pattern.startswith("/") or "/" not in pattern.rstrip("/"):
        return pattern
    return f"**/{pattern}" if restricts and not pattern.startswith("**/") else f"/{pattern}"


def _relative_to_folder(pattern: str, folder: str) -> str | None:
    if pattern.startswith("/**/"):
        return pattern[1:]
    inside = f"{folder.rstrip('/')}/"
    if pattern.startswith(inside) and pattern != inside:
        return "/" + pattern[len(inside) :]
    # It may hide a folder around this one: `//home/me/**`.
    above = pattern.removesuffix("/**").removesuffix("/").rstrip("/")
    return "**" if inside.startswith(f"{above}/") and "*" not in above else None
