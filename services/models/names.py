"""names: resolves model names (alias, Gemini id, `provider:model`, `script:FILE`).

LangSmith is always off, whatever the environment says: no run is sent to a third party."""

import logging
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from interlock.services.models.network import check_proxies, find_or_merge_certificate_file
from interlock.services.models.options import thinking_effort_options
from interlock.services.packages import install_command
from interlock.state.errors import ConfigError, CredentialsError, MissingPackageError, UserError
from interlock.state.names import GEMINI_KEYS, GEMINI_URL, SHORT, guess_provider
from interlock.state.settings import Settings
from interlock.state.text import did_you_mean


@dataclass(frozen=True)
class ProviderSpec:
    """One provider: its chat model class and the environment variables it uses."""

    package: str
    """Package name for `pip install`."""
    module: str
    cls: str
    key: str = ""
    """Environment variable of the API key; empty if none is needed or the client finds its own."""
    key_field: str = "api_key"
    url: str = ""
    """Environment variable of the server's URL; if set, no key is needed (for local servers)."""
    url_field: str = "base_url"
    url_adds: str = ""
    """What the client adds to the address by itself."""
    json: Literal["response_format", "format", ""] = ""
    """How a JSON Schema is passed; empty: only through the prompt."""
    retries_off: int | None = 0
    """The `max_retries` value that means one attempt; None if the client has no such field."""
    needs: tuple[str, ...] = ()
    """Environment variables without which it can't be asked."""
    own_login: bool = False
    """Whether the client finds credentials of its own, which Interlock neither keeps nor tests."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field of the class → the environment variable that fills it."""
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the class that always have this value, unless the environment fills them."""


def _make_openai_compatible_spec(package: str, cls: str, key: str, **more: Any) -> ProviderSpec:
    more |= {"url": key.replace("_KEY", "_BASE"), "json": "response_format"}
    return ProviderSpec(f"langchain-{package}", f"langchain_{package}", cls, key, **more)


PROVIDERS: dict[str, ProviderSpec] = {
    "openai": ProviderSpec(
        *("langchain-openai", "langchain_openai", "ChatOpenAI", "OPENAI_API_KEY"),
        url="OPENAI_BASE_URL",
        json="response_format",
    ),
    "anthropic": ProviderSpec(
        *("langchain-anthropic", "langchain_anthropic", "ChatAnthropic", "ANTHROPIC_API_KEY"),
        url="ANTHROPIC_BASE_URL",
    ),
    "ollama": ProviderSpec(
        *("langchain-ollama", "langchain_ollama", "ChatOllama"),
        url="OLLAMA_HOST",
        json="format",
        retries_off=None,
    ),
    "groq": _make_openai_compatible_spec("groq", "ChatGroq", "GROQ_API_KEY"),
    "mistralai": ProviderSpec(
        *("langchain-mistralai", "langchain_mistralai", "ChatMistralAI", "MISTRAL_API_KEY"),
        url="MISTRAL_BASE_URL",
        json="response_format",
        retries_off=1,
    ),
    "deepseek": _make_openai_compatible_spec("deepseek", "ChatDeepSeek", "DEEPSEEK_API_KEY"),
    "xai": _make_openai_compatible_spec("xai", "ChatXAI", "XAI_API_KEY"),
    "together": _make_openai_compatible_spec("together", "ChatTogether", "TOGETHER_API_KEY"),
    "fireworks": _make_openai_compatible_spec(
        "fireworks", "ChatFireworks", "FIREWORKS_API_KEY", url_adds="/v1"
    ),
    "bedrock": ProviderSpec(
        *("langchain-aws", "langchain_aws", "ChatBedrockConverse"),
        url="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        retries_off=None,
        own_login=True,
    ),
    "openrouter": ProviderSpec(
        *("langchain-openai", "langchain_openai", "ChatOpenAI", "OPENROUTER_API_KEY"),
        url="OPENROUTER_BASE_URL",
        json="response_format",
    ),
    "azure": ProviderSpec(
        *("langchain-openai", "langchain_openai", "AzureChatOpenAI", "AZURE_OPENAI_API_KEY"),
        url="AZURE_OPENAI_ENDPOINT",
        url_field="azure_endpoint",
        json="response_format",
        needs=("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
        fields={"api_version": "OPENAI_API_VERSION"},
        fixed={"api_version": "2024-10-21"},
    ),
    "vertex": ProviderSpec(
        *("langchain-google-genai", "langchain_google_genai", "ChatGoogleGenerativeAI"),
        url="GOOGLE_VERTEX_BASE_URL",
        own_login=True,
        retries_off=1,
        needs=("GOOGLE_CLOUD_PROJECT",),
        fields={"project": "GOOGLE_CLOUD_PROJECT", "location": "GOOGLE_CLOUD_LOCATION"},
        fixed={"vertexai": True, "location": "global"},
    ),
}
PUBLIC_URLS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "groq": "https://api.groq.com",
    "mistralai": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "xai": "https://api.x.ai/v1",
    "together": "https://api.together.xyz/v1",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "openrouter": "https://openrouter.ai/api/v1",
}
"""Providers' own addresses, as their clients take them."""
GEMINI_PREFIXES = ("gemini", "google", "google_genai")
"""Prefixes for Gemini's developer API, which needs none."""


