"""connect: from a resolved name to the provider that serves it; a provider is loaded when it is first asked."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import getproxies

from interlock.services.models.names import GEMINI_KEYS, GEMINI_URL, check_package, gemini_key, provider_of
from interlock.services.models.request import Provider
from interlock.services.models.script import ScriptProvider
from interlock.state.errors import CredentialsError

if TYPE_CHECKING:
    from interlock.services.models.gemini import GeminiProvider
    from interlock.services.models.langchain import LangChainProvider


class Providers:
    """Providers of one drive, by name. With `fake` one script answers for all of them."""

    def __init__(self, env: Mapping[str, str], fake: Path | None) -> None:
        self._env = env
        self._fake = ScriptProvider(fake) if fake else None
        self._known: dict[str, Provider] = {}
        self._gemini: GeminiProvider | None = None

    async def get(self, model: str) -> Provider:
        """Raises `UserError` when its package is missing, `CredentialsError` without a key."""
        if self._fake is not None:
            return self._fake
        if model not in self._known:
            self._known[model] = await self._connect(model)
        return self._known[model]

    async def aclose(self) -> None:
        for provider in self._known.values():
            await provider.aclose()
        self._known.clear()
        self._gemini = None

    async def _connect(self, model: str) -> Provider:
        provider = provider_of(model)
        if provider == "script":
            return ScriptProvider(Path(model.partition(":")[2]))
        if provider == "gemini":
            return await self._of_gemini(model)
        check_package(model)
        return await _langchain(model, self._env)

    async def _of_gemini(self, model: str) -> "GeminiProvider":
        """One client for all of its models: to make one takes 0.1 s."""
        if self._gemini is not None:
            return self._gemini.for_model(model)
        self._gemini = await _gemini(model, self._env)
        return self._gemini


# Imports happen in a thread, because they take up to a second: the loop goes on and a cancellation is heard.


async def _gemini(model: str, env: Mapping[str, str]) -> "GeminiProvider":
    key = gemini_key(env)
    if key is None:
        raise CredentialsError(f"No API key for model {model!r}: {' or '.join(GEMINI_KEYS)} is expected.")
    url = env.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL
    provider, tls = await asyncio.gather(asyncio.to_thread(_imported_gemini), asyncio.to_thread(_tls, url))
    return provider(model, key, url, tls)


def _imported_gemini() -> "type[GeminiProvider]":
    from interlock.services.models.gemini import GeminiProvider

    return GeminiProvider


def _tls(url: str) -> ssl.SSLContext:
    """As the client makes it. Reading the certificates takes 35 ms, in which the import beside it goes on."""
    if url.startswith("http://") and not getproxies():
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, should a redirect lead elsewhere
    import certifi

    files, folder = os.environ.get("SSL_CERT_FILE", certifi.where()), os.environ.get("SSL_CERT_DIR")
    return ssl.create_default_context(cafile=files, capath=folder)


async def _langchain(model: str, env: Mapping[str, str]) -> Provider:
    provider = await asyncio.to_thread(_imported_langchain, model)
    return provider(model, env)


def _imported_langchain(model: str) -> "type[LangChainProvider]":
    from interlock.services.models.langchain import LangChainProvider, chat_class

    chat_class(model)
    return LangChainProvider
