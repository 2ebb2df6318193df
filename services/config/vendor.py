"""vendor: chooses the vendor that `auto`, `pro` and `flash` mean, by the configured model or the keys there are."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from interlock.state.names import ALIASES, GEMINI_KEYS, TIERS, guess_provider

if TYPE_CHECKING:
    from interlock.state.settings import ModelSettings

_KEYS = {"gemini": GEMINI_KEYS, "anthropic": ("ANTHROPIC_API_KEY",), "openai": ("OPENAI_API_KEY",)}
"""Vendor → the variables of its key; the first with a key is the default vendor."""
_NAMES = {"anthropic": "Claude", "openai": "GPT"}
_ANY = ("auto", *ALIASES)
"""Names that say how large the model is, and not whose."""


def resolve_vendor(
    model: "ModelSettings", names: Sequence[str], env: Mapping[str, str]
) -> tuple["ModelSettings", str]:
    """Return the settings with `pro` and `flash` of the default vendor, and what to say about it (empty: nothing).

    `names`: the model names that were set, the strongest first. An alias that is set keeps its meaning.
    """
    named = next((vendor for name in names if (vendor := _vendor_of_model(model, name))), "")
    vendor = named or _vendor_by_key(env)
    tiers = TIERS.get(vendor)
    kept = {alias for alias, target in model.aliases.items() if target != ALIASES.get(alias)}
    if not tiers or kept >= {*tiers}:
        return model, ""
    aliases = {**model.aliases, **{alias: name for alias, name in tiers.items() if alias not in kept}}
    changed = model.model_copy(update={"aliases": aliases})
    if named or model.name != "auto" or model.aliases.get("auto"):
        return changed, ""
    return changed, (
        f"No Gemini key; {_KEYS[vendor][0]} is set, so Interlock uses {_NAMES[vendor]}: "
        f"{aliases['pro'].partition(':')[2]} or {aliases['flash'].partition(':')[2]}, chosen for each prompt."
    )


def _vendor_of_model(model: "ModelSettings", name: str) -> str:
    """Return whose model a name is; empty if it only says how large."""
    seen: set[str] = set()
    while name not in seen and (target := model.aliases.get(name)) and target != ALIASES.get(name):
        seen.add(name)
        name = target
    return "" if name in _ANY else guess_provider(name)


def _vendor_by_key(env: Mapping[str, str]) -> str:
    for vendor, keys in _KEYS.items():
        if any(env.get(key) for key in keys) and not _is_compatible_server_key(vendor, env):
            return vendor
    return "gemini"


def _is_compatible_server_key(vendor: str, env: Mapping[str, str]) -> bool:
    """Return whether OpenAI's key is one for a server of other models, such as llama.cpp."""
    return vendor == "openai" and env.get("OPENAI_BASE_URL", "").startswith("http://")