def find_provider_spec(provider: str) -> ProviderSpec | None:
    """Return the spec of a known provider such as `openai`, or of a class path `package.module.Class`; else None."""
    module, dot, cls = provider.rpartition(".")
    if dot and cls[:1].isupper():
        return ProviderSpec(module.partition(".")[0], module, cls, retries_off=None)
    return PROVIDERS.get(provider)


_OLLAMA = "http://127.0.0.1:11434"


def configured_server_url(model: str, env: Mapping[str, str]) -> str:
    """Return the address that settings or the environment give; empty: the provider's own."""
    spec = find_provider_spec(provider_name(model))
    url = env.get(spec.url, "") if spec and spec.url else ""
    if provider_name(model) == "ollama":
        url = url or _OLLAMA
    return url if not url or "://" in url else f"http://{url}"


ROUTED_ALIAS = "pro"
"""Stands in for `auto` until a request is routed. The pipeline `route` chooses the model that answers."""
ROLE_ALIASES = {
    "main": "auto",
    "classifier": "flash-lite",
    "next_speaker": "flash-lite",
    "loop_check": "flash",
    "loop_double_check": "pro",
    "compressor": "flash",
    "summarizer": "flash-lite",
    "edit_target": "flash",
    "edit_fixer": "flash",
    "investigator": "pro",
    "image": "image",
    "web_search": "flash",
}
"""Role → alias; overridden by `model.roles` in settings."""
DEFAULT_LIMIT = 1_048_576
"""Default context window in tokens (gemini-cli: the same for all its models)."""
_LIMITS = (("gemma-4", 256_000),)


def find_model_problem(settings: Settings, env: Mapping[str, str], name: str) -> str:
    """Return why a model can't be asked, in one sentence; empty: it can."""
    try:
        require_usable_model(settings, env, name)
    except UserError as error:
        return str(error)
    return ""


def resolve_model(settings: Settings, name: str) -> str:
    """Resolve an alias. Raises `UserError` with the nearest names if it can't be a model, `ConfigError` for a cycle."""
    seen: list[str] = []
    at = name
    while (target := _alias_target(settings, at)) is not None:
        seen.append(at)
        if target in seen:
            raise ConfigError(
                f"model.aliases go in a circle: {' → '.join([*seen, target])}; expected a model at the end."
            )
        at = target
    return _to_canonical_name(settings, at)


def unresolved_model_for_role(settings: Settings, role: str) -> str:
    """Return the unresolved model name for a role.

    Settings take precedence over the role's default. If the main model isn't Gemini's (a script, another provider),
    helper roles use it too: such users may have no Gemini key.
    """
    if named := settings.model.roles.get(role):
        return named
    main = settings.model.name
    if role == "main" or provider_name(resolve_model(settings, main)) != "gemini":
        return main
    return ROLE_ALIASES.get(role, main)


