"""renewal: a refused token is renewed before anybody is asked to sign in, which the SDK does only for one whose time is
known to be over."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, cast

from mcp.client.auth import OAuthClientProvider

if TYPE_CHECKING:
    from httpx2 import Request, Response

    from interlock.services.mcp.remote import TokenFile

_REFUSED = 401
_OVER = 1.0
"""An expiry time in the past."""


class RenewingProvider(OAuthClientProvider):
    """Takes up what another process has renewed, too: earlier tokens may no longer work."""

    async def async_auth_flow(self, request: "Request") -> "AsyncGenerator[Request, Response]":
        flow = super().async_auth_flow(request)
        try:
            if not self.context.is_token_valid():
                await self._take_up()
            outgoing, renewed = await anext(flow), False
            while True:
                response = yield outgoing
                refused = outgoing is request and response.status_code == _REFUSED
                if refused and self.context.current_tokens and not renewed:
                    renewed = True
                    await flow.aclose()
                    if not await self._take_up() and self.context.can_refresh_token():
                        self.context.token_expiry_time = _OVER
                    flow = super().async_auth_flow(request)
                    outgoing = await anext(flow)
                else:
                    outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _take_up(self) -> bool:
        """Whether the file has other tokens than those in use; from then on these are."""
        file, known = cast("TokenFile", self.context.storage), self.context.current_tokens
        before = file.kept
        if not file.read():
            file.kept = before
        found = await file.get_tokens()
        if known is None or found is None or found.access_token == known.access_token:
            return False
        self.context.current_tokens, self.context.token_expiry_time = found, file.kept.get("expires_at")
        return True
