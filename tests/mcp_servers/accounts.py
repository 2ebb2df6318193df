"""accounts: an in-memory OAuth server that says yes (or no) for the person, and a browser that follows it."""

import time
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()"


class Accounts(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """`with Behind("http", accounts=Accounts())`."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.lives_s = 3600
        self.says_no = False
        self.asked: list[str] = []
        """The grants that tokens were issued for, in order."""

    def settings(self, origin: str, url: str) -> AuthSettings:
        may = ClientRegistrationOptions(enabled=True)
        return AuthSettings.model_validate(
            {
                "issuer_url": origin,
                "resource_server_url": url,
                "validate_token_resource": True,
                "client_registration_options": may,
            }
        )

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        back = str(params.redirect_uri)
        if self.says_no:
            return construct_redirect_uri(back, error="access_denied", state=params.state)
        code = f"code-{len(self.codes)}"
        known = params.model_dump(exclude={"state", "scopes"})
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            client_id=client.client_id,
            expires_at=time.time() + 60,
            **known,
        )
        return construct_redirect_uri(back, code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(client, authorization_code.resource, "code")

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        return self._tokens(client, refresh_token.resource, "refresh")

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.access.get(token)
        return found if found and (found.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: Any) -> None:
        self.refresh.pop(token.token, None)

    def _tokens(self, client: OAuthClientInformationFull, resource: str | None, by: str) -> OAuthToken:
        self.asked.append(by)
        number = len(self.asked)
        known: dict[str, Any] = {"client_id": client.client_id, "scopes": [], "resource": resource}
        access, refresh = f"access-to-everything-{number}", f"refresh-of-everything-{number}"
        # Lasts until the next request: expiry shows as a 401.
        ends = int(time.time()) + self.lives_s
        self.access[access] = AccessToken(token=access, expires_at=ends, **known)
        self.refresh[refresh] = RefreshToken(token=refresh, **known)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.lives_s)