def provider_name(model: str) -> str:
    """Return `gemini`, `script` or the provider of a resolved name."""
    provider, colon, _ = model.partition(":")
    return provider if colon else "gemini"


def supports_thinking_level(model: str) -> bool:
    """Return whether `model.thinking` counts for a resolved model."""
    provider, spec = provider_name(model), find_provider_spec(provider_name(model))
    takes = spec and thinking_effort_options(spec.cls, model.partition(":")[2], "high")
    return provider == "gemini" or takes is not None


def configured_context_window(settings: Settings, model: str) -> int:
    """Return the context window in tokens: as set for it, else the built-in value."""
    own = settings.model_entry(model).context_window
    return own or next((tokens for prefix, tokens in _LIMITS if model.startswith(prefix)), DEFAULT_LIMIT)


def _alias_target(settings: Settings, name: str) -> str | None:
    if name in settings.model.aliases:
        return settings.model.aliases[name]
    return ROUTED_ALIAS if name == "auto" else SHORT.get(name)


def _to_canonical_name(settings: Settings, name: str) -> str:
    provider, colon, model = name.partition(":")
    if not colon:
        if found := guess_provider(name):
            return name.removeprefix("models/") if found == "gemini" else f"{found}:{name}"
        raise UserError(f"No model {name!r}.{_nearest_models_hint(settings, name)} {_EXPECTED}")
    if provider == "script":
        return _to_absolute_script_name(model)
    if not model:
        raise UserError(f"No model in {name!r}. Expected provider:model, for example openai:gpt-5.")
    if provider in GEMINI_PREFIXES:
        return model.removeprefix("models/")
    if find_provider_spec(provider) is None:
        raise UserError(
            f"No provider {provider!r} in {name!r}.{_nearest_models_hint(settings, provider)} {_EXPECTED}"
        )
    return name


_EXPECTED = "Expected an alias, a model id, provider:model or script:FILE, like -m sonnet or -m openai:gpt-5."


def _to_absolute_script_name(file: str) -> str:
    """Return a script's name with its absolute path, so that the run can be resumed from anywhere."""
    if not file:
        raise _missing_script_error(file)
    return f"script:{Path(file).expanduser().absolute()}"


def with_absolute_script_path(name: str | None) -> str | None:
    """Return the model as it was typed, but a script's file by its whole path: who drives the run may be in another
    folder."""
    return (
        _to_absolute_script_name(name.removeprefix("script:"))
        if name and name.startswith("script:")
        else name
    )


def _missing_script_error(file: str) -> UserError:
    return UserError(f"No script file {file!r}. Expected -m script:FILE with a YAML or JSON list of replies.")


def _nearest_models_hint(settings: Settings, name: str) -> str:
    known = ["auto", *settings.model.aliases, *SHORT, *settings.model.aliases.values(), *PROVIDERS, "script"]
    return did_you_mean(name.lower(), dict.fromkeys(known), max_suggestions=3, cutoff=0.6)


_WAYS = (
    "Use one of: interlock auth set gemini (or anthropic, openai), export GEMINI_API_KEY=…, "
    "ANTHROPIC_API_KEY=… or OPENAI_API_KEY=…, -m provider:model."
)


def require_usable_model(settings: Settings, env: Mapping[str, str], model: str | None = None) -> None:
    """Check that `model` (default: from settings) can be asked.

    Raises `CredentialsError` if it lacks a key, `UserError` if it lacks a package, or a script its file.
    """
    name = model or settings.model.name
    resolved = resolve_model(settings, name)
    provider = provider_name(resolved)
    if provider == "script":
        if not Path(file := resolved.partition(":")[2]).is_file():
            raise _missing_script_error(file)
        return
    check_proxies(os.environ)
    find_or_merge_certificate_file(os.environ)
    check_server_address_and_key(resolved, env)
    if provider == "gemini":
        if find_gemini_key(env) is None:
            if name == "auto" and (url := env.get("OPENAI_BASE_URL")):
                raise CredentialsError(
                    f"No model was named. OPENAI_BASE_URL names a server at {url}: name one of its models with "
                    "-m openai:MODEL, or in model.name. List them: interlock models"
                )
            if name == "auto" and (found := first_provider_with_key(env)):
                raise CredentialsError(
                    f"No model was named. {PROVIDERS[found].key} is set: name a model with -m {found}:MODEL, or in "
                    "model.name. List them: interlock models"
                )
            what = f"for model {resolved!r}" if name != "auto" else "and no model was named"
            raise CredentialsError(f"No API key {what}: {' or '.join(GEMINI_KEYS)} is missing. {_WAYS}")
        return
    require_package(resolved)
    spec = find_provider_spec(provider)
    if missing := [name for name in (spec.needs if spec else ()) if not env.get(name)]:
        raise CredentialsError(
            f"Model {resolved!r} needs {' and '.join(missing)}. Set it, or use another -m."
        )
    if spec is not None and not has_credentials(resolved, env):
        either = f"{spec.key} or {spec.url}" if spec.url else spec.key
        raise CredentialsError(
            f"No API key for model {resolved!r}: {either} is expected. Set it, or use another -m."
        )


