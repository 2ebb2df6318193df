"""first_model: whether a run could ask a model, and what it takes to use one for the first time: tried, then stored."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.engine.options import Options
from interlock.state.errors import CredentialsError, MissingPackageError, UserError
from interlock.state.names import GEMINI_KEYS
from interlock.state.text import dict_or_empty

if TYPE_CHECKING:
    from interlock.state.settings import Settings

_LOADING_S = 300.0
"""A local server may have to read a model from disk first."""
_TRIAL = "This is a test of the connection. Answer with one word: ready"


def needs_first_model(options: Options) -> bool:
    """Whether no flag names a model and the configured one has no key."""
    if options.model or options.fake or any(options.env.get(name) for name in GEMINI_KEYS):
        return False
    from interlock.services.models.names import require_usable_model

    try:
        require_usable_model(*load_settings_and_env(options))
    except CredentialsError:
        return True
    except UserError:  # an unknown model: the run reports it. A missing package: `find_missing_model_package`
        return False
    return False


def find_missing_model_package(options: Options) -> str:
    """Return the package that the configured model needs and that isn't installed; empty: none."""
    if options.fake or (not options.model and any(options.env.get(name) for name in GEMINI_KEYS)):
        return ""
    from interlock.services.models.names import require_usable_model

    settings, env = load_settings_and_env(options)
    try:
        require_usable_model(settings, env, options.model)
    except MissingPackageError as error:
        return error.package
    except UserError:
        return ""
    return ""


def load_settings_and_env(options: Options) -> "tuple[Settings, Mapping[str, str]]":
    """The settings of a folder, and the environment with its `.env` files."""
    configuration = options.configuration((options.workspace or Path.cwd()).resolve())
    return configuration.loaded_settings.settings, configuration.environment.values


def list_provider_models(provider: str, env: Mapping[str, str]) -> list[str]:
    """The models that a provider offers with the key in `env`. Raises `UserError` with what is wrong."""
    from interlock.services.models.provider_api import list_provider_models

    return list_provider_models(provider, env)


def list_gemini_models(base_url: str, key: str) -> list[str]:
    """The models that a key of Gemini gives access to. Raises `UserError` with what is wrong."""
    from interlock.services.models.provider_api import list_gemini_models

    return list_gemini_models(base_url, key)


def pick_gemini_test_model(settings: "Settings", models: Sequence[str]) -> str:
    """The model to try a key of Gemini with."""
    trial = settings.model.aliases.get("flash-lite", "")
    if models and trial not in models:
        trial = next((name for name in models if "flash" in name), models[0])
    return trial


def send_gemini_test_request(base_url: str, key: str, model: str) -> None:
    """Send a request. Raises `UserError` with what is wrong."""
    from interlock.services.models.provider_api import fetch_json

    body = {"contents": [{"role": "user", "parts": [{"text": _TRIAL}]}]}
    fetch_json(f"{base_url}/v1beta/models/{model}:generateContent", {"x-goog-api-key": key}, body, _LOADING_S)


def find_base_url_and_models(base_url: str, key: str) -> tuple[str, list[str]]:
    """The base address, with `/v1` added if it was missing, and the models served there. Raises `UserError`."""
    from interlock.services.models.provider_api import bearer_header, fetch_json

    headers = bearer_header(key)
    try:
        found = fetch_json(f"{base_url}/models", headers)
    except UserError:
        if base_url.endswith("/v1"):
            raise
        base_url = f"{base_url}/v1"
        found = fetch_json(f"{base_url}/models", headers)
    return base_url, [str(one["id"]) for one in map(dict_or_empty, found.get("data", [])) if "id" in one]


def send_openai_test_request(base_url: str, key: str, model: str) -> None:
    """Send a request to a server that speaks OpenAI's protocol. Raises `UserError` with what is wrong."""
    from interlock.services.models.provider_api import bearer_header, fetch_json

    body = {"model": model, "messages": [{"role": "user", "content": _TRIAL}]}
    fetch_json(f"{base_url}/chat/completions", bearer_header(key), body, _LOADING_S)


def store_model_and_keys(variables: Mapping[str, str], model: str, user_home: Path) -> None:
    """Store keys and addresses in the user's `.env`, and a model but `auto` in the settings."""
    from interlock.services.config.formats import edit_json_settings, write_dotenv_variables

    file, settings = user_home / ".gemini" / ".env", user_home / ".interlock" / "settings.json"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # both are written, or neither
    try:
        if model != "auto":
            with edit_json_settings(settings, "model") as data:
                data.setdefault("model", {})["name"] = model
        if variables:
            write_dotenv_variables(file, variables)
    finally:
        signal.signal(signal.SIGINT, before)
