"""user_extensions: the user's and the project's own commands, skills and MCP servers, as a front end offers them."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interlock.engine.client import Options, load_folder_settings
from interlock.state.errors import InterlockError
from interlock.state.names import mcp_server_key

_COMMANDS_FRESH_S = 2.0
"""Seconds until a reading is stale."""


@dataclass(frozen=True)
class UserExtensions:
    """Name → what it does."""

    commands: Mapping[str, str]
    """Commands and skills."""
    argument_hints: Mapping[str, str]
    other_names: Mapping[str, str]
    """Names that other programs give these commands."""
    problems: Mapping[str, str]
    """Command → why it can't be used."""
    servers: Mapping[str, str]
    """What `/SERVER:PROMPT` calls an MCP server → its name."""


class ExtensionReader:
    """The user's and project's commands, reread when stale. Unreadable ones are missing; a run says why."""

    def __init__(self, options: Options, workspace: Path) -> None:
        self._options, self._root = options, workspace
        self._own = UserExtensions({}, {}, {}, {}, {})
        self._read_at = -_COMMANDS_FRESH_S
        self._prompts: dict[str, dict[str, str]] = {}

    def get_extensions(self) -> UserExtensions:
        if time.monotonic() - self._read_at >= _COMMANDS_FRESH_S:
            self._own, self._read_at = self._read_extensions(), time.monotonic()
        return self._own

    def _read_extensions(self) -> UserExtensions:
        configuration = self._options.configuration(self._root)
        commands = configuration.commands
        try:
            servers = {mcp_server_key(name): name for name in load_folder_settings(self._root).mcp_servers}
        except InterlockError:
            servers = {}
        return UserExtensions(
            {name: found.description or found.source for name, found in commands.usable.items()},
            {name: found.argument_hint for name, found in commands.usable.items() if found.argument_hint},
            commands.other_names,
            {**commands.untrusted, **commands.broken, **commands.hidden},
            servers,
        )

    def get_server_prompts(self, server: str) -> Mapping[str, str]:
        """Prompts of an MCP server, by what `/SERVER:PROMPT` calls it. It is started on first use."""
        if server not in self._prompts:
            self._prompts[server] = self._fetch_prompts(self.get_extensions().servers[server])
        return self._prompts[server]

    def _fetch_prompts(self, server: str) -> dict[str, str]:
        from interlock.engine.client.mcp_check import McpCheck

        try:
            (view,) = asyncio.run(McpCheck(self._options).probe_servers(server))
        except InterlockError:
            return {}
        return {prompt["name"]: prompt["description"] for prompt in view["prompts"]}
