"""guard: lets a request through only with a known Host and Origin, a token, and a body of bounded size."""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.engine.client.api_rows import (
    insert_api_row,
    list_api_rows,
    remove_api_row,
    update_api_row_if_exists,
)
from interlock.services.files.disk import replace_private_file
from interlock.state.errors import InterlockError
from interlock.web.api.app_auth import AppAuth
from interlock.web.endpoints import BODY_LIMIT, is_page_shell_path
from interlock.web.roles import Person

_TRIES, _REFUSED_S, _SLOW_S = 5, 60.0, 0.3
"""Wrong tokens within `_REFUSED_S` seconds after which wrong ones answer 429; each is slowed."""
_RECHECK_S = 2.0
"""Seconds for which a stream isn't checked again."""
_MAX_NAME = 100
"""Characters of a person's name."""
_OPEN = ("/login", "/proof", "/ok")
_TAB_PREFIX = "tab."
"""Begins the tokens of tabs."""
_TAB_LIFETIME_S = 30 * 24 * 3600
"""Seconds for which a tab stays signed in."""
_NO_WORKER = "self.skipWaiting(); self.addEventListener('activate', () => self.registration.unregister());"
"""In place of a service worker, which only another program that had the port before can have registered."""
SIGN_IN = "Not signed in. Open the page with: interlock serve --open. Programs send a token in a header."
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_SHARED = {
    "access-control-allow-methods": "GET, POST, PUT, PATCH, DELETE",
    "access-control-allow-headers": "authorization, content-type, last-event-id, x-api-key",
    "access-control-expose-headers": "content-location, location, x-pagination-next, x-pagination-total",
    "cross-origin-resource-policy": "cross-origin",
}
"""For the sites of `--allow-origin`."""


class Tokens:
    """The token of this user's page, in a file (0600), and those of programs, by their hashes in the store."""

    def __init__(self, home: Path) -> None:
        self._home, self._page, self._once = home, home / "page.token", ""
        home.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def page_token(self) -> str:
        """Kept, so that tabs stay signed in when the server starts again."""
        if not self._page.exists():
            replace_private_file(self._page, secrets.token_urlsafe(32))
        return self._page.read_text()

    def list_active_program_tokens(self) -> dict[str, dict[str, str]]:
        """Return role and hash by the name of each token that counts, the oldest first."""
        found = reversed(list_api_rows(self._home, "token"))
        return {one.id: one.body for one in found if not one.body["revoked"]}

    def create_or_replace_program_token(self, name: str, role: str) -> str:
        """Return a new token, which is shown once; one of the same name stops working."""
        token = secrets.token_urlsafe(32)
        kept = {"role": role, "sha256": _hash_token(token), "revoked": False}
        remove_api_row(self._home, "token", name)
        insert_api_row(self._home, "token", name, kept)
        return token

    def revoke_program_token(self, name: str) -> bool:
        """Revoke a token; its name stays with what it decided. False: there is none."""
        if found := name in self.list_active_program_tokens():
            update_api_row_if_exists(self._home, "token", name, {"revoked": True})
        return found

    def create_sign_in_code(self) -> str:
        """A code that signs one browser in. Others on this machine can see the command line that opens a browser."""
        self._once = secrets.token_urlsafe(32)
        return self._once

    def redeem_sign_in_code(self, code: str) -> bool:
        """Return whether this is the code; it counts no more."""
        if found := bool(self._once) and hmac.compare_digest(code.encode(), self._once.encode()):
            self._once = ""
        return found

    def is_page_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.page_token.encode())

    def create_tab_token(self, port: int) -> str:
        """A token for one tab of the page, which counts at this port only, also after the server starts again."""
        about = f"{int(time.time()) + _TAB_LIFETIME_S}.{secrets.token_urlsafe(12)}"
        return f"{_TAB_PREFIX}{about}.{self._tab_signature(about, port)}"

    def _tab_signature(self, token_payload: str, port: int) -> str:
        return hmac.new(
            self.page_token.encode(), f"{_TAB_PREFIX}{port}.{token_payload}".encode(), hashlib.sha256
        ).hexdigest()

    def answer_challenge(self, token_payload: str, challenge: str, port: int) -> str:
        """Return what only a server of this home can answer to a tab, which then sends its token again."""
        return hmac.new(
            self._tab_signature(token_payload, port).encode(), challenge.encode(), hashlib.sha256
        ).hexdigest()

    def _is_valid_tab_token(self, token: str, port: int) -> bool:
        about, _, given = token.removeprefix(_TAB_PREFIX).rpartition(".")
        until = about.partition(".")[0]
        same = hmac.compare_digest(given.encode(), self._tab_signature(about, port).encode())
        return same and until.isdecimal() and time.time() < int(until)

    def find_token_holder(self, token: str, port: int) -> Person | None:
        if self.is_page_token(token):
            return Person("", "drive")
        if token.startswith(_TAB_PREFIX):
            return Person("", "drive") if self._is_valid_tab_token(token, port) else None
        digest = _hash_token(token)
        for name, kept in self.list_active_program_tokens().items():
            if hmac.compare_digest(kept["sha256"], digest):
                return Person(name, kept["role"])
        return None


