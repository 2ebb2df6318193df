"""sdk: a server built on the official SDK, on stdio or, in a thread of the test, behind an address."""

import gc
import json
import socket
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

if TYPE_CHECKING:  # as a program it finds nothing of the tests
    from mcp_servers.accounts import Accounts


Answer = tuple[int, str, bytes]
"""Status, type and body."""
NOTED: list[str] = []
"""What `note` did, of every server in this process."""
Door = Callable[[dict[str, Any]], Answer | None]


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

    @server.tool()
    def note(text: str) -> str:
        """Write the text down."""
        NOTED.append(text)
        return "noted"

    @server.tool()
    def long(size: int) -> str:
        """That many characters."""
        return "x" * size

    @server.tool()
    async def grow(ctx: Context) -> str:
        """One tool more, `grown`."""
        server.add_tool(lambda: "it has grown", name="grown", description="New.")
        await ctx.notify_tools_changed()
        return "one more"

    @server.resource("note://{name}")
    def letter(name: str) -> str:
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
        self,
        kind: Literal["http", "sse"],
        port: int = 0,
        accounts: "Accounts | None" = None,
        door: Door | None = None,
    ) -> None:
        """`door` may answer a request in the server's place."""
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
        app = _guarded(app, door) if door else app
        # Otherwise shutdown would wait for an open event stream.
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
        with warnings.catch_warnings():  # cancelled, the SDK's server of SSE leaves its streams open
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def no_handshake(asked: dict[str, Any]) -> Answer | None:
    """A door that imitates servers speaking only today's protocol."""
    if asked.get("method") != "initialize":
        return None
    data = {"supported": ["2026-07-28"], "requested": asked["params"]["protocolVersion"]}
    error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
    body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode()
    return 400, "application/json", body


def _guarded(app: Any, door: Door) -> Any:
    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        message = await receive()
        answer = door(json.loads(message["body"]))
        if answer is None:
            waiting = [message]

            async def again() -> Any:
                return waiting.pop() if waiting else await receive()

            await app(scope, again, send)
            return
        status, kind, body = answer
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return guarded


if __name__ == "__main__":
    made().run("stdio")
