"""mcp: which MCP servers there are, with the settings and trust of a run, and whether they can be had."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interlock.engine.driver.compose import open_servers
from interlock.engine.driver.prepare import prepare
from interlock.engine.options import Options
from interlock.services.files.outputs import OutputFiles
from interlock.state.errors import UserError
from interlock.state.events import Event


class McpCheck:
    """One preparation; servers are started when they are asked for, and ended with the answer."""

    def __init__(self, options: Options) -> None:
        self._prepared = prepare(options, needs_model=False)
        self._outputs = OutputFiles(options.home, self._prepared.redact)
        self.warnings: Sequence[str] = self._prepared.warnings
        self.workspace: Path = self._prepared.workspace.root

    async def views(self, server: str | None = None) -> list[dict[str, Any]]:
        """Every server, or one, and what it offers; `ms`: how long all of them took. Raises `UserError`."""
        servers = open_servers(self._prepared, self._outputs, _unheard)
        known = [view.name for view in servers.views()]
        if server is not None and server not in known:
            there = f"There are: {', '.join(map(repr, known))}." if known else "There are none in settings."
            raise UserError(f"No MCP server {server!r}. {there} Add one: interlock mcp add --help")
        began = time.monotonic()
        try:
            await servers.ready(server)
            took = round((time.monotonic() - began) * 1000)
            views = [view for view in servers.views() if server in (None, view.name)]
        finally:
            await servers.close()
        redacted = self._prepared.redact.json([view.model_dump(mode="json") for view in views])
        return [{**view, "ms": took} for view in redacted]


def _unheard(event: Event, /) -> None:
    """The views say it, too."""
