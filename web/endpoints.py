"""endpoints: what every answer needs: roles, errors with a status, and checked bodies and numbers."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from interlock.engine.client import FORBIDDEN, Client, CodeForbiddenError, Options, RunRow
from interlock.engine.client.fleet import submission_options
from interlock.state.errors import BusyError, InterlockError, UserError, as_bug_error
from interlock.state.text import clean_json
from interlock.web.roles import Person, required_role

BODY_LIMIT = 8_000_000
"""Bytes of one request's body."""
_PAGES = ("request", "run", "all", "start", "flows", "stats")
_MAX_PRIORITY = 100
"""Priority, as of `run --priority`."""


_Wrap = Callable[..., Callable[[Request], Awaitable[Response]]]


class RefusedError(InterlockError):
    """An answer with a status of its own."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def make_endpoint(
    handler: Callable[[Request], Awaitable[Any]], role: str = ""
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for those who have a role, or for everybody; errors become a status and one line."""

    async def endpoint(request: Request) -> Response:
        try:
            if role:
                check_role(request.state.person, required_role(role, request.query_params))
                forbid_user_code_without_drive_role(request.state.person)
            made = await handler(request)
            return made if isinstance(made, Response) else JSONResponse(made)
        except RefusedError as error:
            return error_response(error.status, error)
        except CodeForbiddenError as error:
            return error_response(403, error)
        except InterlockError as error:
            return error_response(
                409 if isinstance(error, BusyError) else 422 if isinstance(error, UserError) else 400, error
            )
        except Exception as error:
            return error_response(500, as_bug_error(error))

    return endpoint


def build_routes(
    table: str, handler_owners: Mapping[str, Any], *first_arguments: Any, wrap_handler: _Wrap | None = None
) -> list[Route]:
    """Return the routes of a table: method, path, the role that it needs, and whose function answers.

    It is called with `first_arguments` and the request. A function that isn't async answers in a thread.
    `wrap_handler` is called with what answers, and with what stands after it.
    """
    found: list[Route] = []
    for method, path, role, name, *more in (line.split() for line in table.strip().splitlines()):
        owner, _, function = name.partition(".")
        answer: Any = partial(getattr(handler_owners[owner], function), *first_arguments)
        answer = answer if iscoroutinefunction(answer) else partial(asyncio.to_thread, answer)
        answer = wrap_handler(answer, *more) if wrap_handler else answer
        found.append(Route(path, make_endpoint(answer, role), methods=[method]))
    return found


def check_role(person: Person, role: str) -> None:
    """Raise `RefusedError` for somebody who may less."""
    if not person.has_at_least_role(role):
        why = person.why or f"This token has {person.role!r}."
        raise RefusedError(403, f"This needs the role {role!r}. {why}")


def forbid_user_code_without_drive_role(person: Person) -> None:
    """Let what answers this person run no code of users, unless they may start runs: files change, and a look at a run
    must not run what they hold now."""
    why = person.why or f"This token has {person.role!r}."
    FORBIDDEN.set("" if person.has_at_least_role("drive") else f"That needs the role 'drive'. {why}")


def error_response(status: int, error: InterlockError) -> Response:
    return JSONResponse({"detail": str(error)}, status)


def run_from_path(client: Client, request: Request) -> RunRow:
    """Return the run that the address names by its full id. Raises `RefusedError`."""
    name = request.path_params["run"]
    row = client.find_exact_run(name)
    if row is None:
        raise RefusedError(404, f"There is no run {name!r}. It may have been deleted.")
    return row


async def read_json_body(request: Request) -> dict[str, Any]:
    """Return the request's JSON object. Raises `RefusedError`."""
    if (seen := getattr(request.state, "given", None)) is not None:  # as an app's `auth` changed it
        return seen
    return require_json_object(await _parse_json_body(request), "body")


async def read_json_list_body(request: Request) -> list[dict[str, Any]]:
    """Return the request's JSON array of objects. Raises `RefusedError`."""
    given = await _parse_json_body(request)
    if not isinstance(given, list):
        raise RefusedError(422, "`body` must be a JSON array of runs.")
    return [require_json_object(one, "body") for one in cast("list[Any]", given)]


async def _parse_json_body(request: Request) -> object:
    """Return the request's JSON. Raises `RefusedError`, also for what is nested too deeply."""
    try:
        return clean_json(json.loads(await read_raw_body(request), object_pairs_hook=_reject_repeated_keys))
    except (ValueError, RecursionError):
        raise RefusedError(422, "Invalid JSON in request body") from None


def _reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raises `RefusedError` for a key that it has twice: one of the two answers would be dropped."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RefusedError(422, f"The JSON object has the key {twice!r} twice.")
    return made


async def read_raw_body(request: Request) -> bytes:
    """Return the request's body. Raises `RefusedError` if the guard cut it."""
    try:
        return await request.body()
    except ClientDisconnect:
        raise RefusedError(413, f"The body is larger than {BODY_LIMIT:,} bytes.") from None


def require_json_object(value: object, name: str) -> dict[str, Any]:
    """Return a JSON object, `name` says whose. Raises `RefusedError`."""
    if not isinstance(value, dict):
        raise RefusedError(422, f"`{name}` must be a JSON object.")
    return cast("dict[str, Any]", value)


def read_query_number(request: Request, name: str, default: int) -> int:
    """Return a number of the query; whatever is none counts as `default`."""
    given = request.query_params.get(name, "")
    return int(given) if re.fullmatch(r"\d{1,9}", given) else default


def build_submission_options(
    options: Options, body: Mapping[str, Any], person: Person
) -> dict[str, Any] | None:
    """Return whose limits over all workers a run counts for, and its priority; None: the store has no workers.

    Raises `RefusedError`.
    """
    if options.submitted is None:
        return None
    priority = body.get("priority", options.submitted["priority"])
    if type(priority) is not int or abs(priority) > _MAX_PRIORITY:
        raise RefusedError(
            422, f"`priority` must be a whole number from -{_MAX_PRIORITY} to {_MAX_PRIORITY}."
        )
    env = options.env if options.queue else None
    return submission_options(options.home, priority, person.name, env)


def read_query_step(request: Request, run: str) -> int | None:
    """Return the step that the query names; None: the newest. Raises `RefusedError`."""
    step = request.query_params.get("step", "")
    if not re.fullmatch(r"(-?\d{1,9})?", step):
        raise RefusedError(
            422, f"{step[:40]!r} isn't a step. Expected a number; see: interlock history {run}"
        )
    return int(step) if step else None


def is_page_shell_path(path: str) -> bool:
    """Return whether a path is the page itself, which holds no data."""
    return path == "/" or path.startswith("/static/") or first_path_segment(path) in _PAGES


def first_path_segment(path: str) -> str:
    """Return the first name of a path, empty for `*` or `x`, which a request may ask for."""
    return path.split("/")[1] if "/" in path else ""
