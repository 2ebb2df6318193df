"""names: what a model's name means: alias, Gemini id, `provider:model` or `script:FILE`."""

import difflib
import re
from pathlib import Path

from interlock.services.models.providers import GEMINI, PROVIDERS, provider_spec
from interlock.state.errors import ConfigError, UserError
from interlock.state.settings import Settings

ROUTED = "pro"
"""What `auto` counts as where no request was routed yet. Which model answers is decided by the pipeline `route`."""
ROLES = {
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
}
"""Role → alias, under `model.roles` of the settings."""
DEFAULT_LIMIT = 1_048_576
"""Context window in tokens where nothing else is known (gemini-cli: the same for all its models)."""
_LIMITS = (("gemma-4", 256_000),)
_GEMINI_ID = re.compile(r"(models/)?(gemini|gemma|learnlm|tunedModels/)[\w./-]*")


def resolve(settings: Settings, name: str) -> str:
    """Alias → model name. Raises `UserError` with the nearest names for what can't be a model."""
    seen: list[str] = []
    at = name
    while (target := _alias(settings, at)) is not None:
        seen.append(at)
        if target in seen:
            raise ConfigError(
                f"model.aliases go in a circle: {' → '.join([*seen, target])}; expected a model at the end."
            )
        at = target
    return _canonical(settings, at)


def role_model(settings: Settings, role: str) -> str:
    """The name that a role asks for, not yet resolved.

    Settings decide; else the role's default. Where the main model isn't Gemini's (a script, another provider), helper
    roles use it too: who runs offline or elsewhere has no Gemini key.
    """
    if named := settings.model.roles.get(role):
        return named
    main = settings.model.name
    if role == "main" or provider_of(resolve(settings, main)) != "gemini":
        return main
    return ROLES.get(role, main)


def provider_of(model: str) -> str:
    """`gemini`, `script` or the provider of a resolved name."""
    provider, colon, _ = model.partition(":")
    return provider if colon else "gemini"


def limit(settings: Settings, model: str) -> int:
    """Context window in tokens: `model.tokenLimits` by the model's name or by an alias of it, else what is known."""
    for name, tokens in settings.model.token_limits.items():
        if model in (name, settings.model.aliases.get(name)):
            return tokens
    return next((tokens for prefix, tokens in _LIMITS if model.startswith(prefix)), DEFAULT_LIMIT)


def _alias(settings: Settings, name: str) -> str | None:
    if name in settings.model.aliases:
        return settings.model.aliases[name]
    return ROUTED if name == "auto" else None


def _canonical(settings: Settings, name: str) -> str:
    provider, colon, model = name.partition(":")
    if not colon:
        if _GEMINI_ID.fullmatch(name):
            return name.removeprefix("models/")
        raise UserError(f"No model {name!r}.{_nearest(settings, name)} {_EXPECTED}")
    if provider == "script":
        return _script(model)
    if not model:
        raise UserError(f"No model in {name!r}. Expected provider:model, for example openai:gpt-5.")
    if provider in GEMINI:
        return model.removeprefix("models/")
    if provider_spec(provider) is None:
        raise UserError(f"No provider {provider!r} in {name!r}.{_nearest(settings, provider)} {_EXPECTED}")
    return name


_EXPECTED = "Expected an alias, a Gemini model id, provider:model or script:FILE, like -m openai:gpt-5."


def _script(file: str) -> str:
    """An absolute path, so that the run can be resumed from anywhere."""
    path = Path(file).expanduser().absolute()
    if not file or not path.is_file():
        raise UserError(
            f"No script file {file!r}. Expected -m script:FILE with a YAML or JSON list of replies."
        )
    return f"script:{path}"


def _nearest(settings: Settings, name: str) -> str:
    known = ["auto", *settings.model.aliases, *settings.model.aliases.values(), *PROVIDERS, "script"]
    near = difflib.get_close_matches(name.lower(), dict.fromkeys(known), n=3)
    return f" Did you mean {', '.join(near)}?" if near else ""
