"""providers: loads the providers of models, each when a drive first asks for it."""

import asyncio
import ssl
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.models.names import (
    check_server_address_and_key,
    find_gemini_key,
    provider_name,
    require_package,
)
from interlock.services.models.network import make_tls_context
from interlock.services.models.request import Provider
from interlock.services.models.script import ScriptProvider
from interlock.services.packages import outdated_package_problem
from interlock.state.errors import CredentialsError, SetupError, UserError
from interlock.state.frames import reserve_stack_space
from interlock.state.names import GEMINI_KEYS, GEMINI_URL

if TYPE_CHECKING:
    from interlock.services.models.facts import ModelFacts
    from interlock.services.models.gemini import GeminiProvider
    from interlock.services.models.langchain import LangChainProvider


class Providers:
    """The providers of one drive, by model. With `fake`, one script answers for all of them."""

    def __init__(
        self,
        env: Mapping[str, str],
        fake: Path | None,
        facts: "ModelFacts",
        scripts: Collection[str] | None = None,
    ) -> None:
        """`scripts`: the only ones that are read; None: any."""
        self._env, self._facts, self._scripts = env, facts, scripts
        self._fake = ScriptProvider(fake) if fake else None
        self._known: dict[str, Provider] = {}
        self._gemini: GeminiProvider | None = None

    async def provider_for(self, model: str) -> Provider:
        """Return the provider. Raises `UserError` if its package is missing, `CredentialsError` without a key."""
        if self._fake is not None:
            return self._fake
        if model not in self._known:
            self._known[model] = await self._create_provider(model)
        return self._known[model]

    async def aclose(self) -> None:
        """Close Gemini's client, on the loop that used it; LangChain's models have no close."""
        if self._gemini is not None:
            await self._gemini.aclose()
        self._known.clear()
        self._gemini = None

    async def _create_provider(self, model: str) -> Provider:
        """Import in a thread: it takes up to a second, and the loop must stay responsive to cancellation."""
        provider = provider_name(model)
        if provider == "script":
            if self._scripts is not None and model not in self._scripts:
                raise UserError(
                    f"The run names {model!r}, a file of this worker that its own settings don't name."
                )
            return ScriptProvider(Path(model.partition(":")[2]))
        check_server_address_and_key(model, self._env)
        if provider != "gemini":
            require_package(model)
            return (await asyncio.to_thread(reserve_stack_space(_import_langchain), model))(
                model, self._env, self._facts
            )
        if self._gemini is None:
            self._gemini = await self._create_gemini_provider(model)
            return self._gemini
        return self._gemini.copy_for_model(
            model
        )  # one client for all of its models: creating one takes 0.1 s

    async def _create_gemini_provider(self, model: str) -> "GeminiProvider":
        key = find_gemini_key(self._env)
        if key is None:
            raise CredentialsError(f"No API key for model {model!r}: {' or '.join(GEMINI_KEYS)} is expected.")
        url = self._env.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL
        provider, made = await asyncio.gather(
            asyncio.to_thread(reserve_stack_space(_import_gemini)), _make_tls_context_in_thread(url)
        )
        return provider(model, key, url, made)


def _import_gemini() -> "type[GeminiProvider]":
    if why := outdated_package_problem("google-genai"):
        raise SetupError(why)
    from interlock.services.models.gemini import GeminiProvider

    return GeminiProvider


async def _make_tls_context_in_thread(url: str) -> ssl.SSLContext:
    """Return a TLS context, made in a thread that ends: a second idle one in the loop's pool is woken in vain with
    the first, 3 % of a turn."""
    with ThreadPoolExecutor(1) as own:
        return await asyncio.get_running_loop().run_in_executor(own, make_tls_context, url)


def _import_langchain(model: str) -> "type[LangChainProvider]":
    from interlock.services.models.langchain import LangChainProvider, load_chat_class

    load_chat_class(model)
    return LangChainProvider
