"""credentials: the keys and servers of every provider: where each comes from, whether it works, changed and removed;
and the models that configured providers and servers nearby offer."""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from dotenv import dotenv_values

from interlock.engine.options import Options
from interlock.services.config.formats import DotEnv, write_dotenv_variables
from interlock.services.models.facts import ModelFacts, list_available_models
from interlock.services.models.model_table import FREE
from interlock.services.models.model_table import price_table_version as price_table_version
from interlock.services.models.names import (
    PROVIDERS,
    check_server_address_and_key,
    provider_name,
    require_package,
)
from interlock.services.models.provider_api import list_provider_models
from interlock.state.errors import UserError
from interlock.state.names import GEMINI_KEYS
from interlock.state.settings import Settings
from interlock.state.text import did_you_mean, make_visible

_GEMINI = "gemini"


class Credential(NamedTuple):
    provider: str
    key: str
    """Its last letters; empty: none is set."""
    url: str
    """Its server's address; empty: the provider's own, or there is none to set."""
    source: str
    """Where key or address is set."""
    installed: bool


def provider_names() -> list[str]:
    return [_GEMINI, *PROVIDERS]


def list_credentials(options: Options) -> list[Credential]:
    """Every provider, with what is set for it."""
    found = _load_environment(options)
    return [_read_credential(name, options, found) for name in provider_names()]


def test_credentials_by_listing_models(options: Options, provider: str) -> list[str]:
    """The models that the provider offers. Raises `UserError` with what is wrong, in one line."""
    one = _read_credential(require_known_provider(provider), options, found := _load_environment(options))
    keys, url = _key_and_url_variables(provider)
    if not one.key and (why := next((found.withheld[key] for key in keys if key in found.withheld), "")):
        raise UserError(why)
    if not one.key and (provider == _GEMINI or (keys and not url)):
        raise UserError(f"No key for {provider!r}. Set one: interlock auth set {provider}")
    return list_provider_models(provider, found.values)


def store_credentials_after_listing_models(options: Options, provider: str, key: str, url: str) -> list[str]:
    """Try a key or an address and keep it; returns the models found. Raises `UserError`, then nothing is kept.

    Where the client has a login of its own, the address is kept untried.
    """
    keys, name = _key_and_url_variables(require_known_provider(provider))
    if url and not name:
        able = ", ".join(one for one in provider_names() if _key_and_url_variables(one)[1])
        raise UserError(f"{provider!r} has no address to set. Those that have: {able}.")
    if key and not keys:
        raise UserError(
            f"{provider!r} takes no key. Set its address: interlock auth set {provider} --url URL"
        )
    given = {**({keys[0]: key} if key else {}), **({name: url} if url else {})}
    if not given:
        raise UserError("Nothing to store: give a key, or an address with --url.")
    before = _load_environment(options).values
    if keys and key and name and before.get(name):
        given.setdefault(name, before[name])  # a key belongs to the address that it was tried at
    check_server_address_and_key(f"{provider}:any", given)
    found = list_provider_models(provider, {**before, **given}) if can_test_provider(provider) else []
    write_dotenv_variables(_env_file(options), given)
    return found


def can_test_provider(provider: str) -> bool:
    """Return whether Interlock can try the provider's keys."""
    return provider == _GEMINI or not PROVIDERS[provider].own_login


def remove_credentials_and_find_remaining_source(options: Options, provider: str) -> str:
    """Remove what Interlock keeps of a provider; returns where something is still set, or nothing."""
    keys, url = _key_and_url_variables(require_known_provider(provider))
    write_dotenv_variables(_env_file(options), {}, removed={*keys, *filter(None, [url])})
    return _read_credential(provider, options, _load_environment(options)).source


def overriding_environment_variable(options: Options, provider: str) -> str:
    """The variable of the environment that wins over what is stored; empty: none."""
    keys, url = _key_and_url_variables(provider)
    return next((name for name in [*keys, *filter(None, [url])] if options.env.get(name)), "")


