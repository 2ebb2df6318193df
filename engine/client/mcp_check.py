"""mcp_check: starts MCP servers, signs in to them, and says what they offer; for the command `mcp` and the session."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interlock.engine.driver.compose import make_mcp_servers
from interlock.engine.driver.run_config import prepare_run
from interlock.engine.options import Options
from interlock.services.files.filesystem import OutputFiles
from interlock.services.mcp import (
    WAIT_S,
    ServerConnection,
    ServerSpec,
    Show,
    TokenFile,
    UnavailableError,
    build_server_specs,
    open_http_streams,
    sign_in_with_browser,
)
from interlock.state.errors import RunError, UserError
from interlock.state.text import make_visible


class McpCheck:
    """Prepared once; servers start on demand and stop with the answer."""

    def __init__(self, options: Options) -> None:
        self._prepared = prepare_run(options, needs_model=False)
        self._outputs = OutputFiles(options.home, self._prepared.redact)
        self.warnings: Sequence[str] = self._prepared.warnings
        self.workspace: Path = self._prepared.workspace.root

    async def probe_servers(self, server: str | None = None) -> list[dict[str, Any]]:
        """Every server, or one, with what it offers; `ms`: how long connecting took in all. Raises `UserError`."""
        if server is not None:
            self._find_spec(server)
        servers = make_mcp_servers(self._prepared, self._outputs, lambda _event: None)
        began = time.monotonic()
        try:
            await servers.start_and_wait_for_servers(server)
            took = round((time.monotonic() - began) * 1000)
            views = [
                view for view in servers.list_servers() if server is None or view.name == make_visible(server)
            ]
        finally:
            await servers.close()
        redacted = self._prepared.redact.redact_json([view.model_dump(mode="json") for view in views])
        return [{**view, "ms": took} for view in redacted]

    async def sign_in_and_count_tools(self, server: str, show: Show) -> int:
        """Sign in, and return how many tools the server then offers. Raises `UserError`, `RunError`."""
        spec, options = self._find_spec(server), self._prepared.options
        self._check_remote(spec)
        async with sign_in_with_browser(spec, options.home, self._prepared.redact.add_secrets, show) as auth:
            one = ServerConnection(
                spec, lambda way, lost: open_http_streams(way, auth, lost), self.workspace, WAIT_S
            )
            try:
                await one.require_session()
            except UnavailableError as error:
                raise RunError(f"MCP server {server!r}: {error}") from error
            finally:
                await one.close()
        return len(one.listing.tools)

    def remove_tokens(self, server: str) -> bool:
        """Remove the server's tokens; True if there were any. Raises `UserError`."""
        spec = self._find_spec(server)
        self._check_remote(spec)
        return TokenFile(self._prepared.options.home, server, spec.url).delete()

    def _find_spec(self, server: str) -> ServerSpec:
        specs = build_server_specs(self._prepared.settings, self.workspace)
        if server not in specs:
            there = f"There are: {', '.join(map(repr, specs))}." if specs else "Settings name none."
            raise UserError(f"No MCP server {server!r}. {there} Add one: interlock mcp add --help")
        return specs[server]

    def _check_remote(self, spec: ServerSpec) -> None:
        if spec.problem or spec.transport == "stdio":
            why = spec.problem or "it is a program on this machine; one signs in to servers behind an address"
            raise UserError(f"MCP server {spec.name!r}: {why}.")
