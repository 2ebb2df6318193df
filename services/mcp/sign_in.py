"""sign_in: signing in to servers at a URL by the SDK's OAuth client, and what is stored of it.

Tokens are in files readable only by the user and bound to a URL: a server of the same name elsewhere gets none of them.
Headless runs report that sign-in is needed; only `sign_in_with_browser` waits for a browser."""

import asyncio
import hashlib
import json
import shlex
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from interlock.services.files.disk import make_private_directory, read_file
from interlock.services.files.filesystem import lock_folder, replace_private_file_holding_lock
from interlock.services.mcp.spec import ServerSpec
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken


_FOLDER = "oauth"
Learn = Callable[[Mapping[str, str]], None]
"""Called with new secrets, so that they get redacted."""


class TokenFile:
    """The client registration, tokens and OAuth metadata stored for one URL. Implements the SDK's `TokenStorage`."""

    def __init__(self, home: Path, server: str, address: str) -> None:
        """`home`: the state directory."""
        self._folder, self._server, self._address = home / _FOLDER, server, address
        self._path = self._folder / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}.json"
        self._context: Any = None
        """Context of the SDK's provider, which knows where tokens are renewed."""
        self._learn: Learn = lambda _: None
        self.kept: dict[str, Any] = {}

    def load_tokens(self) -> bool:
        """Load the stored data; returns whether it has tokens. A damaged file counts as empty."""
        try:
            found: Any = json.loads(read_file(self._path))
            self.kept = found if found["address"] == self._address else {}
        except (OSError, ValueError, KeyError, TypeError):
            self.kept = {}
        return "tokens" in self.kept

    def delete(self) -> bool:
        """Delete the file; returns whether it existed."""
        there = self._path.exists()
        self._path.unlink(missing_ok=True)
        return there

    def token_secrets(self) -> dict[str, str]:
        if not self.kept:
            self.load_tokens()
        named = {**self.kept.get("client", {}), **self.kept.get("tokens", {})}
        return {
            f"{self._server}.{key}": named[key]
            for key in ("access_token", "refresh_token", "client_secret")
            if isinstance(named.get(key), str)
        }

    def attach_context(self, context: Any, add_secrets: Learn) -> None:
        """Attach the SDK's provider, restoring the expiry and metadata that the SDK itself doesn't persist."""
        from mcp.shared.auth import OAuthMetadata

        self._context, self._learn = context, add_secrets
        context.token_expiry_time = self.kept.get("expires_at")
        if "metadata" in self.kept:
            context.oauth_metadata = OAuthMetadata.model_validate(self.kept["metadata"])

    async def get_tokens(self) -> "OAuthToken | None":
        from mcp.shared.auth import OAuthToken

        return OAuthToken.model_validate(self.kept["tokens"]) if "tokens" in self.kept else None

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        self.kept["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self.kept["expires_at"] = time.time() + tokens.expires_in if tokens.expires_in else None
        if self._context.oauth_metadata is not None:
            self.kept["metadata"] = self._context.oauth_metadata.model_dump(mode="json", exclude_none=True)
        self._learn(self.token_secrets())
        await asyncio.to_thread(self._write_file)

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        from mcp.shared.auth import OAuthClientInformationFull

        return (
            OAuthClientInformationFull.model_validate(self.kept["client"]) if "client" in self.kept else None
        )

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        """Stored along with the next tokens."""
        self.kept["client"] = client_info.model_dump(mode="json", exclude_none=True)

    @contextmanager
    def lock_renewal(self) -> Generator[None]:
        """Hold what only one process may at a time. Raises `TimeoutError` if another one does."""
        folder = self._folder / "renewing"
        make_private_directory(folder)
        with lock_folder(folder, 0):
            yield

    def _write_file(self) -> None:
        make_private_directory(self._folder)
        with lock_folder(self._folder):
            replace_private_file_holding_lock(
                self._path, json.dumps({**self.kept, "address": self._address}).encode()
            )


WAIT_S = 300.0
"""Seconds that a person has to sign in."""
_ANSWER = "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n{text}"
Show = Callable[[str, Callable[[str], str]], None]
"""Called with the sign-in URL and a function: given the URL where a browser elsewhere ended, it returns the reply."""


def sign_in_needed_message(spec: ServerSpec) -> str:
    """Explain a 401 from a server."""
    if any(name.lower() == "authorization" for name in spec.headers or {}):
        return "it refused the Authorization header of settings (401)"
    return f"it wants you to sign in: interlock mcp auth {shlex.quote(spec.name)}"


def load_stored_token_provider(
    spec: ServerSpec, home: Path, add_secrets: Learn, on_lost: Callable[[str], None]
) -> "OAuthClientProvider | None":
    """Return a provider for stored tokens, or None. `on_lost` is called if they are no longer accepted."""
    file = TokenFile(home, spec.name, spec.url)
    if not file.load_tokens():
        return None

    async def nobody(address: str) -> None:  # noqa: ARG001 - where one would sign in
        on_lost(sign_in_needed_message(spec))
        raise UserError(sign_in_needed_message(spec))

    return _make_oauth_provider(file, spec, "http://127.0.0.1/callback", nobody, _refuse_sign_in, add_secrets)


@asynccontextmanager
async def sign_in_with_browser(
    spec: ServerSpec, home: Path, add_secrets: Learn, show_sign_in_url: Show
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
        show_sign_in_url(
            address, lambda ended: _handle_redirect(ended.strip(), back.path, expected, found)[1]
        )

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
        yield _make_oauth_provider(
            TokenFile(home, spec.name, spec.url), spec, address, tell, answer, add_secrets
        )


def _handle_redirect(
    target: str,
    callback_path: str,
    expected_states: list[str],
    code_future: "asyncio.Future[AuthorizationCodeResult]",
) -> tuple[str, str]:
    """Handle the redirect and return the reply to the browser. Only sign-ins started here are accepted."""
    from mcp.shared.auth import AuthorizationCodeResult

    parts = urlsplit(target)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    if parts.path != callback_path or query.get("state") not in expected_states:
        return "404 Not Found", "Nothing was begun here that this would end.\n"
    if "code" not in query:
        why = query.get("error_description") or query.get("error") or "no reason given"
        if not code_future.done():
            code_future.set_exception(UserError(f"The sign-in was refused: {why}."))
        return "200 OK", "You are not signed in. You can close this page.\n"
    if not code_future.done():
        kept = {key: query.get(key) for key in ("code", "state", "iss")}
        code_future.set_result(AuthorizationCodeResult.model_validate(kept))
    return "200 OK", "You are signed in. You can close this page.\n"


async def _refuse_sign_in() -> "AuthorizationCodeResult":
    raise UserError("nobody can sign in here")


def _make_oauth_provider(
    file: TokenFile,
    spec: ServerSpec,
    redirect_uri: str,
    open_sign_in_page: Callable[[str], Awaitable[None]],
    wait_for_code: Callable[[], Awaitable["AuthorizationCodeResult"]],
    add_secrets: Learn,
) -> "OAuthClientProvider":
    from mcp.shared.auth import OAuthClientMetadata

    from interlock.services.mcp.renewal import RenewingProvider

    if spec.oauth.client_id:
        own: dict[str, Any] = {"client_id": spec.oauth.client_id, "redirect_uris": [redirect_uri]}
        if spec.oauth.client_secret:
            method = "client_secret_post"  # as gemini-cli does; the SDK would otherwise send none
            own |= {"client_secret": spec.oauth.client_secret, "token_endpoint_auth_method": method}
        file.kept.setdefault("client", own)
    about = OAuthClientMetadata.model_validate({"client_name": "Interlock", "redirect_uris": [redirect_uri]})
    made = RenewingProvider(spec.url, about, file, open_sign_in_page, wait_for_code)
    file.attach_context(made.context, add_secrets)
    return made
