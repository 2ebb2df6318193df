"""known: what the table of genai-prices says of models. Loading it takes 0.2 s: nothing does before a first request."""

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.services.models.names import provider_of
from interlock.state.settings import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

_PROVIDERS = {"gemini": "google", "mistralai": "mistral", "xai": "x-ai", "bedrock": "aws"}
"""Ours → the table's, where they differ."""


class Known(NamedTuple):
    """A model by name."""

    window: int | None
    price: Price | None
    """For short requests."""
    most: Price | None
    """For the longest: what a budget counts, so that it never counts too little."""


@cache
def known(model: str) -> Known:
    """What is known of a resolved model; all None if the table hasn't got it."""
    if provider_of(model) == "script":
        return Known(None, None, None)
    from genai_prices.data import providers

    name = _PROVIDERS.get(provider_of(model), provider_of(model))
    provider = next((one for one in providers if one.id == name), None)
    found = provider.find_model(model.rpartition(":")[2], all_providers=providers) if provider else None
    if found is None:
        return Known(None, None, None)
    return Known(found.context_window, _price(found, 0), _price(found, -1))


def _price(model: "ModelInfo", tier: int) -> Price | None:
    prices = model.get_prices(datetime.now(UTC))
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    return Price(input=_of_tier(prices.input_mtok, tier), output=_of_tier(prices.output_mtok, tier))


def _of_tier(price: Any, tier: int) -> float:
    tiers = getattr(price, "tiers", None)
    return float(price if tiers is None else [price.base, *(one.price for one in tiers)][tier])
