"""connect: from a resolved name to the provider that serves it; a provider is loaded when it is first asked.

LangSmith stays off, whatever the environment says: no run is sent to a third party.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import getproxies

from interlock.services.models.names import check_package, gemini_key, provider_of
from interlock.services.models.request import Provider
from interlock.services.models.script import ScriptProvider
from interlock.state.errors import CredentialsError
from interlock.state.names import GEMINI_KEYS, GEMINI_URL

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
        """Imports happen in a thread: they take up to a second, the loop goes on and a cancellation is heard."""
        provider = provider_of(model)
        if provider == "script":
            return ScriptProvider(Path(model.partition(":")[2]))
        if provider != "gemini":
            check_package(model)
            return (await asyncio.to_thread(_imported_langchain, model))(model, self._env)
        if self._gemini is None:
            self._gemini = await self._of_gemini(model)
            return self._gemini
        return self._gemini.for_model(model)  # one client for all of its models: to make one takes 0.1 s

    async def _of_gemini(self, model: str) -> "GeminiProvider":
        key = gemini_key(self._env)
        if key is None:
            raise CredentialsError(f"No API key for model {model!r}: {' or '.join(GEMINI_KEYS)} is expected.")
        url = self._env.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL
        imported, tls = asyncio.to_thread(_imported_gemini), asyncio.to_thread(_tls, url)
        provider, made = await asyncio.gather(imported, tls)
        return provider(model, key, url, made)


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


def _imported_langchain(model: str) -> "type[LangChainProvider]":
    from interlock.services.models.langchain import LangChainProvider, chat_class

    chat_class(model)
    return LangChainProvider


def turn_tracing_off() -> None:
    """For this process. LangGraph traces too, so the engine calls this before it builds a graph."""
    import langsmith

    langsmith.configure(enabled=False)


def quiet_clients() -> None:
    """Keep client libraries from writing warnings to stderr; what matters in them comes back as errors and problems."""
    for name in ("google_genai", "langchain_google_genai", "langchain_openai"):
        logging.getLogger(name).addHandler(logging.NullHandler())
