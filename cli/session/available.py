"""available: what can be called by a slash besides the session's own commands: the user's and the project's."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interlock.engine.options import Options
from interlock.state.errors import InterlockError

_FRESH_S = 2.0
"""Seconds that what was read counts as new."""


@dataclass(frozen=True)
class Own:
    """Name → what it does."""

    commands: Mapping[str, str]
    skills: Mapping[str, str]
    servers: tuple[str, ...]
    """MCP servers, whose prompts are `/SERVER:PROMPT`."""


class Available:
    """Read anew when it may have changed. What can't be read isn't there; a run says why."""

    def __init__(self, options: Options, workspace: Path) -> None:
        self._options, self._root = options, workspace
        self._own = Own({}, {}, ())
        self._read_at = -_FRESH_S
        self._prompts: dict[str, dict[str, str]] = {}

    def own(self) -> Own:
        if time.monotonic() - self._read_at >= _FRESH_S:
            self._own, self._read_at = self._found(), time.monotonic()
        return self._own

    def _found(self) -> Own:
        from interlock.engine.travel.files import settings_of
        from interlock.services.context.skills import load_commands, load_skills
        from interlock.services.trust import is_trusted

        home = self._options.user_home
        trusted = self._options.skip_trust or is_trusted(self._root, home)
        commands, _ = load_commands(self._root, home, trusted)
        skills, _ = load_skills(self._root, home, trusted)
        try:
            servers = tuple(settings_of(self._root).mcp_servers)
        except InterlockError:
            servers = ()
        return Own(
            {name: found.description or found.source for name, found in commands.items()},
            {name: found.description for name, found in skills.items()},
            servers,
        )

    def prompts(self, server: str) -> Mapping[str, str]:
        """Those of an MCP server, which is started for it the first time."""
        if server not in self._prompts:
            self._prompts[server] = self._asked(server)
        return self._prompts[server]

    def _asked(self, server: str) -> dict[str, str]:
        import asyncio

        from interlock.engine.check.mcp import McpCheck

        try:
            (view,) = asyncio.run(McpCheck(self._options).views(server))
        except InterlockError:
            return {}
        return {prompt["name"]: prompt["description"] for prompt in view["prompts"]}
