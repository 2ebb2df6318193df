"""models: what the configured providers and the servers nearby offer."""

from typing import Any

from interlock.engine.driver.prepare import RunConfig, prepare
from interlock.engine.options import Options
from interlock.services.models.facts import offered
from interlock.services.models.known import FREE
from interlock.services.models.known import source as source
from interlock.state.text import visible


def offered_models(options: Options) -> list[dict[str, Any]]:
    """A row for each model: window, longest reply, what it takes, price, how it calls tools, whether it was tried."""
    prepared = prepare(options, needs_model=False)
    return [_row(name, prepared) for name in offered(prepared.settings, prepared.env, prepared.facts)]


def _row(name: str, prepared: RunConfig) -> dict[str, Any]:
    settings, facts = prepared.settings, prepared.facts
    seen, able = facts.seen(name), facts.able(name)
    prices = facts.prices(name)
    window, told = facts.window(name)
    first = prices[0] if prices else None
    shown = f"{first.input:g} / {first.output:g}" if first else None
    return {
        "model": visible(name),
        "window": window,
        "window_known": told,
        "output": able.output,
        "takes": [*able.takes],
        "price": "0" if prices == FREE else shown,
        "prices": [rates._asdict() for rates in prices or ()],
        "protocol": facts.protocol(name, settings.tools.protocol),
        "tokens_per_estimate": seen.per_estimate,
        "tried": seen.answered,
    }
