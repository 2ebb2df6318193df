"""agent_homes: where other agents keep in a person's home what somebody who changes to Interlock wants to keep."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from interlock.engine.client.imported_rules import (
    ImportedRules,
    read_claude_permissions,
    read_codex_rules,
    read_opencode_permissions,
    read_roo_commands,
)
from interlock.engine.client.imported_servers import CLAUDE, CODEX, OPENCODE, ROO
from interlock.services.files.disk import read_file
from interlock.services.files.json_with_comments import parse_json_with_comments

AgentName = Literal["claude", "codex", "gemini", "roo", "opencode"]
AGENTS: Mapping[str, str] = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "roo": "Roo Code",
    "opencode": "opencode",
}
"""What `--agent` takes → the program's name."""
SYNONYMS = {
    "claude-code": "claude",
    "codex-cli": "codex",
    "gemini-cli": "gemini",
    "roo-code": "roo",
    "roocode": "roo",
}
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf", "Trae", "Kiro")
_ROO_STORAGE = Path("globalStorage/rooveterinaryinc.roo-cline")


class AgentHome(NamedTuple):
    """One program's files in a home. Those that aren't there are named, too."""

    agent: str
    folder: Path
    """Its own folder."""
    read_below: tuple[str, ...]
    """Folders below the home whose skills, commands, agents, memory and rules Interlock may read where they are."""
    memory: tuple[Path, ...] = ()
    servers: tuple[tuple[Path, str], ...] = ()
    """Files with MCP servers, each with the name of its format."""
    permissions: tuple[tuple[Path, Callable[[str], ImportedRules]], ...] = ()
    """Files with permissions, and what reads their text. It raises `ValueError`."""
    modes: tuple[Path, ...] = ()
    settings: tuple[Path, ...] = ()
    """Files whose other keys are named."""
    storages: tuple[Path, ...] = ()
    """Folders of its conversations that aren't in its own."""

    @property
    def is_there(self) -> bool:
        files = (*self.memory, *(file for file, _ in self.servers), *self.modes)
        folders = (self.folder, *self.storages)
        return any(folder.is_dir() for folder in folders) or any(file.is_file() for file in files)


def find_agent_home(agent: str, home: Path, env: Mapping[str, str]) -> AgentHome:
    """Return the files of one program, as its own variables place them."""
    return _FINDERS[agent](home, env)


def _find_claude_home(home: Path, env: Mapping[str, str]) -> AgentHome:
    moved = env.get("CLAUDE_CONFIG_DIR")
    folder = Path(moved).expanduser() if moved else home / ".claude"
    state = (folder if moved else home) / ".claude.json"
    own = tuple(folder / name for name in ("settings.json", "settings.local.json"))
    memory = (folder / "CLAUDE.md", *sorted((folder / "rules").rglob("*.md")))
    permissions = tuple((file, _read_claude_settings) for file in own)
    return AgentHome("claude", folder, (".claude",), memory, ((state, CLAUDE),), permissions, settings=own)


def _find_codex_home(home: Path, env: Mapping[str, str]) -> AgentHome:
    folder = Path(env.get("CODEX_HOME") or home / ".codex").expanduser()
    memory = next((file for n in ("AGENTS.override.md", "AGENTS.md") if _has_text(file := folder / n)), None)
    rules = tuple((file, read_codex_rules) for file in sorted((folder / "rules").glob("*.rules")))
    config = folder / "config.toml"
    below = (".codex", ".agents")
    return AgentHome(
        "codex", folder, below, (memory,) if memory else (), ((config, CODEX),), rules, settings=(config,)
    )


def _find_gemini_home(home: Path, _env: Mapping[str, str]) -> AgentHome:
    return AgentHome("gemini", home / ".gemini", (".gemini", ".agents"))


def _find_opencode_home(home: Path, env: Mapping[str, str]) -> AgentHome:
    folder = Path(env.get("XDG_CONFIG_HOME") or home / ".config").expanduser() / "opencode"
    own = tuple(folder / name for name in ("opencode.json", "opencode.jsonc"))
    permissions = tuple((file, _read_opencode_config) for file in own)
    servers = tuple((file, OPENCODE) for file in own)
    below = (".config/opencode", ".agents")
    memory, data = (folder / "AGENTS.md",), (find_opencode_data(home, env),)
    return AgentHome("opencode", folder, below, memory, servers, permissions, settings=own, storages=data)


def find_opencode_data(home: Path, env: Mapping[str, str]) -> Path:
    """Return the folder in which opencode keeps its data."""
    return Path(env.get("XDG_DATA_HOME") or home / ".local/share").expanduser() / "opencode"


