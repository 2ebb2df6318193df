"""ide: what an editor shows, from the JSON file that it keeps (gemini-cli's format)."""

import json
from pathlib import Path
from typing import Any, cast

from interlock.state.context import IdeState
from interlock.state.errors import ConfigError
from interlock.state.text import clean

_MOST_FILES = 10
_MOST_CHARS = 16_384
"""Of a selection (gemini-cli: the same)."""
_LARGEST = 8_000_000
"""Bytes of the file."""


def read_ide(file: Path) -> IdeState:
    """The newest files first; only the newest can be the active one. Raises `ConfigError` for a file of no use."""
    try:
        if file.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST} bytes")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise _useless(repr(str(file)), error) from None
    return parse_ide(text, repr(str(file)))


def parse_ide(text: str, where: str) -> IdeState:
    """As `read_ide`."""
    try:
        data: Any = json.loads(text)
        found = data.get("workspaceState", data)["openFiles"]
        files = [_file(one) for one in cast(list[Any], found)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _useless(where, error) from None
    files.sort(key=lambda one: -one[0])
    newest = files[0][1] if files else {}
    return IdeState(
        open=[one["path"] for _, one in files[:_MOST_FILES]],
        active=newest if newest.get("active") else {},
    )


def _useless(where: str, error: Exception) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return ConfigError(
        f"The IDE's context {where} can't be used ({why}); expected "
        '{"workspaceState": {"openFiles": [{"path": …}]}}. It is left out.'
    )


def _file(given: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    path, selection = given["path"], given.get("selectedText") or ""
    cursor: dict[str, Any] = given.get("cursor") or {}
    if not isinstance(path, str) or not isinstance(selection, str):
        raise TypeError("'path' and 'selectedText' are texts")
    if len(selection) > _MOST_CHARS:
        selection = selection[:_MOST_CHARS] + "… [cut]"
    one: dict[str, Any] = {"path": clean(path), "active": given.get("isActive") is True}
    if cursor:
        one["cursor"] = {"line": int(cursor["line"]), "character": int(cursor["character"])}
    if selection:
        one["selection"] = clean(selection)
    return float(given.get("timestamp") or 0), one