class Proxy(NamedTuple):
    """A proxy on this machine that serves the page to others over HTTPS, and knows who they are."""

    host: str
    """As browsers name it, with the port unless that is 443."""
    header: str
    """Holds the person's name."""


class Access(NamedTuple):
    """Where the server answers, and to whom."""

    port: int
    """0: any that is free."""
    only_reads: str = ""
    """Why nobody may decide or change anything; empty: their roles say what they may."""
    proxy: Proxy | None = None
    origins: Collection[str] = ()
    """Other sites whose scripts may send requests with a token."""


class Guard:
    """Stands before the whole application."""

    def __init__(self, app: ASGIApp, tokens: Tokens, access: Access, app_auth: AppAuth | None = None) -> None:
        """`app_auth`: lets programs in where the app that is served has an `auth` of its own."""
        self._app, self._tokens, self._app_auth = app, tokens, app_auth
        self._port, self._only_reads, self._proxy, self._origins = access
        self._hosts = {f"{name}:{self._port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self._wrong: list[float] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        origin = Headers(scope=scope).get("origin", "")
        sender = _add_security_headers(send, origin if origin in self._origins else "")
        if refusal := await self._check_request_or_refuse(scope):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await refusal(scope, receive, sender)
            return
        scope["state"]["cut"] = partial(_abort_connection, send)
        if scope["type"] == "websocket":
            await self._app(scope, receive, self._stop_sending_when_revoked(scope, send))
        else:
            await self._app(scope, _limit_body_size(receive), self._stop_sending_when_revoked(scope, sender))

    def _stop_sending_when_revoked(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that ends a stream, which may last for days, when its token is revoked."""
        checked = time.monotonic()

        async def send_unless_revoked(message: Message) -> None:
            nonlocal checked
            goes_on = message.get("more_body") or message["type"] == "websocket.send"
            if goes_on and time.monotonic() - checked >= _RECHECK_S:
                if await self._check_request_or_refuse(scope):
                    return scope["state"]["cut"]()
                checked = time.monotonic()
            await send(message)

        return send_unless_revoked

    async def _check_request_or_refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may read the one and this server the other: what follows would be another person's request.
            return _refusal_response(
                400, "A request has a content-length or a transfer-encoding, not both.", close=True
            )
        proxied = self._proxy is not None and headers.get("host", "") == self._proxy.host
        if not proxied and headers.get("host", "") not in self._hosts:
            return _refusal_response(421, "This server answers for 127.0.0.1 and localhost only.")
        origin = headers.get("origin")
        own = (
            {f"https://{self._proxy.host}"}
            if proxied and self._proxy
            else {f"http://{h}" for h in self._hosts}
        )
        method = scope.get("method", "")
        if origin in self._origins:
            return (
                Response(status_code=204)
                if method == "OPTIONS"
                else await self._authenticate_or_refuse(scope, headers)
            )
        if origin is not None and origin not in own:
            return _refusal_response(403, f"Requests from {origin!r} are refused: it is another site.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and method != "GET":
            return _refusal_response(403, "Requests from another site are refused.")
        return await self._authenticate_or_refuse(scope, headers)

    async def _authenticate_or_refuse(self, scope: Scope, headers: Headers) -> Response | None:
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > BODY_LIMIT:
            return _refusal_response(413, f"The body is larger than {BODY_LIMIT:,} bytes.")
        path = str(scope["path"])
        if headers.get("service-worker"):
            return Response(_NO_WORKER, media_type="text/javascript")
        if scope.get("method") == "GET" and is_page_shell_path(path):
            return self._loopback_redirect_or_none(scope, headers)
        if path in _OPEN:
            return None
        way = self._app_auth.required_authentication(path, scope) if self._app_auth else "token"
        if way == "open":
            return None
        if self._app_auth and way == "visitor":
            try:  # a token of ours doesn't count for an app that knows its users
                person = await self._app_auth.authenticate(scope)
            except InterlockError as error:
                return _refusal_response(getattr(error, "status", 401), str(error))
        else:
            person = await self._identify_token_holder(headers)
            if isinstance(person, Response):
                return person
        scope["state"]["person"] = (
            person._replace(role="view", why=self._only_reads) if self._only_reads else person
        )
        return None

    def _loopback_redirect_or_none(self, scope: Scope, headers: Headers) -> Response | None:
        """Redirect to the one address at which nobody else can listen: `localhost` may be another program's `[::1]`."""
        host = headers.get("host", "")
        if host.startswith("127.") or (self._proxy and host == self._proxy.host):
            return None
        query = scope["query_string"].decode("latin-1")
        there = f"http://127.0.0.1:{self._port}{scope['path']}{'?' if query else ''}{query}"
        return RedirectResponse(there)

    async def _identify_token_holder(self, headers: Headers) -> Person | Response:
        """Return who sent a request, or a refusal unless it has a token in a header.

        A cookie counts for nothing: browsers send those of this server to every other one on the same host, whatever
        its port.
        """
        token = headers.get("x-api-key") or _token_from_header(headers.get("authorization", ""))
        person = await self.find_token_holder_throttled(token) if token else None
        if person is None and self.is_locked_out:
            return _refusal_response(429, "Too many wrong tokens. Wait a minute.")
        if person is None:
            return _refusal_response(401, SIGN_IN)
        if self._proxy and headers.get("host") == self._proxy.host:
            name = headers.get(self._proxy.header, "").strip()[:_MAX_NAME]
            if not name:
                return _refusal_response(
                    401, f"The proxy sent no user name: {self._proxy.header} is missing."
                )
            if not person.name:  # a program has its token's: it could send any other
                person = person._replace(name=name)
        return person

    async def find_token_holder_throttled(self, token: str) -> Person | None:
        """Whose token it is; each wrong one is slowed. The right one counts at any time: 256 bits aren't guessed."""
        found = await asyncio.to_thread(self._tokens.find_token_holder, token, self._port)
        if found is None:
            if not self.is_locked_out:
                self._wrong.append(time.monotonic())
            await asyncio.sleep(_SLOW_S)
        return found

    @property
    def is_locked_out(self) -> bool:
        self._wrong = [at for at in self._wrong if time.monotonic() - at < _REFUSED_S]
        return len(self._wrong) >= _TRIES


def _abort_connection(send: Send) -> None:
    """End a connection at once, with what it still holds: closing would wait until a reader takes that."""
    transport = getattr(
        getattr(send, "__self__", None), "transport", None
    )  # uvicorn's; ASGI has no word for it
    if isinstance(transport, asyncio.Transport):
        transport.abort()


def _limit_body_size(receive: Receive) -> Receive:
    """Return a `receive` that ends a body that says no length before it is too long."""
    taken = 0

    async def receive_within_limit() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        return {"type": "http.disconnect"} if taken > BODY_LIMIT else message

    return receive_within_limit


def _add_security_headers(send: Send, allowed_origin: str) -> Send:
    """`allowed_origin`: the other site that may read the answer."""
    more = {**_HEADERS, "cache-control": "no-store"}
    if allowed_origin:
        more |= {**_SHARED, "access-control-allow-origin": allowed_origin, "vary": "origin"}

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((n.encode(), v.encode()) for n, v in more.items() if n.encode() not in there),
            ]
        await send(message)

    return send_with_headers


def _token_from_header(header: str) -> str:
    """The token of an `Authorization` header; as a password, it comes from an address such as http://x:TOKEN@host."""
    kind, _, given = header.partition(" ")
    if kind.lower() != "basic":
        return given.strip() if kind.lower() == "bearer" else header
    try:
        return base64.b64decode(given).decode().partition(":")[2]
    except ValueError:
        return given


def _refusal_response(status: int, detail: str, close: bool = False) -> Response:
    return JSONResponse({"detail": detail}, status, {"connection": "close"} if close else None)


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