def first_provider_with_key(env: Mapping[str, str]) -> str:
    """Return the first provider whose key is set; empty: none."""
    return next((name for name, spec in PROVIDERS.items() if spec.key and env.get(spec.key)), "")


def has_credentials(model: str, env: Mapping[str, str]) -> bool:
    """Return whether the environment has what the provider of a resolved model asks for: a key, or an address."""
    provider = provider_name(model)
    if provider == "gemini":
        return find_gemini_key(env) is not None
    spec = find_provider_spec(provider)
    if spec is None or not all(env.get(name) for name in spec.needs):
        return spec is None
    return not spec.key or bool(env.get(spec.key) or (spec.url and env.get(spec.url)))


_WEB = re.compile(r"https?://[^/]", re.I)


def check_server_address_and_key(model: str, env: Mapping[str, str]) -> None:
    """Raise `UserError` for an address, and `CredentialsError` for a key, that no client can send.

    Without a scheme it isn't known whether the key would be sent encrypted.
    """
    spec = find_provider_spec(provider_name(model))
    keys, variable = (spec.key,) if spec else GEMINI_KEYS, spec.url if spec else "GOOGLE_GEMINI_BASE_URL"
    url = configured_server_url(model, env) if provider_name(model) == "ollama" else env.get(variable, "")
    if url and not _WEB.match(url):
        bare = re.sub(r"^\w*:?//", "", url)
        scheme = "http" if re.match(r"localhost|127\.|\[::1\]", bare) else "https"
        raise UserError(
            f"{variable}={re.sub('//[^/@]*@', '//', url)!r} isn't the address of a server: it has to begin with"
            f" http:// or https://. Set it to {scheme}://{bare}"
            if bare
            else f"{variable}={url!r} names no server."
        )
    own = PUBLIC_URLS.get(provider_name(model), "" if spec else GEMINI_URL)
    if url.lower().startswith("http://") and urlsplit(url).hostname == urlsplit(own).hostname:
        raise UserError(f"{variable}={url!r} would send the key unencrypted. Set it to https{url[4:]}")
    for name in keys:
        value = env.get(name, "") if name else ""
        if value and (value != value.strip() or not value.isascii() or not value.isprintable()):
            end = "ends in" if not re.search(r"[^!-~]", value.rstrip()) else "contains"
            raise CredentialsError(
                f"{name} {end} a line break, a space or a sign that no key has. Set it again without."
            )


def require_package(model: str) -> None:
    """Raise `MissingPackageError` with the command that installs it if the package for `provider:model` is missing."""
    spec = find_provider_spec(provider_name(model))
    if spec is None or find_spec(spec.module.partition(".")[0]) is None:
        package = spec.package if spec else provider_name(model)
        raise MissingPackageError(
            f"Model {model!r} needs a package that isn't installed. Run: {install_command(package)}", package
        )


def find_gemini_key(env: Mapping[str, str]) -> str | None:
    """Return the first key that is set, gemini-cli's name first."""
    return next((env[name] for name in GEMINI_KEYS if env.get(name)), None)


