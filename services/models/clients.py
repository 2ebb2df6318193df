"""clients: the HTTP clients of providers' packages, made so that each byte of an answer is heard of (`keepalive`)."""

from collections.abc import Mapping
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from interlock.services.models.names import PUBLIC, prepare_response, tls
from interlock.services.models.thinking import is_of_openai

_HOOKS = {"response": [prepare_response]}


def client_options(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a LangChain class that give it a client of ours; empty: it makes its own."""
    url = str(options.get("base_url") or options.get("azure_endpoint") or "")
    names = {one.__name__ for one in cls.__mro__}
    if is_of_openai(cls):
        return {"http_async_client": _default_client("openai", url)}
    if "ChatGroq" in names:
        return {"http_async_client": _default_client("groq", url)}
    if "ChatOllama" in names:
        return {"async_client_kwargs": {"event_hooks": _HOOKS}}
    return _mistral_client(options) if "ChatMistralAI" in names else {}


def _default_client(package: str, url: str) -> Any:
    """Return the package's default client. It loads no certificates for a plain address: that takes 20 ms."""
    return import_module(package).DefaultAsyncHttpxClient(verify=tls(url), event_hooks=_HOOKS)


def _mistral_client(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the client that LangChain would make, but for the certificates, which it takes from nowhere else."""
    import httpx

    url = options.get("base_url") or PUBLIC["mistralai"]
    headers = {"Accept": "application/json", "Authorization": f"Bearer {options.get('api_key', '')}"}
    made = httpx.AsyncClient(base_url=url, headers=headers, timeout=None, verify=tls(url), event_hooks=_HOOKS)
    return {"async_client": made}


@cache
def with_own_client(cls: type[Any]) -> type[Any]:
    """Return the class with a client of ours, where no option gives it one: Anthropic's."""
    if all(one.__name__ != "ChatAnthropic" for one in cls.__mro__):
        return cls

    class Heard(cls):
        @cached_property
        def _async_client(self) -> Any:
            anthropic, options = import_module("anthropic"), self._client_params
            made = _default_client("anthropic", str(options.get("base_url") or ""))
            return anthropic.AsyncClient(**options, http_client=made)

    return Heard
