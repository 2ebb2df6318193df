"""remote: signing in to servers at a URL, by the SDK's OAuth client.

Tokens are stored in files readable only by the user and bound to a URL: a server of the same name elsewhere gets none
of them. Headless runs report that sign-in is needed; only `sign_in` waits for a browser.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from interlock.services.mcp.endpoint import sign_in_needed_message
from interlock.services.mcp.spec import ServerSpec
from interlock.services.mcp.tokens import Learn, TokenFile
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult


WAIT_S = 300.0
"""Seconds that a person has to sign in."""
_ANSWER = "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n{text}"
Show = Callable[[str, Callable[[str], str]], None]
"""Called with the sign-in URL and a function: given the URL where a browser elsewhere ended, it returns the reply."""


def stored_token_provider(
    spec: ServerSpec, home: Path, learn: Learn, lost: Callable[[str], None]
) -> "OAuthClientProvider | None":
    """Return a provider for stored tokens, or None. `lost` is called if they are no longer accepted."""
    file = TokenFile(home, spec.name, spec.url)
    if not file.read():
        return None

    async def nobody(address: str) -> None:  # noqa: ARG001 - where one would sign in
        lost(sign_in_needed_message(spec))
        raise UserError(sign_in_needed_message(spec))

    return _make_oauth_provider(file, spec, "http://127.0.0.1/callback", nobody, _refuse_sign_in, learn)


@asynccontextmanager
async def sign_in_with_browser(
    spec: ServerSpec, home: Path, learn: Learn, show: Show
) -> AsyncGenerator["OAuthClientProvider"]:
    """Yield a provider that has a person sign in with a browser redirected to this machine. Raises `UserError`."""
    back = urlsplit(spec.oauth.redirect_uri or "http://127.0.0.1:0/callback")
    found: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
    expected: list[str] = []

    async def come_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("latin-1").split(" ")
        status, text = _handle_redirect(line[1] if len(line) > 1 else "", back.path, expected, found)
        writer.write(_ANSWER.format(status=status, size=len(text), text=text).encode())
        await writer.drain()
        writer.close()

    async def tell(address: str) -> None:
        if urlsplit(address).scheme not in ("http", "https"):
            raise UserError(
                f"MCP server {spec.name!r} wants you to sign in at {address!r}, which isn't a web page."
            )
        expected.extend(parse_qs(urlsplit(address).query).get("state", []))
        show(address, lambda ended: _handle_redirect(ended.strip(), back.path, expected, found)[1])

    async def answer() -> "AuthorizationCodeResult":
        try:
            return await asyncio.wait_for(found, WAIT_S)
        except TimeoutError:
            raise UserError(f"Nobody signed in within {WAIT_S / 60:g} minutes. Try again.") from None

    try:
        listener = await asyncio.start_server(come_back, back.hostname, back.port or 0)
    except OSError as error:
        raise UserError(f"Can't listen at {back.hostname}:{back.port}: {error.strerror}.") from None
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        address = spec.oauth.redirect_uri or f"http://127.0.0.1:{port}{back.path}"
        yield _make_oauth_provider(TokenFile(home, spec.name, spec.url), spec, address, tell, answer, learn)


def _handle_redirect(
    target: str, path: str, expected: list[str], found: "asyncio.Future[AuthorizationCodeResult]"
) -> tuple[str, str]:
    """Handle the redirect and return the reply to the browser. Only sign-ins started here are accepted."""
    from mcp.shared.auth import AuthorizationCodeResult

    parts = urlsplit(target)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    if parts.path != path or query.get("state") not in expected:
        return "404 Not Found", "Nothing was begun here that this would end.\n"
    if "code" not in query:
        why = query.get("error_description") or query.get("error") or "no reason given"
        if not found.done():
            found.set_exception(UserError(f"The sign-in was refused: {why}."))
        return "200 OK", "You are not signed in. You can close this page.\n"
    if not found.done():
        kept = {key: query.get(key) for key in ("code", "state", "iss")}
        found.set_result(AuthorizationCodeResult.model_validate(kept))
    return "200 OK", "You are signed in. You can close this page.\n"


async def _refuse_sign_in() -> "AuthorizationCodeResult":
    raise UserError("nobody can sign in here")


def _make_oauth_provider(
    file: TokenFile,
    spec: ServerSpec,
    back: str,
    tell: Callable[[str], Awaitable[None]],
    answer: Callable[[], Awaitable["AuthorizationCodeResult"]],
    learn: Learn,
) -> "OAuthClientProvider":
    from mcp.shared.auth import OAuthClientMetadata

    from interlock.services.mcp.renewal import RenewingProvider

    if spec.oauth.client_id:
        own: dict[str, Any] = {"client_id": spec.oauth.client_id, "redirect_uris": [back]}
        if spec.oauth.client_secret:
            method = "client_secret_post"  # as gemini-cli does; the SDK would otherwise send none
            own |= {"client_secret": spec.oauth.client_secret, "token_endpoint_auth_method": method}
        file.kept.setdefault("client", own)
    about = OAuthClientMetadata.model_validate({"client_name": "Interlock", "redirect_uris": [back]})
    made = RenewingProvider(spec.url, about, file, tell, answer)
    file.bind(made.context, learn)
    return made