def _read_credential(provider: str, options: Options, env_files: DotEnv) -> Credential:
    keys, url = _key_and_url_variables(provider)
    key = next((name for name in keys if env_files.values.get(name)), "")
    address = url if env_files.values.get(url) else ""
    sources = dict.fromkeys(_credential_source(name, options, env_files) for name in (key, address) if name)
    return Credential(
        provider,
        f"…{env_files.values[key][-4:]}" if key else "",
        env_files.values.get(address, ""),
        ", ".join(sources),
        not missing_package_message(provider),
    )


def _credential_source(name: str, options: Options, env_files: DotEnv) -> str:
    if options.env.get(name):
        return f"{name} in the environment"
    own = _env_file(options)
    holds = next((file for file in env_files.files if file != own and name in dotenv_values(file)), own)
    return f"{name} in {'~/.gemini/.env' if holds == own else holds}"


def _key_and_url_variables(provider: str) -> tuple[tuple[str, ...], str]:
    """The variables of a provider's key, the usual one first, and of its server's address."""
    if provider == _GEMINI:
        return tuple(GEMINI_KEYS), "GOOGLE_GEMINI_BASE_URL"
    spec = PROVIDERS[provider]
    return ((spec.key,) if spec.key else ()), spec.url


def missing_package_message(provider: str) -> str:
    """Return which package a provider's models lack, and the command that installs it; empty: none."""
    try:
        if provider != _GEMINI:
            require_package(f"{provider}:MODEL")
    except UserError as why:
        return str(why)
    return ""


def require_known_provider(provider: str) -> str:
    """Return the name of a provider. Raises `UserError` with the nearest for another."""
    if provider not in provider_names():
        hint = did_you_mean(provider, provider_names())
        raise UserError(f"No provider {provider!r}.{hint} There are {', '.join(provider_names())}.")
    return provider


def _load_environment(options: Options) -> DotEnv:
    return options.configuration((options.workspace or Path.cwd()).resolve()).environment


def _env_file(options: Options) -> Path:
    return options.user_home / ".gemini" / ".env"


def list_model_rows(options: Options) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each model (window, reply, what it takes, price, calls, whether it was tried), and problems."""
    from interlock.engine.driver.run_config import prepare_run  # deferred: keys need none of it

    prepared = prepare_run(options, needs_model=False)
    found = list_available_models(prepared.settings, prepared.env, prepared.model_facts)
    listed, problems = _list_models_of_other_providers(prepared.env, {provider_name(name) for name in found})
    rows = [
        _model_row(name, prepared.settings, prepared.model_facts) for name in dict.fromkeys([*found, *listed])
    ]
    return rows, problems


def _list_models_of_other_providers(
    env: Mapping[str, str], named_providers: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the models of providers that have a key and none of whose models is named, and what went wrong."""
    keyed = [
        p
        for p, s in PROVIDERS.items()
        if s.key and env.get(s.key) and p not in named_providers and p != "azure"
    ]
    models: list[str] = []
    problems: list[str] = []
    with ThreadPoolExecutor(len(keyed) or 1) as pool:
        for provider, asked in [(p, pool.submit(list_provider_models, p, env)) for p in keyed]:
            try:
                models += [f"{provider}:{name}" for name in asked.result()]
            except UserError as error:
                problems.append(f"{provider}: {error}")
    return models, problems


def _model_row(name: str, settings: Settings, facts: ModelFacts) -> dict[str, Any]:
    seen, able = facts.observations(name), facts.abilities(name)
    prices = facts.prices(name)
    window, told = facts.resolve_context_window(name)
    first = prices[0] if prices else None
    shown = f"{first.input:g} / {first.output:g}" if first else None
    return {
        "model": make_visible(name),
        "window": window,
        "window_known": told,
        "output": able.output,
        "takes": [*able.takes],
        "price": "0" if prices == FREE else shown,
        "prices": [rates._asdict() for rates in prices or ()],
        "protocol": facts.resolve_call_protocol(name, settings.tools.protocol),
        "tokens_per_estimate": seen.per_estimate,
        "tried": seen.answered,
    }
