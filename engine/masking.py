"""masking: what keeps secrets out of what is shown of a run: those of its environment, `.env` files and settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from interlock.services.configuration import load_default_configuration
from interlock.services.secrets.environment import secret_headers, secret_variables
from interlock.services.secrets.redaction import Redactor
from interlock.state.errors import ConfigError
from interlock.state.settings import Settings


def make_redactor(settings: Settings, env: Mapping[str, str], home: Path) -> Redactor:
    """Return what replaces the secrets of a run. `env`: with `.env` files; `home`: the state directory, with tokens."""
    secrets = secret_variables(env, settings.security.environment)
    for name, server in settings.mcp_servers.items():
        own = {
            **secret_variables(server.env, settings.security.environment),
            **secret_headers(server.headers),
        }
        secrets |= {f"{name}.{key}": value for key, value in own.items()}
        if address := server.http_url or server.url:
            from interlock.services.mcp import TokenFile  # late: most runs have no such server

            secrets |= {f"{name}.client_secret": server.oauth.client_secret}
            secrets |= TokenFile(home, name, address).token_secrets()
    return Redactor(secrets, enabled=settings.security.redact_secrets)


def load_folder_redactor(root: Path, home: Path) -> Redactor:
    """Return the same for a command that only looks at a run of this folder, as the folder and the user are now.

    Settings that can't be read mask as the default does.
    """
    configuration = load_default_configuration(root)
    env = configuration.environment.values
    try:
        settings = configuration.loaded_settings.settings
    except ConfigError:
        settings = Settings()
    return make_redactor(settings, env, home)


def mask_secrets(value: Any, redact: Redactor) -> Any:
    """Return a JSON-like value with a mark in place of each secret, in keys, too."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list | tuple):
        return [mask_secrets(item, redact) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {
            (redact(key) if isinstance(key, str) else key): mask_secrets(item, redact) for key, item in pairs
        }
    return value
