"""vendors: what is known of a vendor whatever the model: its small models for helpers, and how its answers end."""

import re
from collections.abc import Mapping

from interlock.services.models.names import ROLE_ALIASES, model_for_role, provider_name, resolve_model
from interlock.state.settings import Settings

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


def ends_reliably(model: str) -> bool:
    """Return whether the end of an answer without calls says if the model has more to do; `model`: resolved."""
    return bool(_SAYS_ALL.match(model))


def vendor_small_model(main: str, role: str) -> str:
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


def choose_helper_model(settings: Settings, role: str, *, near: bool) -> tuple[str, str]:
    """Return the model that a role asks, and the one asked in its place if that can't be had (empty: none).

    `near`: the main model's server is on this machine or network, and has its own models only.
    """
    asked = resolve_model(settings, model_for_role(settings, role))
    main = resolve_model(settings, model_for_role(settings, "main"))
    chosen = role in settings.model.roles or role == "main" or asked != main
    if chosen or near or provider_name(main) in ("gemini", "script"):
        return asked, ""
    small = vendor_small_model(main, role)
    return (small, main) if small and small != main else (main, "")
