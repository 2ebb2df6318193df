"""renewal: a refused token is renewed before anybody is asked to sign in, which the SDK does only for one whose time is
known to be over."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from mcp.client.auth import OAuthClientProvider

if TYPE_CHECKING:
    from httpx2 import Request, Response
_REFUSED = 401
_OVER = 1.0
"""An expiry time in the past."""
_TURNS, _TURN_S = 150, 0.2
"""How often, and after which seconds, a process looks whether another one has ended its renewal."""


class RenewingProvider(OAuthClientProvider):
    """Takes up what another process has renewed, too: earlier tokens may no longer work."""

    async def async_auth_flow(self, request: "Request") -> "AsyncGenerator[Request, Response]":
        flow = super().async_auth_flow(request)
        with ExitStack() as turn:
            try:
                if not self.context.is_token_valid():
                    await self._lock_and_adopt_tokens(turn)
                outgoing, renewed = await anext(flow), False
                while True:
                    if outgoing is request:
                        turn.close()
                    response = yield outgoing
                    refused = outgoing is request and response.status_code == _REFUSED
                    if refused and self.context.current_tokens and not renewed:
                        renewed = True
                        await flow.aclose()
                        if not await self._lock_and_adopt_tokens(turn) and self.context.can_refresh_token():
                            self.context.token_expiry_time = _OVER
                        flow = super().async_auth_flow(request)
                        outgoing = await anext(flow)
                    else:
                        outgoing = await flow.asend(response)
            except StopAsyncIteration:
                return
            finally:
                await flow.aclose()

    async def _lock_and_adopt_tokens(self, lock_stack: ExitStack) -> bool:
        """As `_adopt_stored_tokens`, once no other process renews: what a token is renewed with may work only once."""
        file: Any = self.context.storage  # a `TokenFile`
        for _ in range(_TURNS if "refresh_token" in file.kept.get("tokens", {}) else 0):
            try:
                lock_stack.enter_context(file.lock_renewal())
                break
            except TimeoutError:
                await asyncio.sleep(_TURN_S)
        return await self._adopt_stored_tokens()

    async def _adopt_stored_tokens(self) -> bool:
        """Return whether the file has other tokens than those in use; from then on these are."""
        file: Any = self.context.storage
        known, before = self.context.current_tokens, file.kept
        if not file.load_tokens():
            file.kept = before
        found = await file.get_tokens()
        if known is None:  # the SDK reads them next
            self.context.token_expiry_time = file.kept.get("expires_at")
        if known is None or found is None or found.access_token == known.access_token:
            return False
        self.context.current_tokens, self.context.token_expiry_time = found, file.kept.get("expires_at")
        return True
