"""app: the application of `interlock serve`, run on loopback until Ctrl-C: the page, its data, what a person does."""

import os
import socket
import sys
import webbrowser
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from interlock.engine.client import Client, Options
from interlock.state.errors import UserError
from interlock.web import acts, looks, stats, stream
from interlock.web.answers import RefusedError, body, failed, routed, whole
from interlock.web.apart import Apart
from interlock.web.api.routes import routes as api_routes
from interlock.web.api.visitors import TheirRoutes, Visitors
from interlock.web.guard import Access, Guard, Tokens
from interlock.web.paths import BODY_LIMIT, is_shell
from interlock.web.prompts import Prompts
from interlock.web.served import Served

_STATIC = Path(__file__).parent / "static"

TABLE = """
GET   /api/me                         view    looks.me
GET   /api/stats                      view    stats.stats
GET   /api/changes                    view    stream.changes
GET   /api/requests                   view    looks.requests
GET   /api/requests/{id}              view    looks.request
GET   /api/requests/{id}/file         view    looks.request_file
GET   /api/workflows                  view    looks.workflows
GET   /api/workflows/{name}           view    looks.workflow
GET   /api/workflows/{name}/diagram   view    looks.workflow_diagram
GET   /api/runs                       view    looks.runs
GET   /api/runs/{run}                 view    looks.run
GET   /api/runs/{run}/events          view    stream.events
GET   /api/runs/{run}/diagram         view    looks.diagram
GET   /api/runs/{run}/path            view    looks.path
GET   /api/runs/{run}/prompt          view    looks.takes_prompt
GET   /api/runs/{run}/steps           view    looks.steps
GET   /api/runs/{run}/calls           view    looks.calls
GET   /api/runs/{run}/calls/{call}/output  view    looks.output
GET   /api/runs/{run}/state           view    looks.state
GET   /api/runs/{run}/seen            view    looks.seen
GET   /api/runs/{run}/diff            view    looks.diff
POST  /api/runs/{run}/replay          view    looks.replay
GET   /api/runs/{run}/export          view    looks.export
POST  /api/runs                       drive   acts.start
POST  /api/runs/{run}/decide          decide  acts.decide
POST  /api/runs/{run}/prompt          drive   acts.prompt
POST  /api/runs/{run}/stop            drive   acts.stop
POST  /api/runs/{run}/fork            drive   acts.fork
POST  /api/runs/{run}/rewind          drive   acts.rewind
POST  /api/runs/{run}/undo            drive   acts.undo
"""


class Page:
    """Answers the page's requests. `options` are those of each run that is started here."""

    def __init__(self, options: Options, access: Access) -> None:
        self.options, self.client = options, Client(options)
        self.served = Served(options, self.client, Apart(), Prompts(options))
        self.tokens, self._port = Tokens(options.home), access.port
        theirs = self.client.listed_app()
        visitors = Visitors(theirs) if theirs and theirs.auth else None
        routes, resume = api_routes(self.client, theirs, visitors)
        self._theirs = [TheirRoutes(theirs.routes, visitors)] if theirs and theirs.routes else []

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncGenerator[None]:
            if not access.only_reads:
                resume()
                self.served.prompts.resume()
            async with AsyncExitStack() as stack:
                if theirs and theirs.routes:
                    await stack.enter_async_context(theirs.routes.router.lifespan_context(theirs.routes))
                yield

        app = Starlette(routes=[*routes, *self._routes()], lifespan=lifespan)
        self.guard = Guard(app, self.tokens, access, visitors)

    def _routes(self) -> list[BaseRoute]:
        owners = {"looks": looks, "acts": acts, "stats": stats, "stream": stream}
        return [
            Route("/login", self.login, methods=["POST"]),
            Route("/proof", self.proof, methods=["POST"]),
            Route("/ok", _ok),
            *routed(TABLE, owners, self.served),
            Mount("/static", StaticFiles(directory=_STATIC)),
            *self._theirs,
            Route("/{path:path}", _shell),
        ]

    async def login(self, request: Request) -> Response:
        """Exchange the token of the address for one of the tab."""
        try:
            given = (await whole(request)).decode(errors="replace")
        except RefusedError as error:
            return failed(error.status, error)
        if not (self.tokens.spent(given) or await self._is_page(given)):
            detail = "Too many wrong tokens. Wait a minute." if self.guard.locked else "Wrong token."
            return JSONResponse({"detail": detail}, 429 if self.guard.locked else 401)
        return JSONResponse({"token": self.tokens.for_tab(self._port)})

    async def proof(self, request: Request) -> Response:
        """Show a tab that it was this home's server that gave it its token, before it sends that again."""
        try:
            given = await body(request)
        except RefusedError as error:
            return failed(error.status, error)
        about, challenge = (str(given.get(name)) for name in ("about", "challenge"))
        return JSONResponse({"proof": self.tokens.proof(about, challenge, self._port)})

    async def _is_page(self, token: str) -> bool:
        """Whether it is the token of the page: those of programs and tabs sign no browser in."""
        return await self.guard.known(token) is not None and self.tokens.is_page(token)


async def _ok(_: Request) -> Response:
    return JSONResponse({"ok": True})


async def _shell(request: Request) -> Response:
    if not is_shell(request.url.path):
        return JSONResponse({"detail": "Not Found"}, 404)
    return FileResponse(_STATIC / "index.html", media_type="text/html")


_LEAVE_S = 1
"""Seconds that open requests have at the end."""
_SENDING = 128 * 1024
"""Bytes that the system holds for a reader that takes nothing; by default it lets that grow to some megabytes."""


def run(options: Options, access: Access, opened: bool) -> int:
    """Serve, and print the address first. Raises `UserError` if the port is taken."""
    listening = _listening(access.port)
    port = listening.getsockname()[1]
    page = Page(options, access._replace(port=port))
    at = f"http://127.0.0.1:{port}"
    address = f"{at}/#token={page.tokens.page}"
    sys.stdout.write(f"Serving this user's runs. Open: {address}\n")
    if access.proxy:
        sys.stdout.write(f"Through the proxy: https://{access.proxy.host}/#token={page.tokens.page}\n")
    if access.only_reads:
        sys.stdout.write(f"Nobody can decide or change anything here. {access.only_reads}\n")
    sys.stdout.write("Stop with Ctrl-C; runs go on.\n")
    sys.stdout.flush()
    if opened and not webbrowser.open(f"{at}/#token={page.tokens.once()}"):
        sys.stdout.write("No browser was found. Open the address yourself.\n")
        sys.stdout.flush()
    with _found(options.home, at):
        uvicorn.Server(_config(page)).run(sockets=[listening])
    return 0


def _config(page: Page) -> uvicorn.Config:
    return uvicorn.Config(
        page.guard,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_LEAVE_S,
        ws="websockets-sansio",
        ws_max_size=BODY_LIMIT,
        lifespan="on",
    )


def _listening(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENDING)
    try:
        made.bind(("127.0.0.1", port))
        made.listen()  # before the address is printed: whoever reads it may connect at once
    except OSError as error:
        made.close()
        raise UserError(f"Can't serve on port {port}: {error.strerror}. Choose another: --port N") from error
    return made


@contextmanager
def _found(home: Path, at: str) -> Generator[None]:
    """Lets `interlock` say where a run that parks can be decided (`served_at`)."""
    file = home / "server.address"
    file.write_text(f"{os.getpid()} {at}\n")
    try:
        yield
    finally:
        if file.exists() and file.read_text().startswith(f"{os.getpid()} "):
            file.unlink()
