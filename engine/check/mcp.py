"""mcp: which MCP servers there are, with the settings and trust of a run, and whether they can be had."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from interlock.engine.driver.compose import open_servers
from interlock.engine.driver.prepare import prepare
from interlock.engine.options import Options
from interlock.services.files.outputs import OutputFiles
from interlock.services.mcp.connection import Connection, UnavailableError
from interlock.services.mcp.remote import WAIT_S, Show, TokenFile, sign_in, streams
from interlock.services.mcp.spec import ServerSpec, specs_of
from interlock.state.errors import RunError, UserError
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
        if server is not None:
            self._spec(server)
        servers = open_servers(self._prepared, self._outputs, _unheard)
        began = time.monotonic()
        try:
            await servers.ready(server)
            took = round((time.monotonic() - began) * 1000)
            views = [view for view in servers.views() if server in (None, view.name)]
        finally:
            await servers.close()
        redacted = self._prepared.redact.json([view.model_dump(mode="json") for view in views])
        return [{**view, "ms": took} for view in redacted]

    async def sign_in(self, server: str, show: Show) -> int:
        """How many tools it then offers. Raises `UserError`, `RunError`."""
        spec, options = self._spec(server), self._prepared.options
        self._remote(spec)
        async with sign_in(spec, options.home, self._prepared.redact.learn, show) as auth:
            one = Connection(spec, partial(streams, spec, auth), self.workspace, WAIT_S)
            try:
                await one.live()
            except UnavailableError as error:
                raise RunError(f"MCP server {server!r}: {error}") from error
            finally:
                await one.close()
        return len(one.listing.tools)

    def forget(self, server: str) -> bool:
        """Remove its tokens; whether there were any. Raises `UserError`."""
        spec = self._spec(server)
        self._remote(spec)
        return TokenFile(self._prepared.options.home, server, spec.url).forget()

    def _spec(self, server: str) -> ServerSpec:
        specs = specs_of(self._prepared.settings, self.workspace)
        if server not in specs:
            there = f"There are: {', '.join(map(repr, specs))}." if specs else "There are none in settings."
            raise UserError(f"No MCP server {server!r}. {there} Add one: interlock mcp add --help")
        return specs[server]

    def _remote(self, spec: ServerSpec) -> None:
        if spec.problem or spec.transport == "stdio":
            why = spec.problem or "it is a program on this machine; one signs in to servers behind an address"
            raise UserError(f"MCP server {spec.name!r}: {why}.")


def _unheard(event: Event, /) -> None:
    """The views say it, too."""
