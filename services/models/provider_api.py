"""provider_api: asks a provider which models a key or an address gives access to."""

from collections.abc import Mapping
from typing import Any, cast

from interlock.services.models.names import (
    GEMINI_PREFIXES,
    PROVIDERS,
    PUBLIC_URLS,
    configured_server_url,
    find_gemini_key,
)
from interlock.services.models.network import make_tls_context, temporary_client_environment
from interlock.state.errors import UserError
from interlock.state.names import GEMINI_URL
from interlock.state.text import dict_or_empty, make_visible, to_one_line

_WAIT_S = 30.0
_LISTED = {
    "anthropic": "/v1/models",
    "azure": f"/openai/models?api-version={PROVIDERS['azure'].fixed['api_version']}",
    "groq": "/openai/v1/models",
    "ollama": "/api/tags",
}
"""Where the models are listed, below the address; `/models` for others."""


def list_provider_models(provider: str, env: Mapping[str, str]) -> list[str]:
    """Return the models that a provider offers with this environment. Raise `UserError` with what is wrong, in one
    line."""
    if provider in GEMINI_PREFIXES:
        return list_gemini_models(
            (env.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL).rstrip("/"), find_gemini_key(env) or ""
        )
    spec = PROVIDERS[provider]
    own = configured_server_url(f"{provider}:", env) or PUBLIC_URLS.get(provider, "")
    if spec.own_login or not own:
        raise UserError(
            f"{provider!r} finds its own credentials; Interlock can't test them. Try a model with -m."
        )
    path = _LISTED.get(provider, "/models")
    base = own.rstrip("/")
    if path.startswith("/v1"):
        base = base.removesuffix("/v1")
    key = env.get(spec.key, "") if spec.key else ""
    headers = {
        "azure": {"api-key": key},
        "anthropic": {"x-api-key": key, "anthropic-version": "2023-06-01"},
    }.get(provider) or bearer_header(key)
    if provider == "openrouter" and base == PUBLIC_URLS[provider]:  # it lists its models for everybody
        fetch_json(f"{base}/key", headers)
    listed, name = ("models", "name") if provider == "ollama" else ("data", "id")
    found: list[Any] = fetch_json(f"{base}{path}", headers).get(listed) or []
    return [str(one[name]) for one in map(dict_or_empty, found) if name in one]


def list_gemini_models(base: str, key: str) -> list[str]:
    """Gemini's models that answer prompts. Raises `UserError`."""
    found = fetch_json(f"{base}/v1beta/models?pageSize=1000", {"x-goog-api-key": key}).get("models", [])
    names = [
        str(one.get("name", "")).removeprefix("models/")
        for one in map(dict_or_empty, found)
        if "generateContent" in one.get("supportedGenerationMethods", ["generateContent"])
    ]
    return [name for name in names if name.startswith("gemini-")]


def bearer_header(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def fetch_json(
    url: str, headers: Mapping[str, str], body: object = None, timeout_s: float = _WAIT_S
) -> dict[str, Any]:
    """Return the server's JSON response. Raise `UserError` with its message, in one line."""
    import httpx

    try:
        with temporary_client_environment():
            made = httpx.Client(timeout=timeout_s, verify=make_tls_context(url))
        with made as client:
            answer = client.request("GET" if body is None else "POST", url, headers=headers, json=body)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        host = url.partition("://")[2].partition("/")[0]
        why = to_one_line(str(error)) or type(error).__name__
        raise UserError(f"{make_visible(host)} can't be reached: {why}") from None
    try:
        told: Any = answer.json()
    except ValueError:
        told = None
    bare = isinstance(told, list)  # Together's list of models
    data = dict_or_empty({"data": cast("list[Any]", told)} if bare else told)
    if not answer.is_success or not data:
        raise UserError(_error_text(answer.status_code, data))
    return data


def _error_text(status: int, data: Mapping[str, Any]) -> str:
    message = str(dict_or_empty(data.get("error")).get("message") or data.get("error") or "")
    what = f": {to_one_line(message, 300)}" if message else "; what answers there doesn't speak this protocol"
    wrong_key = status in (401, 403) or "api key" in message.lower()
    return f"{'The key was refused' if wrong_key else f'HTTP {status}'}{what}"
