"""app: the application of `interlock serve`: the page, its data, and what a person does there."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from interlock.cli.web import drives
from interlock.cli.web.driver import Work
from interlock.cli.web.guard import BODY_LIMIT, ROLES, Guard, Tokens
from interlock.cli.web.stats import stats
from interlock.cli.web.stream import events
from interlock.engine.client import Client, Decision, Options, RunRow
from interlock.engine.client.record import Cursor
from interlock.engine.client.requests import Asked, answered, asked, rewritten
from interlock.state.errors import BusyError, InterlockError, UserError, bug

_STATIC = Path(__file__).parent / "static"
_PAGE = 100
"""Runs in one answer."""
_LOOKS = 500
"""At 20 ms, for the row of a run that has begun."""

Answer = Callable[["Page", Request], Awaitable[Any]]


class RefusedError(InterlockError):
    """An answer with a status of its own."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Page:
    """Answers the page's requests. `options` are those of each run that is started here."""

    def __init__(self, options: Options, port: int, read_only: bool) -> None:
        self.options, self.client = options, Client(options)
        self.tokens = Tokens(options.home)
        self.guard = Guard(Starlette(routes=self._routes()), self.tokens, port, read_only)

    def _routes(self) -> list[Route | Mount]:
        def route(path: str, role: str, answer: Answer, method: str = "GET") -> Route:
            return Route(path, self._answering(answer, role), methods=[method])

        run = "/api/runs/{run}"
        return [
            Route("/login", self.login, methods=["POST"]),
            Route("/ok", _ok),
            route("/api/runs", "view", Page.runs),
            route("/api/runs", "drive", Page.start, "POST"),
            route("/stats", "view", stats),
            route("/api/requests", "view", Page.requests),
            route("/api/workflows", "view", Page.workflows),
            route("/api/workflows/{name}", "view", Page.workflow),
            route("/api/workflows/{name}/diagram", "view", Page.workflow_diagram),
            route(run, "view", Page.run),
            route(f"{run}/events", "view", Page.events),
            route(f"{run}/diagram", "view", Page.diagram),
            route(f"{run}/steps", "view", Page.steps),
            route(f"{run}/calls", "view", Page.calls),
            route(f"{run}/state", "view", Page.state),
            route(f"{run}/diff", "view", Page.diff),
            route(f"{run}/decide", "decide", Page.decide, "POST"),
            route(f"{run}/prompt", "drive", Page.prompt, "POST"),
            route(f"{run}/stop", "drive", Page.stop, "POST"),
            route(f"{run}/fork", "drive", Page.fork, "POST"),
            route(f"{run}/undo", "drive", Page.undo, "POST"),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route("/{path:path}", _shell),
        ]

    def _answering(self, answer: Answer, role: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                mine = request.state.person.role
                if ROLES.index(mine) < ROLES.index(role):
                    raise RefusedError(
                        403, f"This needs the role {role!r}; this token or server has {mine!r}."
                    )
                made = await answer(self, request)
                return made if isinstance(made, Response) else JSONResponse(made)
            except RefusedError as error:
                return _failed(error.status, error)
            except BusyError as error:
                return _failed(409, error)
            except UserError as error:
                return _failed(422, error)
            except InterlockError as error:
                return _failed(400, error)
            except Exception as error:
                return _failed(500, bug(error))

        return endpoint

    async def login(self, request: Request) -> Response:
        """Exchange the token of the address for a cookie."""
        try:
            given = (await _whole(request)).decode(errors="replace")
        except RefusedError as error:
            return _failed(error.status, error)
        person = await self.guard.known(given)
        if person is None or person.name:
            detail = "Too many wrong tokens. Wait a minute." if self.guard.locked else "Wrong token."
            return JSONResponse({"detail": detail}, 429 if self.guard.locked else 401)
        made = JSONResponse({})
        made.set_cookie(self.guard.cookie, self.tokens.cookie, httponly=True, samesite="strict")
        return made

    async def runs(self, request: Request) -> Any:
        asked_for = request.query_params
        words, status = asked_for.get("q", "").lower(), asked_for.get("status") or None
        first = _number(request, "start", 0)
        rows = await asyncio.to_thread(self.client.runs, status)
        found = [
            row for row in rows if words in f"{row.run} {row.workflow} {row.title} {row.workspace}".lower()
        ]
        return {"runs": [row._asdict() for row in found[first : first + _PAGE]], "total": len(found)}

    async def requests(self, request: Request) -> Any:
        run = request.query_params.get("run")
        if run:
            self._run(run)
        waiting = await asyncio.to_thread(self.client.requests, run)
        titles = {row.run: row for row in self.client.runs()}
        return [
            {
                **one._asdict(),
                "asked": _plain(asked(one.fields)),
                "title": titles[one.run].title if one.run in titles else "",
            }
            for one in waiting
        ]

    async def workflows(self, _: Request) -> Any:
        from interlock.graphs import PIPELINES

        own, _ignored = await asyncio.to_thread(self.client.own_workflows)
        shipped = [{"name": name, "summary": summary, "problem": ""} for name, summary in PIPELINES.items()]
        return [*({"name": w.name, "summary": w.summary, "problem": w.problem} for w in own), *shipped]

    async def workflow(self, request: Request) -> Any:
        found = await asyncio.to_thread(self.client.workflow, request.path_params["name"])
        return {
            "name": found.name,
            "summary": found.summary,
            "schema": found.input.model_json_schema(),
            "prompt": found.prompt_field,
        }

    async def workflow_diagram(self, request: Request) -> Any:
        found = await asyncio.to_thread(self.client.workflow, request.path_params["name"])
        return await asyncio.to_thread(_drawn, found, _depth(request), None)

    async def run(self, request: Request) -> Any:
        row = self._run(request.path_params["run"])
        taken = [step for step in self.client.steps(row.run) if not step.node.startswith("__")]
        return {
            **row._asdict(),
            "node": taken[-1].node if taken else "",
            "steps": len(taken),
            "costs": await asyncio.to_thread(self.client.costs, row.run),
            "resume": f"interlock resume {row.run}",
        }

    async def events(self, request: Request) -> Any:
        row = self._run(request.path_params["run"])
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
        Cursor.read(cursor)  # refused here: a stream that has begun can't tell its reader
        return StreamingResponse(events(self.client, row.run, cursor), media_type="text/event-stream")

    async def diagram(self, request: Request) -> Any:
        row = self._run(request.path_params["run"])
        at = Client(replace(self.options, workspace=Path(row.workspace)))
        try:
            workflow = await asyncio.to_thread(at.workflow, row.workflow)
        except InterlockError:  # its folder is gone: ours of that name
            workflow = self.client.workflow(row.workflow)
        taken = (self.client.step_rows(row.run), row.status, self.client.waits(row.run))
        return await asyncio.to_thread(_drawn, workflow, _depth(request), taken)

    async def steps(self, request: Request) -> Any:
        row = self._run(request.path_params["run"])
        return [step._asdict() for step in await asyncio.to_thread(self.client.steps, row.run)]

    async def calls(self, request: Request) -> Any:
        from interlock.engine.client.deciders import came_to, who_decided

        row = self._run(request.path_params["run"])
        made = await asyncio.to_thread(self.client.calls, row.run)
        return [{**call._asdict(), "who": who_decided(call), "came_to": came_to(call)} for call in made]

    async def state(self, request: Request) -> Any:
        row, step = self._run(request.path_params["run"]), request.query_params.get("step", "")
        if not re.fullmatch(r"(-?\d{1,9})?", step):
            raise RefusedError(
                422, f"{step[:40]!r} is no step. Expected a number; see: interlock history {row.run}"
            )
        values = await asyncio.to_thread(self.client.state, row.run, int(step) if step else None)
        return Response(_json(values), media_type="application/json")

    async def diff(self, request: Request) -> Any:
        row = self._run(request.path_params["run"])
        return {"diff": await asyncio.to_thread(self.client.diff, row.run)}

    async def start(self, request: Request) -> Any:
        given = await body(request)
        run = self.client.new_id()
        folder = Path(str(given.get("workspace") or self.options.workspace or Path.cwd()))
        if not folder.is_dir():
            raise RefusedError(422, f"There is no folder {str(folder)!r}. Give a folder that exists.")
        values = _object(given.get("input") or {}, "input")
        work = Work(replace(self.options, workspace=folder), run, str(given.get("workflow")), values)
        await drives.begin(work)
        for _ in range(_LOOKS):  # its first event comes before its row
            if any(row.run == run for row in self.client.runs()):
                return {"run": run}
            await asyncio.sleep(0.02)
        raise RefusedError(500, f"Run {run!r} began, and isn't in the store. See: interlock doctor --store")

    async def decide(self, request: Request) -> Any:
        row, given = self._run(request.path_params["run"]), await body(request)
        waiting = {one.id: one.fields for one in self.client.requests(row.run)}
        decisions = given.get("decisions")
        if not isinstance(decisions, list) or not decisions:
            raise RefusedError(422, "`decisions` must be a list of objects with `id` and `choice`.")
        made = [_decision(waiting, _object(one, "decisions")) for one in cast("list[Any]", decisions)]
        await asyncio.to_thread(self.client.decide, row.run, made, request.state.person.name)
        if self._run(row.run).status != "running":  # its driver takes the answer up
            await self._go_on(row)
        return {"decided": len(made)}

    async def prompt(self, request: Request) -> Any:
        row, given = self._run(request.path_params["run"]), await body(request)
        text = str(given.get("prompt") or "").strip()
        await self._go_on(row, text or None)
        return {"run": row.run}

    async def stop(self, request: Request) -> Any:
        row = self._run(request.path_params["run"])
        await asyncio.to_thread(drives.stop, self.client, row.run)
        return {"run": row.run}

    async def fork(self, request: Request) -> Any:
        row, given = self._run(request.path_params["run"]), await body(request)
        step, here = given.get("step"), bool(given.get("in_place"))
        if not isinstance(step, int | None):
            raise RefusedError(
                422, f"`step` must be a number, not {step!r}. See: interlock history {row.run}"
            )
        made = await asyncio.to_thread(lambda: self.client.fork(row.run, step, in_place=here))
        return {"run": made.run}

    async def undo(self, request: Request) -> Any:
        row, given = self._run(request.path_params["run"]), await body(request)
        call = given.get("call")
        changed = await asyncio.to_thread(self.client.undo, row.run, None if call is None else str(call))
        return {"changed": [change._asdict() for change in changed]}

    async def _go_on(self, row: RunRow, prompt: str | None = None) -> None:
        options = replace(self.options, workspace=None, approval_mode=None, mode=None)
        await drives.begin(Work(options, row.run, prompt=prompt))

    def _run(self, name: str) -> RunRow:
        row = next((row for row in self.client.runs() if row.run == name), None)
        if row is None:
            raise RefusedError(404, f"There is no run {name!r}. It may have been deleted.")
        return row


def _decision(waiting: Any, given: Any) -> Decision:
    """The decision that a person's answer makes. Raises `UserError`, or `RefusedError` for one that no longer waits."""
    name, choice, text = str(given.get("id")), given.get("choice"), str(given.get("text") or "")
    request = waiting.get(name)
    if request is None:
        raise RefusedError(409, f"Request {name!r} no longer waits: it was decided elsewhere, or withdrawn.")
    if choice == "modify":
        return rewritten(request, _object(given.get("args") or {}, "args"))
    if request["kind"] == "question" and choice == "proceed_once":
        return answered(request, [text])
    spoken = text if request["kind"] == "outcome" else None
    return Decision(name, choice, feedback=text if choice == "reject" and not spoken else None, text=spoken)


async def body(request: Request) -> dict[str, Any]:
    """The request's JSON object. Raises `RefusedError`."""
    try:
        given = json.loads(await _whole(request))
    except (ValueError, RecursionError):
        raise RefusedError(422, "Invalid JSON in request body") from None
    return _object(given, "body")


async def _whole(request: Request) -> bytes:
    """The request's body. Raises `RefusedError` if the guard cut it."""
    try:
        return await request.body()
    except ClientDisconnect:
        raise RefusedError(413, f"The body is larger than {BODY_LIMIT:,} bytes.") from None


def _object(given: object, name: str) -> dict[str, Any]:
    """A JSON object, `name` says whose. Raises `RefusedError`."""
    if not isinstance(given, dict):
        raise RefusedError(422, f"`{name}` must be a JSON object.")
    return cast("dict[str, Any]", given)


def _plain(words: Asked) -> dict[str, Any]:
    """A request's words as JSON has them, with the names of their parts."""
    rows = ("ways", "parts")
    questions = [{"text": q.text, "options": [o._asdict() for o in q.options]} for q in words.questions]
    named = {name: [one._asdict() for one in getattr(words, name)] for name in rows}
    return {**asdict(words), **named, "questions": questions}


def _json(values: object) -> bytes:
    return json.dumps(values, default=repr).encode()


def _depth(request: Request) -> int:
    return min(_number(request, "depth", 1) or 1, 4)


def _number(request: Request, name: str, default: int) -> int:
    """A number of the query; whatever is none counts as `default`."""
    given = request.query_params.get(name, "")
    return int(given) if re.fullmatch(r"\d{1,9}", given) else default


def _drawn(workflow: Any, depth: int, taken: Any) -> Response:
    from interlock.engine.diagrams import path_of, render

    drawn = render(workflow, "svg", depth, path_of(*taken) if taken else None)
    return Response(drawn, media_type="image/svg+xml")


def _failed(status: int, error: InterlockError) -> Response:
    return JSONResponse({"detail": str(error)}, status)


async def _ok(_: Request) -> Response:
    return JSONResponse({"ok": True})


async def _shell(request: Request) -> Response:
    from interlock.cli.web.guard import is_shell

    if not is_shell(request.url.path):
        return JSONResponse({"detail": "Not Found"}, 404)
    return FileResponse(_STATIC / "index.html", media_type="text/html")