def list_editor_folders(home: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the folders in which editors that run Roo Code keep a user's files, also those that aren't there."""
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config").expanduser()
    users = [config / name / "User" for name in _EDITORS]
    users += [home / "Library/Application Support" / name / "User" for name in _EDITORS]
    users += [home / name / "data/User" for name in (".vscode-server", ".cursor-server", ".windsurf-server")]
    return [*users, home / ".local/share/code-server/User"]


def list_roo_storages(home: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the folders in which Roo Code, in an editor or a terminal, keeps tasks and settings, as above."""
    editors = [user / _ROO_STORAGE for user in list_editor_folders(home, env)]
    return [*editors, home / ".vscode-mock/global-storage"]


def _find_roo_home(home: Path, env: Mapping[str, str]) -> AgentHome:
    users = list_editor_folders(home, env)
    storages = [folder / "settings" for folder in list_roo_storages(home, env)]
    return AgentHome(
        "roo",
        home / ".roo",
        (".roo", ".agents"),
        servers=tuple((folder / "mcp_settings.json", ROO) for folder in storages),
        permissions=tuple((user / "settings.json", _read_editor_settings) for user in users),
        modes=tuple(folder / "custom_modes.yaml" for folder in storages),
        storages=tuple(folder.parent for folder in storages),
    )


_FINDERS: Mapping[str, Callable[[Path, Mapping[str, str]], AgentHome]] = {
    "claude": _find_claude_home,
    "codex": _find_codex_home,
    "gemini": _find_gemini_home,
    "roo": _find_roo_home,
    "opencode": _find_opencode_home,
}


def _has_text(file: Path) -> bool:
    try:
        return bool(read_file(file).strip())
    except OSError:
        return False


def _read_object(text: str) -> dict[str, Any]:
    found: object = parse_json_with_comments(text) if text.strip() else {}
    if not isinstance(found, dict):
        raise ValueError("expected an object")
    return cast("dict[str, Any]", found)


def _read_claude_settings(text: str) -> ImportedRules:
    found = _read_object(text).get("permissions")
    return read_claude_permissions(cast("dict[str, Any]", found) if isinstance(found, dict) else {})


def _read_opencode_config(text: str) -> ImportedRules:
    found = _read_object(text).get("permission")
    return read_opencode_permissions(found) if found is not None else ImportedRules([], [])


def _read_editor_settings(text: str) -> ImportedRules:
    return read_roo_commands(_read_object(text))


_NOT_TAKEN: Mapping[str, Mapping[str, str]] = {
    "claude": {
        "hooks": "write them into ~/.interlock/settings.json; see docs/hooks.md",
        "env": "set variables in your shell, or in ~/.gemini/.env",
        "enabledPlugins": "Interlock has no plugins; skills and commands are read from ~/.claude",
        "model": "choose it with -m, or model.name in ~/.interlock/settings.json",
        "apiKeyHelper": "store a key with: interlock auth set anthropic",
        "projects": "servers of one folder: interlock mcp add in that folder",
    },
    "codex": {
        "approval_policy": "choose it for a run: --approval-mode",
        "sandbox_mode": "choose it for a run: -s, or tools.sandbox in ~/.interlock/settings.json",
        "model": "choose it with -m, or model.name in ~/.interlock/settings.json",
        "hooks": "write them into ~/.interlock/settings.json; see docs/hooks.md",
        "profiles": "choose a model with -m, a mode of work with --mode",
    },
    "opencode": {
        "model": "choose it with -m, or model.name in ~/.interlock/settings.json",
        "agent": "write each as a file: ~/.config/opencode/agents/NAME.md is read",
        "command": "write each as a file: ~/.config/opencode/commands/NAME.md is read",
        "plugin": "Interlock runs no plugins of opencode",
        "instructions": "name the files in AGENTS.md, with @",
    },
}


def iterate_other_settings(found: AgentHome) -> Iterator[tuple[Path, str, str]]:
    """Yield the settings that aren't taken over, each with its file, and what to do instead."""
    wanted = _NOT_TAKEN.get(found.agent, {})
    files = (*found.settings, *(file for file, _ in found.servers if file not in found.settings))
    for file in files:
        try:
            text = read_file(file).decode("utf-8-sig")
            data = tomllib.loads(text) if file.suffix == ".toml" else _read_object(text)
        except (OSError, ValueError, json.JSONDecodeError):  # said where it is read
            continue
        for key, why in wanted.items():
            value: object = data.get(key)
            if _has_servers_of_folders(value) if key == "projects" else value:
                yield file, key, why


def _has_servers_of_folders(projects: object) -> bool:
    folders = cast("dict[str, object]", projects).values() if isinstance(projects, dict) else ()
    return any(isinstance(one, dict) and cast("dict[str, object]", one).get("mcpServers") for one in folders)
