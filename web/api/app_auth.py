"""app_auth: who an app lets in, and to what: the handlers of LangGraph's `Auth` that its langgraph.json names.

With them, programs show what the app asks for in place of a token of Interlock's, reach only the app's graphs and the
threads that were made for it, and see of those what its handlers let them see. Whatever isn't asked is refused.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from interlock.engine.client.api_rows import ApiRow
from interlock.state.errors import as_bug_error
from interlock.web.endpoints import (
    RefusedError,
    check_role,
    error_response,
    first_path_segment,
    is_page_shell_path,
    read_json_body,
    read_json_list_body,
)
from interlock.web.roles import Person

API_PATHS = frozenset({"info", "assistants", "threads", "runs", "store"})
"""First parts of the paths that the app's handlers guard."""
_PAGE_PATHS = frozenset({"api", "login", "proof", "ok", "static"})
USER_KEYS = ("langgraph_auth_user", "langgraph_auth_user_id", "langgraph_auth_permissions")
"""What graphs find of a user in `configurable`: no program gives it."""


@dataclass(frozen=True)
class Visibility:
    """What a request may see."""

    app: str | None = ""
    """The langgraph.json whose threads and assistants it sees; empty: what belongs to no app with `auth`; None: all."""
    graphs: frozenset[str] | None = None
    """None: all."""
    user: Mapping[str, Any] = field(default_factory=dict[str, Any])
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Resource → what its metadata must have."""

    def includes(self, resource: str, row: ApiRow) -> bool:
        owner = self.app is None or row.body.get("app", "") == self.app
        return owner and matches_auth_filter(self.filters.get(resource) or {}, row.body.get("metadata") or {})


_OF_SERVER = Visibility(None)
VISIBILITY: ContextVar[Visibility] = ContextVar("SIGHT", default=_OF_SERVER)
"""Of a request. The server itself sees all."""


def is_visible(resource: str, row: ApiRow) -> bool:
    return VISIBILITY.get().includes(resource, row)


def can_see_runs_without_thread() -> bool:
    """Return whether a request sees runs that no program made a thread of: an app's users see none."""
    return not VISIBILITY.get().app


def can_see_graph(graph: str) -> bool:
    graphs = VISIBILITY.get().graphs
    return graphs is None or graph in graphs


def can_see_system_assistant(assistant: ApiRow) -> bool:
    """Return whether a request sees the assistant that a workflow is: it belongs to nobody."""
    filters = VISIBILITY.get().filters
    return matches_auth_filter(filters.get("assistants") or {}, assistant.body.get("metadata") or {})


def ownership_fields() -> dict[str, str]:
    """Return the fields of a new thread or assistant that say whose it is."""
    return {"app": app} if (app := VISIBILITY.get().app) else {}


def configurable_user_fields() -> dict[str, Any]:
    """Return what a graph finds of the user in its `configurable`."""
    user = VISIBILITY.get().user
    if not user:
        return {}
    return dict(zip(USER_KEYS, (user, user["identity"], user["permissions"]), strict=True))


