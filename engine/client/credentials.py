"""credentials: the keys and servers of every provider: where each comes from, whether it works, changed and removed."""

from pathlib import Path
from typing import NamedTuple

from dotenv import dotenv_values

from interlock.engine.options import Options
from interlock.services.config.formats import DotEnv, write_dotenv_variables
from interlock.services.models.names import PROVIDERS, check_server_address, require_package
from interlock.services.models.provider_api import list_provider_models
from interlock.state.errors import UserError
from interlock.state.names import GEMINI_KEYS
from interlock.state.text import did_you_mean

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


def test_credentials(options: Options, provider: str) -> list[str]:
    """The models that the provider offers. Raises `UserError` with what is wrong, in one line."""
    one = _read_credential(check_provider(provider), options, found := _load_environment(options))
    keys, url = _credential_variables(provider)
    if not one.key and (why := next((found.withheld[key] for key in keys if key in found.withheld), "")):
        raise UserError(why)
    if not one.key and (provider == _GEMINI or (keys and not url)):
        raise UserError(f"No key for {provider!r}. Set one: interlock auth set {provider}")
    return list_provider_models(provider, found.values)


def store_credentials(options: Options, provider: str, key: str, url: str) -> list[str]:
    """Try a key or an address and keep it; returns the models found. Raises `UserError`, then nothing is kept.

    Where the client has a login of its own, the address is kept untried.
    """
    keys, name = _credential_variables(check_provider(provider))
    if url and not name:
        able = ", ".join(one for one in provider_names() if _credential_variables(one)[1])
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
    check_server_address(f"{provider}:any", given)
    found = list_provider_models(provider, {**before, **given}) if can_test(provider) else []
    write_dotenv_variables(_env_file(options), given)
    return found


def can_test(provider: str) -> bool:
    """Return whether Interlock can try the provider's keys."""
    return provider == _GEMINI or not PROVIDERS[provider].own_login


def remove_credentials(options: Options, provider: str) -> str:
    """Remove what Interlock keeps of a provider; returns where something is still set, or nothing."""
    keys, url = _credential_variables(check_provider(provider))
    write_dotenv_variables(_env_file(options), {}, removed={*keys, *filter(None, [url])})
    return _read_credential(provider, options, _load_environment(options)).source


def shadowing_variable(options: Options, provider: str) -> str:
    """The variable of the environment that wins over what is stored; empty: none."""
    keys, url = _credential_variables(provider)
    return next((name for name in [*keys, *filter(None, [url])] if options.env.get(name)), "")


def _read_credential(provider: str, options: Options, found: DotEnv) -> Credential:
    keys, url = _credential_variables(provider)
    key = next((name for name in keys if found.values.get(name)), "")
    address = url if found.values.get(url) else ""
    sources = dict.fromkeys(_credential_source(name, options, found) for name in (key, address) if name)
    return Credential(
        provider,
        f"…{found.values[key][-4:]}" if key else "",
        found.values.get(address, ""),
        ", ".join(sources),
        not missing_package(provider),
    )


def _credential_source(name: str, options: Options, found: DotEnv) -> str:
    if options.env.get(name):
        return f"{name} in the environment"
    own = _env_file(options)
    holds = next((file for file in found.files if file != own and name in dotenv_values(file)), own)
    return f"{name} in {'~/.gemini/.env' if holds == own else holds}"


def _credential_variables(provider: str) -> tuple[tuple[str, ...], str]:
    """The variables of a provider's key, the usual one first, and of its server's address."""
    if provider == _GEMINI:
        return tuple(GEMINI_KEYS), "GOOGLE_GEMINI_BASE_URL"
    spec = PROVIDERS[provider]
    return ((spec.key,) if spec.key else ()), spec.url


def missing_package(provider: str) -> str:
    """Return which package a provider's models lack, and the command that installs it; empty: none."""
    try:
        if provider != _GEMINI:
            require_package(f"{provider}:MODEL")
    except UserError as why:
        return str(why)
    return ""


def check_provider(provider: str) -> str:
    """Return the name of a provider. Raises `UserError` with the nearest for another."""
    if provider not in provider_names():
        hint = did_you_mean(provider, provider_names())
        raise UserError(f"No provider {provider!r}.{hint} There are {', '.join(provider_names())}.")
    return provider


def _load_environment(options: Options) -> DotEnv:
    return options.configuration((options.workspace or Path.cwd()).resolve()).environment


def _env_file(options: Options) -> Path:
    return options.user_home / ".gemini" / ".env"
