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
from interlock.web import page_actions, page_events, page_views
from interlock.web.api.app_auth import AppAuth, AppRoutes
from interlock.web.api.routes import build_routes_and_resume_callback
from interlock.web.endpoints import (
    BODY_LIMIT,
    build_routes,
    is_page_shell_path,
    make_endpoint,
    read_json_body,
    read_raw_body,
)
from interlock.web.guard import Access, Guard, Tokens
from interlock.web.isolated_process import IsolatedRunner
from interlock.web.run_resumer import RunResumer

_STATIC = Path(__file__).parent / "static"

TABLE = """
GET   /api/me                         view    views.get_current_person
GET   /api/stats                      view    views.get_statistics
GET   /api/changes                    view    events.stream_changes
GET   /api/requests                   view    views.list_requests
GET   /api/requests/{id}              view    views.get_request
GET   /api/requests/{id}/file         view    views.get_request_file
GET   /api/workflows                  view    views.list_workflows
GET   /api/workflows/{name}           view    views.get_workflow_form
GET   /api/workflows/{name}/diagram   view    views.get_workflow_diagram
GET   /api/runs                       view    views.list_runs
GET   /api/runs/{run}                 view    views.get_run
GET   /api/runs/{run}/events          view    events.stream_run_events
GET   /api/runs/{run}/diagram         view    views.get_run_diagram
GET   /api/runs/{run}/path            view    views.get_run_diagram_marks
GET   /api/runs/{run}/prompt          view    views.get_follow_up_prompt_availability
GET   /api/runs/{run}/steps           view    views.list_steps
GET   /api/runs/{run}/calls           view    views.list_calls
GET   /api/runs/{run}/calls/{call}/output  view    views.get_call_output
GET   /api/runs/{run}/state           view    views.get_state_with_changes
GET   /api/runs/{run}/seen            view    views.get_conversation_extent
GET   /api/runs/{run}/diff            view    views.get_diff
POST  /api/runs/{run}/replay          view    views.replay_run
GET   /api/runs/{run}/export          view    views.export_run
POST  /api/runs                       drive   actions.start_run
POST  /api/runs/{run}/decide          decide  actions.decide_requests
POST  /api/runs/{run}/prompt          drive   actions.send_prompt
POST  /api/runs/{run}/stop            drive   actions.stop_run
POST  /api/runs/{run}/fork            drive   actions.fork_run
POST  /api/runs/{run}/rewind          drive   actions.preview_or_rewind_run
POST  /api/runs/{run}/undo            drive   actions.undo_changes
"""


class PageServer:
    """Answers the page's requests. `options` are those of each run that is started here."""

    def __init__(self, options: Options, access: Access) -> None:
        self.options, self.client = options, Client(options)
        self.served = page_views.PageContext(options, self.client, IsolatedRunner(), RunResumer(options))
        self.tokens, self._port = Tokens(options.home), access.port
        theirs = self.client.load_trusted_langgraph_app()
        visitors = AppAuth(theirs) if theirs and theirs.auth else None
        routes, resume = build_routes_and_resume_callback(self.client, theirs, visitors)
        self._theirs = [AppRoutes(theirs.routes, visitors)] if theirs and theirs.routes else []

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncGenerator[None]:
            if not access.only_reads:
                resume()
                self.served.resumer.resume_abandoned_drives()
            async with AsyncExitStack() as stack:
                if theirs and theirs.routes:
                    await stack.enter_async_context(theirs.routes.router.lifespan_context(theirs.routes))
                yield

        app = Starlette(routes=[*routes, *self._build_routes()], lifespan=lifespan)
        self.guard = Guard(app, self.tokens, access, visitors)

    def _build_routes(self) -> list[BaseRoute]:
        owners = {"views": page_views, "actions": page_actions, "events": page_events}
        return [
            Route("/login", make_endpoint(self.sign_in_tab), methods=["POST"]),
            Route("/proof", make_endpoint(self.answer_tab_challenge), methods=["POST"]),
            Route("/ok", _answer_ok),
            *build_routes(TABLE, owners, self.served),
            Mount("/static", StaticFiles(directory=_STATIC)),
            *self._theirs,
            Route("/{path:path}", _serve_page_shell),
        ]

    async def sign_in_tab(self, request: Request) -> Response:
        """Exchange the token of the address for one of the tab."""
        given = (await read_raw_body(request)).decode(errors="replace")
        if not (self.tokens.redeem_sign_in_code(given) or await self._is_page_token_throttled(given)):
            detail = "Too many wrong tokens. Wait a minute." if self.guard.is_locked_out else "Wrong token."
            return JSONResponse({"detail": detail}, 429 if self.guard.is_locked_out else 401)
        return JSONResponse({"token": self.tokens.create_tab_token(self._port)})

    async def answer_tab_challenge(self, request: Request) -> Response:
        """Show a tab that it was this home's server that gave it its token, before it sends that again."""
        given = await read_json_body(request)
        about, challenge = (str(given.get(name)) for name in ("about", "challenge"))
        return JSONResponse({"proof": self.tokens.answer_challenge(about, challenge, self._port)})

    async def _is_page_token_throttled(self, token: str) -> bool:
        """Return whether it is the token of the page: those of programs and tabs sign no browser in."""
        return await self.guard.find_token_holder_throttled(token) is not None and self.tokens.is_page_token(
            token
        )


async def _answer_ok(_: Request) -> Response:
    return JSONResponse({"ok": True})


async def _serve_page_shell(request: Request) -> Response:
    if not is_page_shell_path(request.url.path):
        return JSONResponse({"detail": "Not Found"}, 404)
    return FileResponse(_STATIC / "index.html", media_type="text/html")


_LEAVE_S = 1
"""Seconds that open requests have at the end."""
_SENDING = 128 * 1024
"""Bytes that the system holds for a reader that takes nothing; by default it lets that grow to some megabytes."""


def serve_page(options: Options, access: Access, open_browser: bool) -> int:
    """Serve, and print the address first. Raises `UserError` if the port is taken."""
    listening = _open_listening_socket(access.port)
    port = listening.getsockname()[1]
    page = PageServer(options, access._replace(port=port))
    at = f"http://127.0.0.1:{port}"
    address = f"{at}/#token={page.tokens.page_token}"
    sys.stdout.write(f"Serving this user's runs. Open: {address}\n")
    if access.proxy:
        sys.stdout.write(f"Through the proxy: https://{access.proxy.host}/#token={page.tokens.page_token}\n")
    if access.only_reads:
        sys.stdout.write(f"Nobody can decide or change anything here. {access.only_reads}\n")
    sys.stdout.write("Stop with Ctrl-C; runs go on.\n")
    sys.stdout.flush()
    if open_browser and not webbrowser.open(f"{at}/#token={page.tokens.create_sign_in_code()}"):
        sys.stdout.write("No browser was found. Open the address yourself.\n")
        sys.stdout.flush()
    config = uvicorn.Config(
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
    with _publish_server_address(options.home, at):
        uvicorn.Server(config).run(sockets=[listening])
    return 0


def _open_listening_socket(port: int) -> socket.socket:
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
def _publish_server_address(home: Path, address: str) -> Generator[None]:
    """Lets `interlock` say where a run that parks can be decided (`served_at`)."""
    file = home / "server.address"
    file.write_text(f"{os.getpid()} {address}\n")
    try:
        yield
    finally:
        if file.exists() and file.read_text().startswith(f"{os.getpid()} "):
            file.unlink()