def matches_auth_filter(auth_filter: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether metadata has what a handler's filter asks for. Raises `RefusedError` for a filter of another form."""
    for key, value in auth_filter.items():
        if key in ("$or", "$and"):
            held = [matches_auth_filter(one, metadata) for one in value]
            if not (any(held) if key == "$or" else all(held)):
                return False
            continue
        terms = cast("dict[str, Any]", value if isinstance(value, dict) else {"$eq": value})
        if not all(_matches_operator(kind, given, metadata.get(key)) for kind, given in terms.items()):
            return False
    return True


def _matches_operator(operator: str, wanted: Any, value: Any) -> bool:
    if operator == "$eq":
        return value is not None and value == wanted
    if operator == "$contains":
        held = cast("list[Any]", value) if isinstance(value, list) else []
        return all(
            one in held for one in (cast("list[Any]", wanted) if isinstance(wanted, list) else [wanted])
        )
    raise RefusedError(
        500, f"The app's `auth` filters by {operator!r}; expected $eq, $contains, $or or $and."
    )


class AppAuth:
    """Asks an app's handlers."""

    def __init__(self, app: Any) -> None:
        """`app`: of a langgraph.json with `auth`."""
        self.app, self._auth = app, app.auth

    def required_authentication(self, path: str, scope: Any) -> str:
        """What a request needs: `visitor`: to be let in by the app, `open`: nothing, `token`: one of Interlock's."""
        if first_path_segment(path) in API_PATHS:
            return "visitor"
        if first_path_segment(path) in _PAGE_PATHS:
            return "token"
        if self.app.routes is not None and has_matching_route(self.app.routes, scope):
            return "visitor" if self.app.http.get("enable_custom_route_auth") else "open"
        return "token"

    async def authenticate(self, scope: Any) -> Person:
        """Return whom a request comes from. Raises `RefusedError` as the app refuses it."""
        try:
            user = parse_authenticated_user(
                await _call_handler(self._auth._authenticate_handler, _authentication_arguments(scope))
            )
        except Exception as error:
            raise _to_refused_error(error, 401) from error
        return Person(user["identity"], "drive", user=user)

    async def authorize(
        self, person: Person, resource: str, action: str, value: dict[str, Any]
    ) -> Visibility:
        """Return what a person may see of a request's subject; `value` may be changed. Raises `RefusedError`."""
        if person.user is None:
            raise RefusedError(401, "This app lets in whom its own `auth` knows.")
        sight = Visibility(str(self.app.listing), self.app.graphs, person.user)
        if not resource:
            return sight
        handler = self._find_most_specific_handler(resource, action)
        if handler is None and resource == "store":
            raise RefusedError(403, "The store is open to those whom a handler `@auth.on.store` lets in.")
        if handler is None:
            return sight
        from langgraph_sdk import Auth

        about = Auth.types.AuthContext(
            permissions=person.user["permissions"],
            user=cast(Any, AuthUser(person.user)),
            resource=cast(Any, resource),
            action=cast(Any, action),
        )
        try:
            said = await _call_handler(handler, {"ctx": about, "value": value}, pass_all=True)
        except Exception as error:
            raise _to_refused_error(error, 403) from error
        if said in (None, True):
            return sight
        if not isinstance(said, dict):
            raise RefusedError(403, "Forbidden")
        return Visibility(sight.app, sight.graphs, sight.user, {resource: said})

    def _find_most_specific_handler(self, resource: str, action: str) -> Any:
        """Return the most specific handler; of equals the last."""
        keys = [(resource, action), (resource, "*"), ("*", action), ("*", "*")]
        found = next((self._auth._handlers[key] for key in keys if self._auth._handlers.get(key)), None)
        return (found or self._auth._global_handlers or [None])[-1]


async def authorize_thread_action(
    app_auth: AppAuth | None, person: Person, action: str, value: dict[str, Any]
) -> Visibility:
    """Return what a person may see of a thread. Raises `RefusedError`."""
    return await app_auth.authorize(person, "threads", action, value) if app_auth else Visibility()


class AuthUser(dict[str, Any]):
    """A user as handlers read it: by key, or by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def parse_authenticated_user(returned: Any) -> dict[str, Any]:
    """Return a user as JSON, of what a handler returned. Raises `ValueError`."""
    if isinstance(returned, tuple):  # scopes, user
        scopes, user = cast("tuple[Any, Any]", returned)
        return {**parse_authenticated_user(user), "permissions": [*scopes]}
    fields: dict[str, Any] = (
        {"identity": returned} if isinstance(returned, str) else _user_attributes(returned)
    )
    if not isinstance(fields.get("identity"), str) or not fields["identity"]:
        raise ValueError("the function `@auth.authenticate` returned no identity")
    permissions: list[str] = []
    usual = {"is_authenticated": True, "display_name": fields["identity"], "permissions": permissions}
    return {**usual, **fields}


def _user_attributes(user: Any) -> dict[str, Any]:
    if isinstance(user, Mapping):
        return {str(key): value for key, value in cast("Mapping[Any, Any]", user).items()}
    dump = getattr(user, "model_dump", None) or getattr(user, "dict", None)
    return cast("dict[str, Any]", dump()) if callable(dump) else {"identity": getattr(user, "identity", None)}


def _authentication_arguments(scope: Any) -> dict[str, Any]:
    """Return what a function that authenticates may ask for."""
    headers = dict(scope.get("headers", ()))
    given = headers.get(b"authorization")
    return {
        "request": Request(scope) if scope["type"] == "http" else None,
        "path": scope["path"],
        "method": scope.get("method"),
        "path_params": scope.get("path_params", {}),
        "query_params": QueryParams(scope.get("query_string", b"")),
        "headers": headers,
        "authorization": given.decode("latin-1") if given is not None else None,
        "scope": scope,
    }


async def _call_handler(handler: Any, arguments: Mapping[str, Any], pass_all: bool = False) -> Any:
    """Call a handler with what it asks for, in a thread if it isn't async."""
    wanted = inspect.signature(handler).parameters
    named = {key: value for key, value in arguments.items() if pass_all or key in wanted}
    if inspect.iscoroutinefunction(handler):
        return await handler(**named)
    made = await asyncio.to_thread(partial(handler, **named))
    return await made if inspect.isawaitable(made) else made


def _to_refused_error(error: Exception, status: int) -> RefusedError:
    """Return the answer that an exception of a handler means; one that isn't meant as an answer lets nobody in."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(found := getattr(error, "status_code", None), int):
        return RefusedError(found, str(getattr(error, "detail", "") or "Unauthorized"))
    if isinstance(error, AssertionError):
        return RefusedError(status, str(error) or "Forbidden")
    return RefusedError(500, f"The app's `auth` failed: {type(error).__name__}: {error}")


def add_authorization(
    handler: Callable[[Request], Awaitable[Any]], resource_action: str, app_auth: AppAuth | None
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that sees what its request may see. `resource_action`: the resource and action that an app's `auth`
    is asked about; `-`: to be known is enough."""
    resource, _, action = resource_action.partition(".")

    async def endpoint(request: Request) -> Response:
        if app_auth is None:
            VISIBILITY.set(Visibility())
        elif resource_action == "-":
            VISIBILITY.set(await app_auth.authorize(request.state.person, "", "", {}))
        elif request.url.path == "/runs/batch":
            request.state.batch = [
                await _authorize_request_and_rewrite_body(request, app_auth, "threads", "create_run", one)
                for one in await read_json_list_body(request)
            ]
        else:
            given = dict[str, Any](request.query_params)
            if request.method in ("POST", "PUT", "PATCH", "DELETE"):
                given = await read_json_body(request) if await request.body() else {}
            request.state.given = await _authorize_request_and_rewrite_body(
                request, app_auth, resource, action, given
            )
        return await handler(request)

    return endpoint


async def _authorize_request_and_rewrite_body(
    request: Request, app_auth: AppAuth, resource: str, action: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Let what follows see what the app's `auth` lets it see; returns the body as that changed it."""
    value = _authorization_value(request, resource, body)
    VISIBILITY.set(await app_auth.authorize(request.state.person, resource, action, value))
    return _apply_handler_changes(body, value, resource)


_NAMESPACES = ("namespace", "namespace_prefix", "prefix")


def _authorization_value(request: Request, resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a handler is shown of a request."""
    names = {
        f"{name}_id": request.path_params[name]
        for name in ("thread", "assistant", "run")
        if name in request.path_params
    }
    value = {**body, **names}
    if resource == "store":
        found: Any = next((body[name] for name in _NAMESPACES if body.get(name)), None)
        found = found.split(".") if isinstance(found, str) else found
        value["namespace"] = tuple(cast("list[Any]", found)) if isinstance(found, list) else ()
    else:
        value["metadata"] = (
            {**(body.get("metadata") or {})} if isinstance(body.get("metadata") or {}, dict) else {}
        )
    return value


def _apply_handler_changes(
    body: Mapping[str, Any], changed: Mapping[str, Any], resource: str
) -> dict[str, Any]:
    """Return a request's body with what a handler changed in it: its metadata or namespace."""
    if resource != "store":
        return {**body, **({"metadata": changed["metadata"]} if changed.get("metadata") else {})}
    return {**body, **{key: [*changed["namespace"]] for key in _NAMESPACES}}


def has_matching_route(app: Any, scope: Any) -> bool:
    """Return whether one of an application's own routes answers a request."""
    return any(route.matches(scope)[0] is not Match.NONE for route in app.router.routes)


class AppRoutes(BaseRoute):
    """The routes of an app's `http.app`."""

    def __init__(self, app: Any, app_auth: AppAuth | None) -> None:
        self._app, self._app_auth = app, app_auth

    def matches(self, scope: Any) -> tuple[Match, Any]:
        is_theirs = scope["type"] in ("http", "websocket") and not is_page_shell_path(scope["path"])
        found = is_theirs and has_matching_route(self._app, scope)
        return (Match.FULL, {}) if found else (Match.NONE, {})

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Without `auth` they need the role `drive`: only their author knows what they do."""
        try:
            if self._app_auth is None:
                check_role(scope["state"]["person"], "drive")
            await self._app(scope, receive, send)
        except RefusedError as error:
            await error_response(error.status, error)(scope, receive, send)
        except Exception as error:
            raise as_bug_error(error) from error