def script_models_in_settings(settings: Settings) -> set[str]:
    """Return the scripts that settings name as models, by their whole paths."""
    named = map(with_absolute_script_path, (settings.model.name, *settings.model.aliases.values()))
    return {name for name in named if name and name.startswith("script:")}


def disable_tracing() -> None:
    """Disable tracing in this process. LangGraph traces too, so the engine calls this before building a graph."""
    import langsmith

    langsmith.configure(enabled=False)


_CHATTY = (
    *("google_genai", "langchain_google_genai", "langchain_openai", "langchain_anthropic", "langchain_aws"),
    *("langchain_groq", "langchain_mistralai", "langchain_ollama", "langchain_fireworks"),
    "interlock.services.models.client_classes",  # what the clients above say of their caller
)
"""Packages that tell of their own working on stderr."""


def silence_client_warnings() -> None:
    """Silence warnings that clients print to stderr; what matters is reported as errors and problems."""
    for name in _CHATTY:
        logging.getLogger(name).addHandler(logging.NullHandler())
        for kind in (UserWarning, RuntimeWarning):
            warnings.filterwarnings("ignore", module=name.replace(".", r"\."), category=kind)
    # Of answers that differ from a client's types: we read them ourselves.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)


_HAIKU = "{region}anthropic.claude-haiku-4-5-20251001-v1:0"
_SMALL: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "anthropic": (("claude", "claude-haiku-4-5", "claude-haiku-4-5"),),
    "openai": ((r"gpt-|o\d|chatgpt|codex", "gpt-5-mini", "gpt-5-nano"),),
    "bedrock": (
        (r"(\w[\w-]*\.)?anthropic\.claude", _HAIKU, _HAIKU),
        (r"(\w[\w-]*\.)?amazon\.nova", "{region}amazon.nova-lite-v1:0", "{region}amazon.nova-micro-v1:0"),
    ),
    "mistralai": (
        ("mistral|magistral|codestral|devstral|pixtral", "mistral-small-latest", "mistral-small-latest"),
    ),
    "deepseek": (("deepseek", "deepseek-v4-flash", "deepseek-v4-flash"),),
}
"""Provider → names of a vendor's models, its small model, and its smallest."""
_SAYS_ALL = re.compile(
    r"anthropic:claude|openai:(?!gpt-oss)(gpt-|o\d|chatgpt|codex)"
    r"|bedrock:(\w[\w-]*\.)?anthropic\.claude|\w+:(anthropic/claude|openai/(?!gpt-oss))"
)
"""Models whose answers end only where the model had nothing more to do, or at the limit of their length."""
REGION = re.compile(r"((?:us|eu|us-gov|apac|global|jp|au|ca|in|sa)\.)?")


def has_reliable_completion_signal(model: str) -> bool:
    """Return whether the end of an answer without calls says if the model has more to do; `model`: resolved."""
    return bool(_SAYS_ALL.match(model))


def small_model_of_same_vendor(main: str, role: str) -> str:
    """Return the small model of the vendor of `main`, a resolved name, for what a role asks; empty: there is none."""
    tier = ROLE_ALIASES.get(role, "")
    if tier not in ("flash", "flash-lite"):
        return ""
    provider, _, name = main.partition(":")
    for pattern, small, smallest in _SMALL.get(provider, ()):
        if re.match(pattern, name):
            region = REGION.match(name)
            chosen = small if tier == "flash" else smallest
            return f"{provider}:{chosen.format(region=region[0] if region else '')}"
    return ""


def choose_helper_model_and_fallback(
    settings: Settings, role: str, *, is_self_hosted: bool
) -> tuple[str, str]:
    """Return the model that a role asks, and the one asked in its place if that can't be had (empty: none).

    `is_self_hosted`: the main model's server is on this machine or network, and has its own models only.
    """
    asked = resolve_model(settings, unresolved_model_for_role(settings, role))
    main = resolve_model(settings, unresolved_model_for_role(settings, "main"))
    chosen = role in settings.model.roles or role == "main" or asked != main
    if chosen or is_self_hosted or provider_name(main) in ("gemini", "script"):
        return asked, ""
    small = small_model_of_same_vendor(main, role)
    return (small, main) if small and small != main else (main, "")
