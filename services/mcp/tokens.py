"""tokens: what is stored of a sign-in to a server, in files readable only by the user and bound to a URL."""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.services.files.disk import make_private_directory, read_file
from interlock.services.files.filesystem import lock_folder, replace_file

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


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

    def read(self) -> bool:
        """Load the stored data; returns whether it has tokens. A damaged file counts as empty."""
        try:
            found: Any = json.loads(read_file(self._path))
            self.kept = found if found["address"] == self._address else {}
        except (OSError, ValueError, KeyError, TypeError):
            self.kept = {}
        return "tokens" in self.kept

    def forget(self) -> bool:
        """Delete the file; returns whether it existed."""
        there = self._path.exists()
        self._path.unlink(missing_ok=True)
        return there

    def secrets(self) -> dict[str, str]:
        if not self.kept:
            self.read()
        named = {**self.kept.get("client", {}), **self.kept.get("tokens", {})}
        return {
            f"{self._server}.{key}": named[key]
            for key in ("access_token", "refresh_token", "client_secret")
            if isinstance(named.get(key), str)
        }

    def bind(self, context: Any, learn: Learn) -> None:
        """Attach the SDK's provider, restoring the expiry and metadata that the SDK itself doesn't persist."""
        from mcp.shared.auth import OAuthMetadata

        self._context, self._learn = context, learn
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
        self._learn(self.secrets())
        await asyncio.to_thread(self._write)

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

    def _write(self) -> None:
        make_private_directory(self._folder)
        with lock_folder(self._folder):
            replace_file(self._path, json.dumps({**self.kept, "address": self._address}).encode())
