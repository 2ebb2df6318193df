"""clients: the HTTP clients of providers' packages, made so that each byte of an answer is heard of (`keepalive`)."""

from collections.abc import Mapping
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from interlock.services.models.names import PUBLIC_URLS, make_tls_context, prepare_response
from interlock.services.models.thinking import speaks_openai_protocol

_HOOKS = {"response": [prepare_response]}


def http_client_options(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a LangChain class that give it a client of ours; empty: it makes its own."""
    url = str(options.get("base_url") or options.get("azure_endpoint") or "")
    names = {one.__name__ for one in cls.__mro__}
    if speaks_openai_protocol(cls):
        return {"http_async_client": _make_http_client("openai", url)}
    if "ChatGroq" in names:
        return {"http_async_client": _make_http_client("groq", url)}
    if "ChatOllama" in names:
        return {"async_client_kwargs": {"event_hooks": _HOOKS}}
    return _mistral_client_options(options) if "ChatMistralAI" in names else {}


def _make_http_client(package: str, url: str) -> Any:
    """Return the package's default client. It loads no certificates for a plain address: that takes 20 ms."""
    return import_module(package).DefaultAsyncHttpxClient(verify=make_tls_context(url), event_hooks=_HOOKS)


def _mistral_client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the client that LangChain would make, but for the certificates, which it takes from nowhere else."""
    import httpx

    url = options.get("base_url") or PUBLIC_URLS["mistralai"]
    headers = {"Accept": "application/json", "Authorization": f"Bearer {options.get('api_key', '')}"}
    made = httpx.AsyncClient(
        base_url=url, headers=headers, timeout=None, verify=make_tls_context(url), event_hooks=_HOOKS
    )
    return {"async_client": made}


@cache
def with_own_http_client(cls: type[Any]) -> type[Any]:
    """Return the class with a client of ours, where no option gives it one: Anthropic's."""
    if all(one.__name__ != "ChatAnthropic" for one in cls.__mro__):
        return cls

    class Heard(cls):
        @cached_property
        def _async_client(self) -> Any:
            anthropic, options = import_module("anthropic"), self._client_params
            made = _make_http_client("anthropic", str(options.get("base_url") or ""))
            return anthropic.AsyncClient(**options, http_client=made)

    return Heard
