"""servers: what a model's own server says of itself: the models it has, their window, whether it constrains answers."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from interlock.services.models.names import provider_of, provider_spec

Kind = Literal["", "llama.cpp", "ollama", "vllm", "lm studio"]
_OWNERS: Mapping[str, Kind] = {"llamacpp": "llama.cpp", "library": "ollama", "vllm": "vllm"}
"""What servers name as the owner of a model → their kind."""
_OLLAMA = "http://127.0.0.1:11434"
_WAIT_S = 2.0
"""Seconds for each question; a server that is busy may be asked again."""


@dataclass(frozen=True)
class Server:
    """A server of models. Only one nearby is asked what it is; of others nothing is known."""

    url: str = ""
    near: bool = False
    """On this machine or in a private network."""
    kind: Kind = ""
    models: Mapping[str, int | None] | None = None
    """Model → window in tokens, None if it isn't told; None: the server didn't answer."""

    @property
    def constrains(self) -> bool:
        """Whether it is known to hold answers to a JSON Schema."""
        return bool(self.kind)


def server_of(model: str, env: Mapping[str, str], *, ask: bool = True) -> Server:
    """The server of `provider:model`; `ask`: whether one nearby is asked what it is."""
    url = url_of(model, env)
    near = bool(url) and is_near(url)
    if not near or not ask:
        return Server(url, near)
    spec = provider_spec(provider_of(model))
    return asked(url, env.get(spec.key, "") if spec else "", model.partition(":")[2])


def url_of(model: str, env: Mapping[str, str]) -> str:
    """The address that settings or the environment give; empty: the provider's own."""
    spec = provider_spec(provider_of(model))
    url = env.get(spec.url, "") if spec and spec.url else ""
    if provider_of(model) == "ollama":
        url = url or _OLLAMA
    return url if not url or "://" in url else f"http://{url}"


def is_near(url: str) -> bool:
    """Whether the address is on this machine or in a private network, by its name alone."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))
    return address.is_private or address.is_loopback or address.is_link_local


def asked(url: str, key: str, model: str) -> Server:
    """Ask a server what it is and has; `model`: the one whose window matters."""
    import httpx

    root = url.rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=root, headers=headers, timeout=_WAIT_S, trust_env=False) as client:

        def fetched(path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
            try:
                answer = client.post(path, json=body) if body else client.get(path)
                return _dict(answer.json()) if answer.is_success else {}
            except (httpx.HTTPError, ValueError):
                return {}

        listed = _dicts(fetched("/v1/models").get("data"))
        if not listed:
            return Server(url, True)
        owners = (str(one.get("owned_by")) for one in listed)
        kinds: list[Kind] = [_OWNERS[owner] for owner in owners if owner in _OWNERS]
        kind: Kind = kinds[0] if kinds else ""
        models = {str(one.get("id")): _number(one.get("max_model_len")) for one in listed}
        if kind == "llama.cpp":
            own = _dict(fetched("/props").get("default_generation_settings"))
            models = dict.fromkeys(models, _number(own.get("n_ctx")))
        elif kind == "ollama":
            models[model] = _of_ollama(fetched("/api/show", {"model": model}))
        elif not kind and (own := _dicts(fetched("/api/v0/models").get("data"))):
            kind = "lm studio"
            models = {str(one.get("id")): _of_studio(one) for one in own}
    return Server(url, True, kind, models)


def _of_ollama(shown: Mapping[str, Any]) -> int | None:
    """The window it was given, else the model's own."""
    lines = (line.split() for line in str(shown.get("parameters", "")).splitlines())
    given = next((line[1] for line in lines if len(line) == 2 and line[0] == "num_ctx"), "")
    if given.isdecimal():
        return int(given)
    facts = _dict(shown.get("model_info"))
    return next((_number(v) for name, v in facts.items() if name.endswith(".context_length")), None)


def _of_studio(one: Mapping[str, Any]) -> int | None:
    return _number(one.get("loaded_context_length")) or _number(one.get("max_context_length"))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _dict(value: Any) -> dict[str, Any]:
    """The value if it is an object: a server may answer anything."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [*map(_dict, cast(list[Any], value))] if isinstance(value, list) else []
