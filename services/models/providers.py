"""providers: which LangChain package serves a `provider:` prefix. Data only: nothing of LangChain is loaded."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ProviderSpec:
    """One provider: where its chat model comes from and what it wants from the environment."""

    package: str
    """What `pip install` needs."""
    module: str
    cls: str
    key: str = ""
    """Environment variable of the API key; empty: none is needed, or the client finds its own."""
    key_field: str = "api_key"
    url: str = ""
    """Environment variable of the server's address; with it no key is needed (a server on this machine)."""
    url_field: str = "base_url"
    json: Literal["response_format", "format", ""] = ""
    """How a JSON Schema is handed over; empty: only the prompt asks for it."""
    retries_off: int | None = 0
    """`max_retries` that means one attempt; null: the client has no such field."""


def _openai_like(package: str, cls: str, key: str) -> ProviderSpec:
    return ProviderSpec(f"langchain-{package}", f"langchain_{package}", cls, key, json="response_format")


PROVIDERS: dict[str, ProviderSpec] = {
    "openai": ProviderSpec(
        *("langchain-openai", "langchain_openai", "ChatOpenAI", "OPENAI_API_KEY"),
        url="OPENAI_BASE_URL",
        json="response_format",
    ),
    "anthropic": ProviderSpec(
        "langchain-anthropic", "langchain_anthropic", "ChatAnthropic", "ANTHROPIC_API_KEY"
    ),
    "ollama": ProviderSpec(
        *("langchain-ollama", "langchain_ollama", "ChatOllama"),
        url="OLLAMA_HOST",
        json="format",
        retries_off=None,
    ),
    "groq": _openai_like("groq", "ChatGroq", "GROQ_API_KEY"),
    "mistralai": ProviderSpec(
        *("langchain-mistralai", "langchain_mistralai", "ChatMistralAI", "MISTRAL_API_KEY"),
        json="response_format",
        retries_off=1,
    ),
    "deepseek": _openai_like("deepseek", "ChatDeepSeek", "DEEPSEEK_API_KEY"),
    "xai": _openai_like("xai", "ChatXAI", "XAI_API_KEY"),
    "together": _openai_like("together", "ChatTogether", "TOGETHER_API_KEY"),
    "fireworks": _openai_like("fireworks", "ChatFireworks", "FIREWORKS_API_KEY"),
    "bedrock": ProviderSpec("langchain-aws", "langchain_aws", "ChatBedrockConverse", retries_off=None),
}
GEMINI = ("gemini", "google", "google_genai")
"""Prefixes that mean Gemini's developer API, which needs no prefix."""


def provider_spec(provider: str) -> ProviderSpec | None:
    """The spec of `openai`, … or of a class by its path, `package.module.Class`; None: no such provider."""
    module, dot, cls = provider.rpartition(".")
    if dot and cls[:1].isupper():
        return ProviderSpec(module.partition(".")[0], module, cls, retries_off=None)
    return PROVIDERS.get(provider)
