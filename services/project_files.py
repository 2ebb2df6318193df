"""project_files: what a folder brings along that counts only where a person trusts it."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.services.dotenv import load_dotenv
from interlock.services.policy.places import Places, ignored_files
from interlock.services.settings import FOLDERS
from interlock.services.settings_file import read_object
from interlock.state.errors import ConfigError

_SINGLE = (".mcp.json", ".roo/mcp.json", ".roomodes")
_LISTED = ("agents/*.md", "commands/**/*.toml")
_MOST = 8
"""Files that a warning names."""


class ProjectFile(NamedTuple):
    """A file, and what it would have run or connected to, one line each."""

    path: Path
    runs: tuple[str, ...] = ()


def project_files(root: Path, home: Path) -> list[ProjectFile]:
    """Files of a workspace that need trust, those that only later versions read among them; never the user's own."""
    mine = {os.path.realpath(home / folder) for folder in FOLDERS}
    own = [root / f for f in FOLDERS if os.path.realpath(root / f) not in mine]
    found = [folder / "settings.json" for folder in own]
    found += [root / name for name in _SINGLE]
    found = [file for file in found if os.path.lexists(file)]
    found += load_dotenv(start=root, home=home, env={}, trusted=False).ignored
    found += ignored_files(Places(root, home, trusted=False, admin=()))
    found += [file for folder in own for pattern in _LISTED for file in sorted(folder.glob(pattern))]
    return [ProjectFile(file, tuple(_runs(file))) for file in found]


def ignored_line(files: Iterable[ProjectFile], root: Path) -> list[str]:
    """One warning that names what was ignored, and how to let it count; none, where there is nothing."""
    names = [_named(file, root) for file in files]
    if not names:
        return []
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return [
        f"This folder isn't trusted, so these were ignored: {', '.join(names[:_MOST])}{more}. "
        "To let them count: interlock trust (once: --skip-trust)."
    ]


def shown_path(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _named(file: ProjectFile, root: Path) -> str:
    kinds = [line.split(" ", 1)[0] for line in file.runs]
    counts = [
        f"{n} {word}{'s' if n > 1 else ''}"
        for word, n in (("hook", kinds.count("hook")), ("MCP server", kinds.count("MCP")))
        if n
    ]
    return shown_path(file.path, root) + (f" ({', '.join(counts)})" if counts else "")


def _runs(file: Path) -> Iterator[str]:
    """Hooks' commands and MCP servers, as they are written there; nothing of what can't be read."""
    if file.suffix != ".json":
        return
    try:
        data = read_object(file) or {}
    except ConfigError as error:
        yield f"(can't be read: {error})"
        return
    for event, groups in _items(data.get("hooks")):
        for group in _list(groups):
            hooks = _dict(group).get("hooks")
            yield from (f"hook {event}: {_dict(h).get('command', h)}" for h in _list(hooks))
    for name, server in _items(data.get("mcpServers")):
        yield f"MCP server {name}: {_server(_dict(server))}"


def _server(server: dict[str, Any]) -> str:
    where = server.get("httpUrl") or server.get("url")
    return (
        str(where) if where else " ".join(map(str, [server.get("command", "?"), *_list(server.get("args"))]))
    )


def _dict(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def _items(value: object) -> Iterable[tuple[str, Any]]:
    return _dict(value).items()
