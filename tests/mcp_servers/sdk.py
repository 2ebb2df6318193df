"""sdk: a server built on the official SDK, on stdio or, in a thread of the test, behind an address."""

import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

if TYPE_CHECKING:  # as a program it finds nothing of the tests
    from mcp_servers.accounts import Accounts


def made(**more: Any) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("sdk", version="7", instructions="Add with add.", **more)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def add(a: int, b: int, ctx: Context) -> dict[str, int]:
        """The sum."""
        await ctx.report_progress(1, 1, "adding")
        return {"sum": a + b}

    @server.tool()
    async def header(name: str, ctx: Context) -> str:
        """A header of the request."""
        request: Any = ctx.request_context.request
        return f"{name} is {request.headers.get(name)}"

    @server.resource("note://{name}")
    def note(name: str) -> str:
        """A note."""
        return f"the note {name}"

    @server.prompt()
    def review(code: str) -> str:
        """Ask for a review."""
        return f"Review this: {code}"

    return server


class Behind:
    """`with Behind("http") as server: server.url`."""

    def __init__(
        self, kind: Literal["http", "sse"], port: int = 0, accounts: "Accounts | None" = None
    ) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        origin = f"http://127.0.0.1:{self.port}"
        self.url = f"{origin}/{'mcp' if kind == 'http' else 'sse'}"
        doors = (
            {"auth": accounts.settings(origin, self.url), "auth_server_provider": accounts}
            if accounts
            else {}
        )
        app = made(**doors).streamable_http_app() if kind == "http" else made(**doors).sse_app()
        # An open stream of events would be waited for at the end.
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[self._socket]), daemon=True)

    def __enter__(self) -> "Behind":
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()


if __name__ == "__main__":
    made().run("stdio")
