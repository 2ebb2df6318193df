"""credentials: whether a model can be asked at all, before anything runs. Loads no LangChain."""

from collections.abc import Mapping
from importlib.util import find_spec

from interlock.services.models.names import provider_of, resolve
from interlock.services.models.providers import provider_spec
from interlock.state.errors import CredentialsError, UserError
from interlock.state.settings import Settings

GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
GEMINI_URL = "https://generativelanguage.googleapis.com"
_WAYS = "Go on with one of: export GEMINI_API_KEY=…, -m provider:model, -m script:FILE."


def check_credentials(settings: Settings, env: Mapping[str, str], model: str | None = None) -> None:
    """Raise `CredentialsError` when `model` (default: the one in settings) has no key, `UserError` when no package."""
    name = model or settings.model.name
    resolved = resolve(settings, name)
    provider = provider_of(resolved)
    if provider == "script":
        return
    if provider == "gemini":
        if gemini_key(env) is None:
            what = f"for model {resolved!r}" if name != "auto" else "and no model was named"
            raise CredentialsError(f"No API key {what}: {' or '.join(GEMINI_KEYS)} is expected. {_WAYS}")
        return
    check_package(resolved)
    spec = provider_spec(provider)
    if spec is not None and spec.key and not env.get(spec.key) and not (spec.url and env.get(spec.url)):
        either = f"{spec.key} or {spec.url}" if spec.url else spec.key
        raise CredentialsError(
            f"No API key for model {resolved!r}: {either} is expected. Set it, or use another -m."
        )


def check_package(model: str) -> None:
    """Raise `UserError` naming the `pip install` when the package of `provider:model` isn't there."""
    spec = provider_spec(provider_of(model))
    if spec is None or find_spec(spec.module.partition(".")[0]) is None:
        package = spec.package if spec else provider_of(model)
        raise UserError(f"Model {model!r} needs a package that isn't installed. Run: pip install {package}")


def gemini_key(env: Mapping[str, str]) -> str | None:
    """The first key that is set, gemini-cli's name first."""
    return next((env[name] for name in GEMINI_KEYS if env.get(name)), None)
