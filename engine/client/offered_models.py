"""offered_models: what the configured providers and the servers nearby offer."""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from interlock.engine.driver.run_config import RunConfig, prepare_run
from interlock.engine.options import Options
from interlock.services.models.facts import list_offered_models
from interlock.services.models.model_table import FREE
from interlock.services.models.model_table import price_table_version as price_table_version
from interlock.services.models.names import PROVIDERS, provider_name
from interlock.services.models.provider_api import list_provider_models
from interlock.state.errors import UserError
from interlock.state.text import make_visible


def list_model_rows(options: Options) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each model (window, reply, what it takes, price, calls, whether it was tried), and problems."""
    prepared = prepare_run(options, needs_model=False)
    found = list_offered_models(prepared.settings, prepared.env, prepared.facts)
    listed, problems = _list_unnamed_models(prepared.env, {provider_name(name) for name in found})
    rows = [_model_row(name, prepared) for name in dict.fromkeys([*found, *listed])]
    return rows, problems


def _list_unnamed_models(env: Mapping[str, str], named: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the models of providers that have a key and none of whose models is named, and what went wrong."""
    keyed = [p for p, s in PROVIDERS.items() if s.key and env.get(s.key) and p not in named and p != "azure"]
    models: list[str] = []
    problems: list[str] = []
    with ThreadPoolExecutor(len(keyed) or 1) as pool:
        for provider, asked in [(p, pool.submit(list_provider_models, p, env)) for p in keyed]:
            try:
                models += [f"{provider}:{name}" for name in asked.result()]
            except UserError as error:
                problems.append(f"{provider}: {error}")
    return models, problems


def _model_row(name: str, prepared: RunConfig) -> dict[str, Any]:
    settings, facts = prepared.settings, prepared.facts
    seen, able = facts.observations(name), facts.abilities(name)
    prices = facts.prices(name)
    window, told = facts.context_window(name)
    first = prices[0] if prices else None
    shown = f"{first.input:g} / {first.output:g}" if first else None
    return {
        "model": make_visible(name),
        "window": window,
        "window_known": told,
        "output": able.output,
        "takes": [*able.takes],
        "price": "0" if prices == FREE else shown,
        "prices": [rates._asdict() for rates in prices or ()],
        "protocol": facts.call_protocol(name, settings.tools.protocol),
        "tokens_per_estimate": seen.per_estimate,
        "tried": seen.answered,
    }
