"""model_table: what the table of genai-prices says of models, and what requests cost by it.

Loading the table takes 0.03 s in a run, 0.2 s in a process that has loaded nothing, and 6 to 19 MB: a state directory
keeps for a day what it says of a model (`facts.py`).
"""

import ast
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.services.models.names import find_provider_spec, provider_name
from interlock.state.messages import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

_PROVIDERS = {"gemini": "google", "mistralai": "mistral", "xai": "x-ai", "bedrock": "aws"}
"""Ours → the table's, where they differ."""


class Rates(NamedTuple):
    """US dollars per million tokens, for requests of more than `above` input tokens."""

    above: int
    input: float
    output: float
    cached: float
    """Input that the provider read from its cache."""
    written: float
    """Input that it wrote to its cache."""

    def cost_usd(self, usage: Usage) -> float:
        plain = usage.input - usage.cached - usage.written
        spent = plain * self.input + usage.cached * self.cached + usage.written * self.written
        return (spent + usage.output * self.output) / 1e6


Prices = Sequence[Rates]
"""A model's rates, those of the shortest requests first."""
FREE: Prices = (Rates(0, 0.0, 0.0, 0.0, 0.0),)


def request_cost_usd(prices: Prices, usage: Usage) -> float:
    """Return US dollars for one request: a tier's rates hold for all of its tokens."""
    return next((rates for rates in reversed(prices) if usage.input > rates.above), prices[0]).cost_usd(usage)


def price_table_version() -> str:
    """Return the table and its version, which is how old it is."""
    return f"genai-prices {version('genai-prices')}"


class TableEntry(NamedTuple):
    """A model by name."""

    window: int | None
    prices: Prices | None


_UNKNOWN = TableEntry(None, None)


@cache
def price_table_cache_stamp() -> str:
    """Return which table, and which day: prices change."""
    spec = find_spec("genai_prices")
    found = Path(spec.origin).with_name("data.py").stat() if spec and spec.origin else None
    return f"{datetime.now(UTC):%F} {found.st_mtime_ns if found else 0}"


def look_up_table_entry(model: str, url: str = "") -> TableEntry:
    """Return what is known of a resolved model today; all None if the table hasn't got it. `url`: the server's
    address."""
    if provider_name(model) == "script":
        return _UNKNOWN
    found = _find_model_info(model, url)
    return (
        TableEntry(found.context_window, _to_prices(found.get_prices(datetime.now(UTC))))
        if found
        else _UNKNOWN
    )


@cache
def _find_model_info(model: str, url: str) -> "ModelInfo | None":
    # Imported by name: pyright would take a minute to read the 30,000 lines of the list's value.
    providers: list[Provider] = import_module("genai_prices.data").providers
    own = _PROVIDERS.get(provider_name(model), provider_name(model))
    behind = next((one for one in providers if url and re.match(one.api_pattern, url)), None)
    provider = behind or next((one for one in providers if one.id == own), None)
    return (
        provider.find_model(model.partition(":")[2] or model, all_providers=providers) if provider else None
    )


_ABILITIES = {
    "tool_calling": "tools",
    "image_inputs": "images",
    "pdf_inputs": "PDFs",
    "audio_inputs": "audio",
    "reasoning_output": "thinking",
}


ABILITIES = tuple(_ABILITIES.values())
_IN_RESULTS = {"image_tool_message": "images", "pdf_tool_message": "PDFs"}


class Abilities(NamedTuple):
    """What the profile that LangChain's package brings says of a model."""

    output: int | None = None
    """Most tokens of a reply."""
    takes: tuple[str, ...] = ()
    in_results: tuple[str, ...] = ()
    """What of it may stand in a tool's result."""
    refuses: tuple[str, ...] = ()
    """What it is known not to take."""
    temperature: bool = True
    is_known: bool = False
    """Whether a profile was found."""


_FIXED = re.compile(r"gpt-([5-9]|\d\d)(?!.*chat)|o\d|codex")
"""Models of OpenAI that reason: their server refuses a temperature, or takes one only where they don't."""


def read_abilities(model: str) -> Abilities:
    """Of a resolved model; nothing if its provider's package has no profile of it."""
    name = provider_name(model)
    module = "langchain_google_genai" if name == "gemini" else getattr(find_provider_spec(name), "module", "")
    spec = find_spec(module) if module else None
    file = Path(spec.origin or "").parent / "data" / "_profiles.py" if spec else None
    own = model.partition(":")[2] or model
    warm = not _FIXED.match(own.rpartition("/")[2].removeprefix("openai."))
    if file is None or not file.is_file():
        return Abilities(temperature=warm)
    profiles = _read_profiles(file)
    # Names with a date, which the table hasn't got, mean the model without one.
    dated = (key for key in sorted(profiles, key=len, reverse=True) if own.startswith(f"{key}-2"))
    profile = profiles.get(own) or profiles.get(next(dated, ""), {})
    takes = tuple(word for key, word in _ABILITIES.items() if profile.get(key))
    in_results = tuple(word for key, word in _IN_RESULTS.items() if profile.get(key) and word in takes)
    warm = warm and profile.get("temperature") is not False
    refuses = tuple(word for key, word in _ABILITIES.items() if profile.get(key) is False)
    return Abilities(profile.get("max_output_tokens"), takes, in_results, refuses, warm, bool(profile))


@cache
def _read_profiles(file: Path) -> dict[str, dict[str, Any]]:
    """Read the profiles without importing their package, which takes half a second."""
    body = ast.parse(file.read_bytes()).body
    return next(ast.literal_eval(one.value) for one in body if isinstance(one, ast.AnnAssign) and one.value)


def _to_prices(prices: "ModelPrice") -> Prices | None:
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    parts = (prices.input_mtok, prices.output_mtok, prices.cache_read_mtok, prices.cache_write_mtok)
    starts = sorted({0, *(tier.start for price in parts for tier in getattr(price, "tiers", ()))})
    return [_rates_for_tier(start, *parts) for start in starts]


def _rates_for_tier(start_tokens: int, *parts: Any) -> Rates:
    first, output, cached, written = (_price_for_tier(price, start_tokens) for price in parts)
    plain = first or 0.0
    return Rates(
        start_tokens, plain, output or 0.0, *(plain if one is None else one for one in (cached, written))
    )


def _price_for_tier(price: Any, start_tokens: int) -> float | None:
    if price is None:
        return None
    tiers = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= start_tokens]
    return float(tiers[-1] if tiers else getattr(price, "base", price))
