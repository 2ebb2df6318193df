"""app: the application of `interlock serve`: the page, and the addresses of its data and of what a person does."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from interlock.cli.web import acts, looks
from interlock.cli.web.answers import RefusedError, Served, answering, failed, run_of, whole
from interlock.cli.web.apart import Apart
from interlock.cli.web.api.routes import routes as api_routes
from interlock.cli.web.guard import Access, Guard, Tokens, is_shell
from interlock.cli.web.stats import stats
from interlock.cli.web.stream import EventStream, changes, events
from interlock.engine.client import Client, Options
from interlock.engine.client.record import Cursor

_STATIC = Path(__file__).parent / "static"
_SIGNED_S = 30 * 24 * 3600
"""Seconds that a browser stays signed in."""

Answer = Callable[[Served, Request], Awaitable[Any]]


class Page:
    """Answers the page's requests. `options` are those of each run that is started here."""

    def __init__(self, options: Options, access: Access) -> None:
        self.options, self.client = options, Client(options)
        self.served = Served(options, self.client, Apart())
        self.tokens = Tokens(options.home)
        routes, resume = api_routes(self.client, answering)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncGenerator[None]:
            if not access.only_reads:
                resume()
            yield

        app = Starlette(routes=[*routes, *self._routes()], lifespan=lifespan)
        self.guard = Guard(app, self.tokens, access)

    def _routes(self) -> list[BaseRoute]:
        def look(path: str, answer: Answer) -> Route:
            return Route(path, answering(lambda request: answer(self.served, request), "view"))

        def act(path: str, role: str, answer: Answer) -> Route:
            return Route(
                path, answering(lambda request: answer(self.served, request), role), methods=["POST"]
            )

        return [
            Route("/login", self.login, methods=["POST"]),
            Route("/ok", _ok),
            look("/stats", stats),
            *self._own(look, act),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route("/{path:path}", _shell),
        ]

    @staticmethod
    def _own(look: Callable[[str, Answer], Route], act: Callable[[str, str, Answer], Route]) -> list[Route]:
        run = "/api/runs/{run}"
        return [
            look("/api/me", _me),
            look("/api/changes", _changes),
            look("/api/requests", looks.requests),
            look("/api/requests/{id}", looks.request),
            look("/api/requests/{id}/file", looks.request_file),
            look("/api/workflows", looks.workflows),
            look("/api/workflows/{name}", looks.workflow),
            look("/api/workflows/{name}/diagram", looks.workflow_diagram),
            look("/api/runs", looks.runs),
            look(run, looks.run),
            look(f"{run}/events", _events),
            look(f"{run}/diagram", looks.diagram),
            look(f"{run}/steps", looks.steps),
            look(f"{run}/calls", looks.calls),
            look(f"{run}/calls/{{call}}/output", looks.output),
            look(f"{run}/state", looks.state),
            look(f"{run}/seen", looks.seen),
            look(f"{run}/diff", looks.diff),
            look(f"{run}/replay", looks.replay),
            look(f"{run}/export", looks.export),
            act("/api/runs", "drive", acts.start),
            act(f"{run}/decide", "decide", acts.decide),
            act(f"{run}/prompt", "drive", acts.prompt),
            act(f"{run}/stop", "drive", acts.stop),
            act(f"{run}/fork", "drive", acts.fork),
            act(f"{run}/rewind", "drive", acts.rewind),
            act(f"{run}/undo", "drive", acts.undo),
        ]

    async def login(self, request: Request) -> Response:
        """Exchange the token of the address for a cookie."""
        try:
            given = (await whole(request)).decode(errors="replace")
        except RefusedError as error:
            return failed(error.status, error)
        if not (self.tokens.spent(given) or await self._is_page(given)):
            detail = "Too many wrong tokens. Wait a minute." if self.guard.locked else "Wrong token."
            return JSONResponse({"detail": detail}, 429 if self.guard.locked else 401)
        made = JSONResponse({})
        made.set_cookie(self.guard.cookie, self.tokens.cookie, _SIGNED_S, httponly=True, samesite="strict")
        return made

    async def _is_page(self, token: str) -> bool:
        """Whether it is the token of the page: those of programs sign no browser in."""
        person = await self.guard.known(token)
        return person is not None and not person.name


async def _events(page: Served, request: Request) -> Response:
    row = run_of(page.client, request)
    cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
    Cursor.read(cursor)  # refused here: a stream that has begun can't tell its reader
    return EventStream(events(page.client, row.run, cursor))


async def _changes(page: Served, _: Request) -> Response:
    return EventStream(changes(page.client))


async def _me(_: Served, request: Request) -> dict[str, str]:
    return request.state.person._asdict()


async def _ok(_: Request) -> Response:
    return JSONResponse({"ok": True})


async def _shell(request: Request) -> Response:
    if not is_shell(request.url.path):
        return JSONResponse({"detail": "Not Found"}, 404)
    return FileResponse(_STATIC / "index.html", media_type="text/html")
